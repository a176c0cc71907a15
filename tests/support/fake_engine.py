"""An engine that answers from a script, waits where it is told, and records how requests end."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.generation import EngineStatus, GenerationRequest, TokenEvent

READY = EngineStatus(is_live=True, is_ready=True, detail="2 stages")


def events_of(
    text: str, finish: FinishReason = FinishReason.LENGTH, *, cached_prompt_tokens: int = 0
) -> list[TokenEvent]:
    """One event per character, for `CharacterCodec`, the last with the reason."""
    last = len(text) - 1
    return [
        TokenEvent(ord(c), finish if i == last else None, cached_prompt_tokens)
        for i, c in enumerate(text)
    ]


@dataclass
class FakeEngine:
    """An `EngineClient`.

    Attributes:
        events: what each request yields; `refusal` is raised instead if it is set, `failure` after
            the events.
        pauses: a request waits before its n-th event until the event pauses[n] is set.
        submitted: ids of requests, as they come.
        cancelled: ids of requests closed before their last event, as they are.
        finished: ids for which `finish` was called.
        failed: ids for which `fail` was called.
    """

    events: Sequence[TokenEvent] = field(default_factory=lambda: events_of("Hello"))
    refusal: Exception | None = None
    failure: Exception | None = None
    pauses: dict[int, asyncio.Event] = field(default_factory=dict)
    live_status: EngineStatus = READY
    requests: list[GenerationRequest] = field(default_factory=list)
    submitted: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    cancelled: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    finished: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        """Submit, then yield the script's events; see `EngineClient`."""
        if self.refusal is not None:
            raise self.refusal
        self.requests.append(request)
        self.submitted.put_nowait(request.request_id)
        is_over = False
        try:
            for index, event in enumerate(self.events):
                await self._pause(index)
                if request.request_id in self.finished:
                    is_over = True
                    yield TokenEvent(None, FinishReason.STOP)
                    return
                is_over = event.finish is not None
                yield event
            if self.failure is not None:
                is_over = True
                raise self.failure
        finally:
            if not is_over:
                self.cancelled.put_nowait(request.request_id)

    async def _pause(self, index: int) -> None:
        if index in self.pauses:
            await self.pauses[index].wait()

    def finish(self, request_id: str) -> None:
        """Let the request's next event be its last."""
        self.finished.append(request_id)

    def fail(self, request_id: str) -> None:
        """Remember that its answer could not be made."""
        self.failed.append(request_id)

    def status(self) -> EngineStatus:
        """What the test set."""
        return self.live_status
