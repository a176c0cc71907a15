"""Other engines' published rules for the chunk, to be compared with; not for products."""
