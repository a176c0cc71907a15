"""The pserve command."""
