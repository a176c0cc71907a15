"""Requests, waiting queue, slots and KV blocks; deterministic, torch-free, clockless."""
