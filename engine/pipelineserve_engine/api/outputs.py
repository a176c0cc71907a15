"""One request's output as text, and several outputs at once."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from pipelineserve.errors import EngineUnavailableError
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.api.logprobs import ScoredToken
from pipelineserve_engine.generation import EngineClient, GenerationRequest, TokenEvent
from pipelineserve_engine.text.assembly import TextAssembler

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class TextDelta:
    """What one engine step adds to the text; the counts are those of the request so far.

    `finish` is set on the last delta, and only there. `scored` is the step's token, if its
    log-probabilities were asked for; its text may be held back for later deltas.
    """

    text: str
    output_tokens: int
    cached_prompt_tokens: int
    finish: FinishReason | None = None
    scored: ScoredToken | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """A whole answer."""

    text: str
    output_tokens: int
    cached_prompt_tokens: int
    finish: FinishReason
    scored: tuple[ScoredToken, ...] = ()


async def text_deltas(
    engine: EngineClient, request: GenerationRequest, assembler: TextAssembler
) -> AsyncGenerator[TextDelta, None]:
    """Run a request; one delta per engine event, with empty text where it is held back.

    Closing it early cancels the request. Raises what `EngineClient.generate` raises, and
    EngineUnavailableError when the engine gives the request up.
    """
    progress = _Progress(assembler)
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            try:
                delta = progress.add(event)
            except Exception:
                # Else the close that follows would count it as left by its client.
                engine.fail(request.request_id)
                raise
            if delta.finish is None:
                yield delta
                continue
            if event.finish is None:
                engine.finish(request.request_id)
            # To its end, so that closing it is no cancellation.
            await _drain(events)
            yield _require_complete(delta, event.detail)
            return
    raise EngineUnavailableError(
        f"the engine's output ended after {progress.output_tokens} tokens without a reason; "
        "try again"
    )


async def collect(deltas: AsyncGenerator[TextDelta, None]) -> Output:
    """The whole answer of one request."""
    pieces = []
    scored = []
    async with aclosing(deltas):
        async for delta in deltas:
            pieces.append(delta.text)
            if delta.scored is not None:
                scored.append(delta.scored)
            if delta.finish is not None:
                return Output(
                    "".join(pieces),
                    delta.output_tokens,
                    delta.cached_prompt_tokens,
                    delta.finish,
                    tuple(scored),
                )
    raise EngineUnavailableError("the output ended without its last part; try again")


async def gather_or_cancel(works: Sequence[Coroutine[Any, Any, ItemT]]) -> list[ItemT]:
    """Results in order; the first failure is raised once the others were cancelled and ended."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await _cancel_all(tasks)


async def interleave(
    streams: Sequence[AsyncGenerator[ItemT, None]],
) -> AsyncGenerator[tuple[int, ItemT], None]:
    """Items of all streams as they come, each with its stream's index.

    The first failure is raised. Closing it, or a failure, closes every stream.
    """
    if len(streams) == 1:  # by far the most frequent case, and no task per item
        async with aclosing(streams[0]) as stream:
            async for item in stream:
                yield 0, item
        return
    waiting = {asyncio.create_task(_next(stream)): i for i, stream in enumerate(streams)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=waiting.__getitem__):
                index = waiting.pop(task)
                items = task.result()
                if items:
                    waiting[asyncio.create_task(_next(streams[index]))] = index
                    yield index, items[0]
    finally:
        await _cancel_all(list(waiting))
        for stream in streams:
            await stream.aclose()


class _Progress:
    """Counts and text of one request, from its events."""

    def __init__(self, assembler: TextAssembler) -> None:
        self._assembler = assembler
        self._cached_prompt_tokens = 0
        self.output_tokens = 0

    def add(self, event: TokenEvent) -> TextDelta:
        text, finish, scored = "", event.finish, None
        if event.token_id is not None:
            self.output_tokens += 1
            if event.logprobs is not None:
                scored = ScoredToken(event.token_id, event.logprobs)
            text = self._assembler.push(event.token_id)
        if finish is not None:
            text += self._assembler.flush()
        if self._assembler.has_stopped:
            finish = FinishReason.STOP
        self._cached_prompt_tokens = max(self._cached_prompt_tokens, event.cached_prompt_tokens)
        return TextDelta(text, self.output_tokens, self._cached_prompt_tokens, finish, scored)


def _require_complete(delta: TextDelta, detail: str) -> TextDelta:
    match delta.finish:
        case FinishReason.ERROR | FinishReason.CANCELLED:
            raise EngineUnavailableError(
                f"the engine gave the request up after {delta.output_tokens} tokens "
                f"({detail or delta.finish.value}); send it again"
            )
        case FinishReason.STOP | FinishReason.LENGTH | None:
            return delta


async def _drain(events: AsyncGenerator[TokenEvent, None]) -> None:
    # The text is complete: an engine that fails now takes nothing from this client.
    with suppress(EngineUnavailableError):
        async for _ in events:
            pass


async def _next(stream: AsyncGenerator[ItemT, None]) -> tuple[ItemT, ...]:
    """One item, or none at the stream's end (a task cannot raise StopAsyncIteration)."""
    async for item in stream:
        return (item,)
    return ()


async def _cancel_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
