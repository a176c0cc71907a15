"""The torch engine: OpenAI server, stage workers, transport between stages."""
