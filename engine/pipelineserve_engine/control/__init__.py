"""The scheduler's contract, served: what happens goes out, policies come in."""
