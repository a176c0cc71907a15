"""Chance as an argument: random streams by name, each independent of how the others are used."""

from hashlib import blake2b
from random import Random


class Chance:
    """All the chance of one run.

    Args:
        seed: two objects with the same seed give the same streams.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, name: str) -> Random:
        """A stream from its beginning; the same for the same seed and name, in every process."""
        digest = blake2b(f"{self.seed}/{name}".encode(), digest_size=16).digest()
        return Random(int.from_bytes(digest))
