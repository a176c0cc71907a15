"""What a stage's process is told of its links."""

import os
from collections.abc import Sequence
from enum import Enum

import msgspec


class TransportKind(Enum):
    """What carries the hidden states."""

    GLOO = "gloo"
    SHARED_MEMORY = "shared_memory"
    NCCL = "nccl"


class LinkEnd(msgspec.Struct, frozen=True):
    """One end of a link in shared memory, as descriptors of which a stage's process gets copies.

    Attributes:
        memory: of the ring.
        channel: the end's socket.
    """

    memory: int
    channel: int

    @property
    def descriptors(self) -> tuple[int, int]:
        """What the process must get."""
        return (self.memory, self.channel)

    def close(self) -> None:
        """The process has its own copies, or will never start."""
        for descriptor in self.descriptors:
            os.close(descriptor)


class LinkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a stage needs to know of its links.

    Attributes:
        kind: the same at every stage.
        place_tokens: tokens of the largest micro-batch; for shared memory.
        address: this stage's own, which its neighbours can reach; for gloo.
        rendezvous: URL through which the stages find each other; empty in shared memory.
        before: the receiving end in shared memory; None at the first stage, and elsewhere.
        behind: the sending end in shared memory; None at the last stage, and elsewhere.
    """

    kind: TransportKind
    place_tokens: int = 0
    address: str = "127.0.0.1"
    rendezvous: str = ""
    before: LinkEnd | None = None
    behind: LinkEnd | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What the stage's process must get, of all its ends."""
        return tuple(number for end in self._ends for number in end.descriptors)

    def with_descriptors(self, descriptors: Sequence[int]) -> "LinkSettings":
        """The same links by the numbers that `descriptors`, in their order, have elsewhere."""
        pairs = iter(
            [LinkEnd(*pair) for pair in zip(descriptors[::2], descriptors[1::2], strict=True)]
        )
        return msgspec.structs.replace(
            self,
            before=None if self.before is None else next(pairs),
            behind=None if self.behind is None else next(pairs),
        )

    def close_ends(self) -> None:
        """The stage's process has its own copies, or will never start."""
        for end in self._ends:
            end.close()

    @property
    def _ends(self) -> tuple[LinkEnd, ...]:
        return tuple(end for end in (self.before, self.behind) if end is not None)
