"""What the other stages tell stage 0, through the store that torch.distributed already has.

It is reachable from every rank, on every host, and needs no port of its own. The scheduling
threads only put into and take from queues; a thread per rank speaks with the store.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from pipelineserve_engine.addon.ledger import StageReport

_PERIOD_S = 0.02
_PREFIX = "pipelineserve"
_READY = b"ready"

logger = logging.getLogger(__name__)


class Store(Protocol):
    """The part of torch's store that is used; none of it waits."""

    def set(self, key: str, value: str) -> None:
        """Keep a value."""
        ...

    def get(self, key: str) -> bytes:
        """A value that is there."""
        ...

    def check(self, keys: list[str]) -> bool:
        """Whether all are there."""
        ...

    def delete_key(self, key: str) -> bool:
        """Forget a value."""
        ...


class Sender:
    """Of one rank: says once whether it obeys orders, then sends what its stage did.

    Args:
        store: shared by all ranks.
        rank: this one.
        stage_index: whose reports it sends; None for a rank that sends none.
        inactive_reason: why it does not obey; empty if it does.
    """

    def __init__(
        self, store: Store, rank: int, stage_index: int | None, inactive_reason: str
    ) -> None:
        self._store = store
        self._stage_index = stage_index
        self._pending: deque[StageReport] = deque()
        self._num_sent = 0
        store.set(f"{_PREFIX}/rank/{rank}", inactive_reason or _READY.decode())

    def put(self, reports: Sequence[StageReport]) -> None:
        """Send these soon."""
        if self._stage_index is not None:
            self._pending.extend(reports)

    def turn(self) -> None:
        """Send what is there; in the thread that speaks with the store."""
        if not self._pending:
            return
        batch = [self._pending.popleft() for _ in range(len(self._pending))]
        key = f"{_PREFIX}/reports/{self._stage_index}/{self._num_sent}"
        self._store.set(key, msgspec.json.encode(batch).decode())
        self._num_sent += 1


class Receiver:
    """Stage 0's: hears from each rank whether it obeys, then what the stages did.

    Args:
        store: shared by all ranks.
        num_ranks: that must obey.
        stages: that report.
    """

    def __init__(self, store: Store, num_ranks: int, stages: Sequence[int]) -> None:
        self._store = store
        self._unheard = list(range(num_ranks))
        self._num_received = dict.fromkeys(stages, 0)
        self._reports: deque[StageReport] = deque()
        self.inactive_reason = ""

    @property
    def is_ready(self) -> bool:
        """Whether every rank obeys."""
        return not self._unheard and not self.inactive_reason

    def take(self) -> list[StageReport]:
        """What came since the last call."""
        return [self._reports.popleft() for _ in range(len(self._reports))]

    def turn(self) -> None:
        """Look what is there; in the thread that speaks with the store."""
        self._unheard = [rank for rank in self._unheard if not self._has_heard(rank)]
        for stage in self._num_received:
            while (batch := self._next(stage)) is not None:
                self._reports.extend(batch)

    def _has_heard(self, rank: int) -> bool:
        key = f"{_PREFIX}/rank/{rank}"
        if not self._store.check([key]):
            return False
        answer = self._store.get(key)
        if answer != _READY:
            self.inactive_reason = f"rank {rank}: {answer.decode()}"
        return True

    def _next(self, stage: int) -> list[StageReport] | None:
        key = f"{_PREFIX}/reports/{stage}/{self._num_received[stage]}"
        if not self._store.check([key]):
            return None
        batch = msgspec.json.decode(self._store.get(key), type=list[StageReport])
        self._store.delete_key(key)
        self._num_received[stage] += 1
        return batch


class StoreThread:
    """Lets parties speak with the store until it is closed, or the store is gone."""

    def __init__(self, *parties: Sender | Receiver) -> None:
        self._parties = parties
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stage-reports", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Say no more."""
        self._is_closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closed.wait(_PERIOD_S):
            try:
                for party in self._parties:
                    party.turn()
            except RuntimeError as error:  # torch's for a store whose host is gone
                logger.warning("stages can tell no more what they did: %s", error)
                return


def distributed_store() -> Store:
    """A connection of its own to the store of SGLang's processes."""
    from torch.distributed import (  # noqa: PLC0415 - only SGLang's processes have one
        distributed_c10d,
    )

    # torch has no public way to it, and its types do not know that a store can be cloned.
    default: Any = distributed_c10d._get_default_store()  # noqa: SLF001
    store: Store = default.clone()
    return store
