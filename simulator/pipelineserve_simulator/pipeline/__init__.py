"""The executor of the shared scheduler on virtual time."""
