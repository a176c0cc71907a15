"""The torch engine, which serves a model through a pipeline, and the add-ons to other engines."""
