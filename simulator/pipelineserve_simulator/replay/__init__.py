"""Recorded runs of an engine again: the same calls give the same micro-batches."""
