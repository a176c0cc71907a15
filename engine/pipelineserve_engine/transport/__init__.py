"""Hidden states from one stage to the next."""
