"""Log-probabilities in OpenAI's shapes, streamed and whole, through the official client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam

from api_server import MODEL, an_api_context, serving
from fake_engine import FakeEngine
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.api.logprobs import CompletionLogprobs, ScoredToken, chat_logprobs
from pipelineserve_engine.generation import TokenEvent, TokenLogprobs
from pipelineserve_engine.text.tokenizer import HuggingFaceCodec
from small_tokenizers import a_byte_level_tokenizer

pytestmark = pytest.mark.anyio

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hi"}]
CODEC = HuggingFaceCodec(a_byte_level_tokenizer())


def scored_events(text: str) -> list[TokenEvent]:
    """One event per character; the likeliest alternative is always 'é'."""
    last = len(text) - 1
    return [
        TokenEvent(
            ord(character),
            FinishReason.LENGTH if index == last else None,
            logprobs=TokenLogprobs(-1.0 - index, (233, ord(character)), (-0.5, -1.0 - index)),
        )
        for index, character in enumerate(text)
    ]


def scored(token_ids: tuple[int, ...]) -> list[ScoredToken]:
    return [ScoredToken(i, TokenLogprobs(-1.0, (i,), (-1.0,))) for i in token_ids]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_names_each_token_its_bytes_and_the_likeliest(stream: bool) -> None:
    entries = []
    async with serving(an_api_context(FakeEngine(scored_events("Hé")))) as api:
        if stream:
            chunks = await api.client.chat.completions.create(
                model=MODEL, messages=HI, logprobs=True, top_logprobs=2, stream=True
            )
            async for chunk in chunks:
                (choice,) = chunk.choices
                if choice.logprobs is not None:
                    entries += choice.logprobs.content or []
                    assert choice.delta.content == entries[-1].token
        else:
            answer = await api.client.chat.completions.create(
                model=MODEL, messages=HI, logprobs=True, top_logprobs=2
            )
            assert answer.choices[0].logprobs is not None
            entries = answer.choices[0].logprobs.content or []
    assert [(e.token, e.bytes, e.logprob) for e in entries] == [
        ("H", [72], -1.0),
        ("é", [0xC3, 0xA9], -2.0),
    ]
    assert [(t.token, t.bytes, t.logprob) for t in entries[0].top_logprobs] == [
        ("é", [0xC3, 0xA9], -0.5),
        ("H", [72], -1.0),
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_completion_has_parallel_lists_with_offsets_into_its_text(stream: bool) -> None:
    tokens: list[str] = []
    logprobs: list[float] = []
    offsets: list[int] = []
    top: list[dict[str, float]] = []
    async with serving(an_api_context(FakeEngine(scored_events("aéb")))) as api:
        if stream:
            chunks = await api.client.completions.create(
                model=MODEL, prompt="x", logprobs=2, stream=True
            )
            choices = [choice async for chunk in chunks for choice in chunk.choices]
        else:
            whole = await api.client.completions.create(model=MODEL, prompt="x", logprobs=2)
            choices = whole.choices
    for choice in choices:
        assert choice.logprobs is not None
        tokens += choice.logprobs.tokens or []
        logprobs += choice.logprobs.token_logprobs or []
        offsets += choice.logprobs.text_offset or []
        top += choice.logprobs.top_logprobs or []
    assert tokens == ["a", "é", "b"]
    assert logprobs == [-1.0, -2.0, -3.0]
    assert offsets == [0, 1, 2]
    assert top == [{"é": -0.5, "a": -1.0}, {"é": -0.5}, {"é": -0.5, "b": -3.0}]


@pytest.mark.parametrize("stream", [False, True])
async def test_who_did_not_ask_gets_none(stream: bool) -> None:
    engine = FakeEngine()
    async with serving(an_api_context(engine)) as api:
        for path, prompt in (
            ("/v1/chat/completions", {"messages": HI, "logprobs": False}),
            ("/v1/completions", {"prompt": "x", "logprobs": None}),
        ):
            answer = await api.post(path, {"model": MODEL, "stream": stream, **prompt})
            assert b'"content":[' not in answer.body
            assert b'"logprobs":null' in answer.body
    assert [request.num_top_logprobs for request in engine.requests] == [None, None]


async def test_every_counted_token_has_an_entry_even_those_of_a_stop_string() -> None:
    async with serving(an_api_context(FakeEngine(scored_events("one. two")))) as api:
        answer = await api.client.chat.completions.create(
            model=MODEL, messages=HI, logprobs=True, stop=". t"
        )
    (choice,) = answer.choices
    assert choice.message.content == "one"
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert answer.usage is not None
    assert len(choice.logprobs.content) == answer.usage.completion_tokens == len("one. t")


def test_a_part_of_a_character_is_written_with_its_bytes() -> None:
    token_ids = CODEC.encode_prompt("😀")
    assert len(token_ids) > 1
    content = chat_logprobs(CODEC, scored(token_ids))["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in content) == "😀".encode()
    assert "".join(entry["token"] for entry in content) == r"\xf0\x9f\x98\x80"


def test_a_probability_of_zero_is_openais_least_one() -> None:
    token = ScoredToken(5, TokenLogprobs(-float("inf"), (5,), (-float("inf"),)))
    entry = chat_logprobs(CODEC, [token])["content"][0]
    assert entry["logprob"] == entry["top_logprobs"][0]["logprob"] == -9999.0


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<")), st.integers(0, 99)
)
def test_a_token_begins_at_its_offset_and_chunks_change_nothing(text: str, cut: int) -> None:
    token_ids = CODEC.encode_prompt(text)
    whole = CompletionLogprobs(CODEC).take(scored(token_ids))
    in_two = CompletionLogprobs(CODEC)
    parts = [in_two.take(scored(token_ids[:cut])), in_two.take(scored(token_ids[cut:]))]
    assert parts[0]["text_offset"] + parts[1]["text_offset"] == whole["text_offset"]
    for token_id, offset in zip(token_ids, whole["text_offset"], strict=True):
        content = CODEC.token_bytes(token_id)
        # The rest of a character that began in an earlier token comes first.
        assert content.lstrip(bytes(range(0x80, 0xC0))) in text[offset:].encode()
