"""Pure policies: one frozen view in, one frozen decision with its reason out."""
