"""The live page: one static document that follows the sidecar's events in a browser."""
