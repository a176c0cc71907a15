"""From what was seen and done to what the status says: pure."""
