"""A simulation as a text: what people write, checked at the door, and the scenario made of it."""
