"""A process that has everything imported and forks stages on demand, and its owner's side of it."""
