"""From what is there and what should be there to what is to be done: pure."""
