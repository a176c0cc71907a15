"""Text to token ids and back: chat templates, incremental decoding, stop strings."""
