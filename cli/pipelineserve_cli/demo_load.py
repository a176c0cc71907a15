"""The demo's load: a few short chats and a few longer prompts, arriving at random, streamed."""

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx

# A passage for the longer prompts; about 150 tokens each time that it is repeated.
_PASSAGE = (
    "A pipeline cuts a model into stages, each holding some of its layers. A micro-batch enters "
    "the first stage while the one before it is in the second, so all stages work at once as long "
    "as there are micro-batches enough. A stage that waits has a bubble. Long prompts are cut into "
    "pieces that follow each other through the stages, and the tokens of running answers travel "
    "in the same micro-batches, first in line. The larger the pieces, the sooner a prompt is done; "
    "the smaller they are, the shorter each running answer waits for its next token. "
)
_QUESTIONS = (
    "What is the capital of France?",
    "Name three colours.",
    "Write one sentence about the sea.",
    "What do bees make?",
    "Give me a short greeting.",
    "What is two plus two?",
)


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request of the load, before it is sent."""

    at_s: float
    content: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request as its client saw it; times are from its sending."""

    content: str
    answer: str
    num_prompt_tokens: int
    num_output_tokens: int
    ttft_s: float
    e2e_s: float

    @property
    def tpot_s(self) -> float | None:
        """(Last - first token) ÷ (output tokens - 1); None below two tokens."""
        if self.num_output_tokens < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.num_output_tokens - 1)


def plan_load(seed: int, num_requests: int, rate_per_s: float) -> tuple[PlannedRequest, ...]:
    """Poisson arrivals; every third request has a long prompt."""
    chance = random.Random(seed)  # noqa: S311 - arrivals, not secrets
    planned = []
    at_s = 0.0
    for index in range(num_requests):
        if index % 3 == 2:
            content = _PASSAGE * chance.randint(1, 3) + "Sum this up in one sentence."
            planned.append(PlannedRequest(at_s, content, max_tokens=chance.randint(16, 32)))
        else:
            content = chance.choice(_QUESTIONS)
            planned.append(PlannedRequest(at_s, content, max_tokens=chance.randint(16, 48)))
        at_s += chance.expovariate(rate_per_s)
    return tuple(planned)


def send_load(
    url: str, model: str, load: Sequence[PlannedRequest], on_done: Callable[[], None]
) -> list[Outcome]:
    """Send each request at its time, whatever became of the others (open loop).

    Raises:
        httpx.HTTPError: a request failed.
    """
    return asyncio.run(_send_all(url, model, load, on_done))


async def _send_all(
    url: str, model: str, load: Sequence[PlannedRequest], on_done: Callable[[], None]
) -> list[Outcome]:
    async with httpx.AsyncClient(base_url=url, timeout=None) as client:  # noqa: S113 - ends itself
        begin_s = time.monotonic()

        async def one(planned: PlannedRequest) -> Outcome:
            await asyncio.sleep(max(0.0, begin_s + planned.at_s - time.monotonic()))
            outcome = await _stream_chat(client, model, planned)
            on_done()
            return outcome

        return list(await asyncio.gather(*(one(planned) for planned in load)))


async def _stream_chat(client: httpx.AsyncClient, model: str, planned: PlannedRequest) -> Outcome:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": planned.content}],
        "max_tokens": planned.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sent_s = time.monotonic()
    first_s = last_s = None
    text = ""
    usage = {"prompt_tokens": 0, "completion_tokens": 0}
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.is_error:
            await response.aread()
            response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            usage = event.get("usage") or usage
            delta = "".join(choice["delta"].get("content") or "" for choice in event["choices"])
            if delta:
                last_s = time.monotonic()
                first_s = first_s or last_s
                text += delta
    end_s = last_s or time.monotonic()
    return Outcome(
        content=planned.content,
        answer=text,
        num_prompt_tokens=usage["prompt_tokens"],
        num_output_tokens=usage["completion_tokens"],
        ttft_s=(first_s or end_s) - sent_s,
        e2e_s=end_s - sent_s,
    )
