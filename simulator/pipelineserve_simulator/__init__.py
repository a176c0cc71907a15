"""The digital twin: the shared scheduler and policies on virtual time."""
