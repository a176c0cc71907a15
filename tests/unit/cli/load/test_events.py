"""Events come out of bytes however they were cut, and say what OpenAI's chunks say."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_cli.load.events import (
    Event,
    EventDecoder,
    MalformedStreamError,
    Piece,
    StreamEnd,
    StreamFault,
    Usage,
    read_event,
)

TEXTS = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(bounds)]


@given(TEXTS, st.lists(st.integers(0, 10_000)), st.sampled_from(["\n", "\r\n"]))
def test_any_cut_gives_the_same_events(texts: list[str], places: list[int], end: str) -> None:
    stream = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    decoder = EventDecoder()
    events = [event for part in cut(stream, places) for event in decoder.feed(part)]
    assert events == texts


def test_comments_and_other_fields_are_passed_over() -> None:
    stream = b": keep-alive\n\nevent: chunk\nid: 7\ndata:a\ndata: b\nretry: 5\n\n"
    assert EventDecoder().feed(stream) == ["a\nb"]


def test_an_event_without_its_end_is_no_event() -> None:
    assert EventDecoder().feed(b"data: a\n\ndata: b\n") == ["a"]


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    decoder = EventDecoder()
    for _ in range(8):
        assert decoder.feed(b"x" * 1024 * 1024) == []
    with pytest.raises(MalformedStreamError, match="longer than 8 MiB"):
        decoder.feed(b"x")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(MalformedStreamError, match="not UTF-8"):
        EventDecoder().feed(b"data: \xff\n\n")


def chunk(choice: object, **fields: object) -> str:
    return json.dumps({"choices": [choice], **fields})


@pytest.mark.parametrize(
    ("data", "event"),
    [
        ("[DONE]", StreamEnd()),
        (chunk({"text": "a", "finish_reason": None}), Piece("a")),
        (chunk({"text": "", "finish_reason": "stop"}), Piece("", "stop")),
        (chunk({"delta": {"role": "assistant"}}), Piece()),
        (chunk({"delta": {"content": "a"}}), Piece("a")),
        (chunk({"delta": {"content": None, "reasoning_content": "hm"}}), Piece("hm")),
        (chunk({"delta": {"content": "a"}}, usage=None), Piece("a")),
        (
            json.dumps({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}),
            Piece(usage=Usage(3, 4)),
        ),
        ('{"error": {"message": "broken", "type": "x"}}', StreamFault("broken")),
        ('{"error": "broken"}', StreamFault("broken")),
    ],
)
def test_reads_every_kind_of_event(data: str, event: Event) -> None:
    assert read_event(data) == event


@pytest.mark.parametrize("data", ["hello", "{}", "[1]", '{"choices": null}'])
def test_what_openai_does_not_send_is_refused(data: str) -> None:
    with pytest.raises(MalformedStreamError, match="an event"):
        read_event(data)
