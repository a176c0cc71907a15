"""The OpenAI-compatible HTTP API over an `EngineClient`."""
