"""What a stage's process is told of its links."""

import os
from enum import Enum

import msgspec


class TransportKind(Enum):
    """What carries the hidden states."""

    GLOO = "gloo"
    SHARED_MEMORY = "shared_memory"
    NCCL = "nccl"


class LinkEnd(msgspec.Struct, frozen=True):
    """One end of a link in shared memory, as descriptors that a stage's process inherits.

    Attributes:
        memory: of the ring.
        channel: the end's socket.
    """

    memory: int
    channel: int

    @property
    def descriptors(self) -> tuple[int, int]:
        """What the process must inherit."""
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
    def ends(self) -> tuple[LinkEnd, ...]:
        """Those that the stage's process inherits."""
        return tuple(end for end in (self.before, self.behind) if end is not None)

    def close_ends(self) -> None:
        """The stage's process has its own copies, or will never start."""
        for end in self.ends:
            end.close()
