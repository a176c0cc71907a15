"""The experiments, one module for each part of the acceptance table."""
