"""Bodies ask for what was planned, and are the same every time."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load_builders import plan_of
from pipelineserve.errors import InvalidInputError
from pipelineserve.load.prompts import (
    ChatPrompt,
    Prompt,
    SyntheticBlock,
    SyntheticPrompt,
    TextPrompt,
)
from pipelineserve_cli.load.bodies import (
    BodySettings,
    Endpoint,
    body_of,
    default_endpoint,
    require_endpoint,
)
from pipelineserve_cli.load.plan import LoadPlan, PlannedRequest

COMPLETIONS = BodySettings("org/m", Endpoint.COMPLETIONS, ignores_eos=True, vocabulary_size=50)
CHAT = replace(COMPLETIONS, endpoint=Endpoint.CHAT, ignores_eos=False)
MESSAGES = ({"role": "user", "content": "Hi"},)


def request_of(prompt: Prompt) -> PlannedRequest:
    return PlannedRequest(0, 0.0, prompt, 5)


def sent(prompt: Prompt, settings: BodySettings = COMPLETIONS) -> Any:
    return json.loads(body_of(request_of(prompt), settings))


def synthetic(**sizes: int) -> SyntheticPrompt:
    return SyntheticPrompt(tuple(SyntheticBlock(key, size) for key, size in sizes.items()))


def plan_with(prompt: Prompt) -> LoadPlan:
    return replace(plan_of([0.0]), requests=(request_of(prompt),))


def test_a_completion_asks_for_a_stream_with_usage_and_all_of_its_tokens() -> None:
    assert sent(TextPrompt("Hello")) == {
        "model": "org/m",
        "prompt": "Hello",
        "max_tokens": 5,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }


def test_the_extension_is_left_out_when_not_wanted() -> None:
    assert "ignore_eos" not in sent(TextPrompt("Hello"), replace(COMPLETIONS, ignores_eos=False))


@given(st.integers(1, 300), st.integers(1, 1000))
def test_made_up_prompts_have_exactly_their_tokens_all_in_the_vocabulary(
    num_tokens: int, vocabulary_size: int
) -> None:
    settings = replace(COMPLETIONS, vocabulary_size=vocabulary_size)
    token_ids = sent(synthetic(a=num_tokens), settings)["prompt"]
    assert len(token_ids) == num_tokens
    assert all(0 <= token_id < vocabulary_size for token_id in token_ids)


def test_equal_blocks_are_equal_tokens_and_others_are_not() -> None:
    one, other = (sent(synthetic(**sizes))["prompt"] for sizes in ({"a": 64, "b": 8}, {"a": 64}))
    assert one[:64] == other
    assert sent(synthetic(c=64))["prompt"] != other


def test_a_made_up_chat_has_as_many_words() -> None:
    (message,) = sent(synthetic(a=40, b=2), CHAT)["messages"]
    assert message["role"] == "user"
    assert len(message["content"].split()) == 42


def test_texts_and_conversations_are_sent_as_they_are() -> None:
    assert sent(ChatPrompt(MESSAGES), CHAT)["messages"] == list(MESSAGES)
    assert sent(TextPrompt("Hi"), CHAT)["messages"] == list(MESSAGES)


def test_conversations_go_to_the_chat_endpoint_only() -> None:
    plan = plan_with(ChatPrompt(MESSAGES))
    assert default_endpoint(plan) is Endpoint.CHAT
    require_endpoint(plan, Endpoint.CHAT)
    with pytest.raises(InvalidInputError, match="--endpoint: got completions"):
        require_endpoint(plan, Endpoint.COMPLETIONS)


@pytest.mark.parametrize("prompt", [TextPrompt("a"), synthetic(a=1)])
def test_anything_else_may_go_to_either_and_goes_to_completions(prompt: Prompt) -> None:
    plan = plan_with(prompt)
    assert default_endpoint(plan) is Endpoint.COMPLETIONS
    for endpoint in Endpoint:
        require_endpoint(plan, endpoint)
