"""Several answers to one prompt: each with its index and seed, the prompt counted once."""

from collections import defaultdict
from collections.abc import AsyncGenerator

import pytest
from openai.types.chat import ChatCompletionMessageParam

from api_server import MODEL, an_api_context, serving
from fake_engine import FakeEngine, events_of
from pipelineserve.errors import QueueFullError
from pipelineserve_engine.generation import GenerationRequest, TokenEvent

pytestmark = pytest.mark.anyio

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hi"}]


class _Numbered(FakeEngine):
    """Answers the n-th request with n + 1 letters; all but the first find the prompt cached."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        """Submit, then yield the request's own letters."""
        index = len(self.requests)
        self.requests.append(request)
        letters = chr(ord("a") + index) * (index + 1)
        for event in events_of(letters, cached_prompt_tokens=4 if index else 1):
            yield event


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_has_n_choices_and_the_usage_counts_its_prompt_once(stream: bool) -> None:
    engine = _Numbered()
    texts: dict[int, str] = defaultdict(str)
    reasons = {}
    async with serving(an_api_context(engine)) as api:
        if stream:
            chunks = await api.client.chat.completions.create(
                model=MODEL, messages=HI, n=3, seed=40, stream=True,
                stream_options={"include_usage": True},
            )  # fmt: skip
            roles = []
            async for chunk in chunks:
                usage = chunk.usage
                for choice in chunk.choices:
                    texts[choice.index] += choice.delta.content or ""
                    roles += [choice.index] if choice.delta.role else []
                    if choice.finish_reason is not None:
                        reasons[choice.index] = choice.finish_reason
            assert sorted(roles) == [0, 1, 2]
        else:
            answer = await api.client.chat.completions.create(
                model=MODEL, messages=HI, n=3, seed=40
            )
            usage = answer.usage
            for whole in answer.choices:
                texts[whole.index] = whole.message.content or ""
                reasons[whole.index] = whole.finish_reason
    assert texts == {0: "a", 1: "bb", 2: "ccc"}
    assert reasons == dict.fromkeys(range(3), "length")
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (len("user:Hi;"), 6)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 1
    assert [request.sampling.seed for request in engine.requests] == [40, 41, 42]
    assert [request.request_id[-2:] for request in engine.requests] == ["-0", "-1", "-2"]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_choices_of_several_prompts_go_by_prompt_then_sample(stream: bool) -> None:
    engine = _Numbered()
    texts: dict[int, str] = defaultdict(str)
    async with serving(an_api_context(engine)) as api:
        if stream:
            chunks = await api.client.completions.create(
                model=MODEL, prompt=["x", "yz"], n=2, seed=7, stream=True,
                stream_options={"include_usage": True},
            )  # fmt: skip
            async for chunk in chunks:
                usage = chunk.usage
                for choice in chunk.choices:
                    texts[choice.index] += choice.text
        else:
            answer = await api.client.completions.create(
                model=MODEL, prompt=["x", "yz"], n=2, seed=7
            )
            usage = answer.usage
            texts |= {choice.index: choice.text for choice in answer.choices}
    assert texts == {0: "a", 1: "bb", 2: "ccc", 3: "dddd"}
    assert [(r.prompt_token_ids, r.sampling.seed) for r in engine.requests] == [
        ((ord("x"),), 7),
        ((ord("x"),), 8),
        ((ord("y"), ord("z")), 7),
        ((ord("y"), ord("z")), 8),
    ]
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, 10)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 1 + 4


async def test_without_a_seed_every_sample_draws_its_own() -> None:
    engine = _Numbered()
    async with serving(an_api_context(engine)) as api:
        await api.client.completions.create(model=MODEL, prompt="x", n=2)
    assert [request.sampling.seed for request in engine.requests] == [None, None]


class _FullAfterOne(FakeEngine):
    """Takes one request and refuses the next."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        """Submit; the second time, refuse."""
        if self.requests:
            self.refusal = QueueFullError("8 requests wait and 8 may; try again later", 2.5)
        return super().generate(request)


async def test_one_refused_sample_refuses_the_chat_and_cancels_the_others() -> None:
    engine = _FullAfterOne()
    async with serving(an_api_context(engine)) as api:
        fields = {"model": MODEL, "messages": HI, "n": 2}
        answer = await api.post("/v1/chat/completions", fields)
    assert answer.status == 429
