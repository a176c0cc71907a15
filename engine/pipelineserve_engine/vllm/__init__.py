"""The add-on: our control of a real vLLM's scheduler, as its scheduler class."""
