"""The product's controller in the loop, on virtual time."""
