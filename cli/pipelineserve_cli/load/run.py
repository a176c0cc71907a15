"""Open loop: every request is sent at its time, whatever became of the others."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import httpx

from pipelineserve_cli.load.bodies import BodySettings, body_of
from pipelineserve_cli.load.client import Answer, LoadClient
from pipelineserve_cli.load.plan import LoadPlan, PlannedRequest
from pipelineserve_cli.load.records import Failure, FailureKind, RequestRecord

# Timers of the event loop wake up to a millisecond late; the last of the wait is spent looking.
_LOOKING_S = 0.002
_MAKING_S = 0.02
_NUM_RECENT = 20


@dataclass(frozen=True, slots=True)
class LiveCounts:
    """Where a run stands; `recent` are the latest whole answers."""

    num_planned: int
    num_sent: int
    num_done: int
    num_failed: int
    recent: tuple[RequestRecord, ...]

    @property
    def num_running(self) -> int:
        """Sent and not ended."""
        return self.num_sent - self.num_done - self.num_failed


@dataclass(frozen=True, slots=True)
class RunResult:
    """Every request that was sent, in the plan's order; those missing were never sent."""

    records: tuple[RequestRecord, ...]
    is_interrupted: bool


class LoadRun:
    """One run of a plan; failures are recorded and never stop it.

    Args:
        drain_s: how long requests may still run after the last one was sent.
        clock: monotonic seconds, the same as the client's.
    """

    def __init__(
        self,
        plan: LoadPlan,
        bodies: BodySettings,
        client: LoadClient,
        *,
        drain_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._plan = plan
        self._bodies = bodies
        self._client = client
        self._drain_s = drain_s
        self._clock = clock
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancellation = FailureKind.UNDRAINED
        self._begin_s = 0.0
        self._num_sent = 0
        self._records: list[RequestRecord] = []
        self._recent: deque[RequestRecord] = deque(maxlen=_NUM_RECENT)
        self._num_failed = 0

    @property
    def counts(self) -> LiveCounts:
        """Where it stands; may be read from another thread."""
        num_failed, num_ended = self._num_failed, len(self._records)
        return LiveCounts(
            num_planned=len(self._plan.requests),
            num_sent=self._num_sent,
            num_done=num_ended - num_failed,
            num_failed=num_failed,
            recent=tuple(self._recent),
        )

    def interrupt(self) -> None:
        """Send nothing more and drain; called again, give up what still runs."""
        if self._stop.is_set():
            self._cancel(FailureKind.INTERRUPTED)
        self._stop.set()

    async def run(self) -> RunResult:
        """Send the plan, drain, and return what became of it."""
        async with self._client, asyncio.TaskGroup() as group:
            await self._client.warm_up()
            self._begin_s = self._clock()
            for planned in self._plan.requests:
                due_s = self._begin_s + planned.at_s
                # A request is made before its time, and not while the one before goes out.
                await self._wait_until(due_s - _MAKING_S)
                request = self._client.prepare(body_of(planned, self._bodies))
                await self._wait_until(due_s)
                if self._stop.is_set():
                    break
                self._start(group, planned, request)
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=self._drain_s)
                self._cancel(self._cancellation)
        records = tuple(sorted(self._records, key=lambda record: record.index))
        return RunResult(records, is_interrupted=self._stop.is_set())

    def _start(
        self, group: asyncio.TaskGroup, planned: PlannedRequest, request: httpx.Request
    ) -> None:
        self._num_sent += 1
        task = group.create_task(self._send(planned, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cancel(self, kind: FailureKind) -> None:
        self._cancellation = kind
        for task in self._tasks:
            task.cancel()

    async def _wait_until(self, due_s: float) -> None:
        wait_s = due_s - self._clock() - _LOOKING_S
        if wait_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stop.wait()
        # At least once, so that answers are read also while requests are due without a pause.
        await asyncio.sleep(0)
        while self._clock() < due_s and not self._stop.is_set():  # noqa: ASYNC110 - see _LOOKING_S
            await asyncio.sleep(0)

    async def _send(self, planned: PlannedRequest, request: httpx.Request) -> None:
        answer = Answer()
        try:
            failure = await self._client.send(request, answer)
        except asyncio.CancelledError:  # only `_cancel` does so, and the record says it
            failure = Failure(self._cancellation, "it was still running")
        record = answer.record(planned, failure, self._begin_s, self._clock())
        if failure is None:
            self._recent.append(record)
        else:
            self._num_failed += 1
        self._records.append(record)
