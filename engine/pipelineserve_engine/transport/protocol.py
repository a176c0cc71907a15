"""What a stage asks of its links, whatever carries the hidden states."""

from typing import Protocol

import torch


class Reception(Protocol):
    """One receive that is under way."""

    def wait(self) -> torch.Tensor:
        """Wait for the hidden states, [tokens, hidden]; they may lie where the sender put them."""
        ...

    def release(self) -> None:
        """What `wait` gave is no longer read; its memory may be written again."""
        ...


class Transport(Protocol):
    """One stage's links to its neighbours; both ends know the sizes from the step's command.

    Receives end in the order in which they were posted, which is that of the sends.
    """

    def post_receive(self, num_tokens: int) -> Reception:
        """Start to receive [num_tokens, hidden] of the stage before; returns at once."""
        ...

    def send(self, hidden: torch.Tensor) -> None:
        """Start sending [tokens, hidden] to the stage behind; returns at once."""
        ...

    def close(self) -> None:
        """Give up the links."""
        ...
