"""Schedulers to compare: the product's laws, published ones, and fixed chunks."""
