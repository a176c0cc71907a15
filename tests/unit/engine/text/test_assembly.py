"""Text with stop strings, from tokens that end anywhere: what is streamed is the whole, cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_engine.text.assembly import TextAssembler
from pipelineserve_engine.text.tokenizer import HuggingFaceCodec
from small_tokenizers import a_byte_level_tokenizer, a_sentencepiece_tokenizer

CODECS = (
    HuggingFaceCodec(a_byte_level_tokenizer()),
    HuggingFaceCodec(a_sentencepiece_tokenizer()),
)
# Emoji of several code points, CJK, combining marks, letters on both sides of a merge.
TEXTS = st.lists(
    st.sampled_from(
        ["😀", "👩\u200d👩\u200d👧", "🇩🇪", "你", "好世界", "e\u0301", "a\u0308", "ab", "b", " "]
    ),
    max_size=12,
).map("".join)
STOPS = st.lists(TEXTS.filter(bool), max_size=3)


def pieces_of(codec: HuggingFaceCodec, text: str, stops: list[str]) -> list[str]:
    """What is shown with each token, and at the end."""
    assembler = TextAssembler(codec, stops)
    return [*map(assembler.push, codec.encode_prompt(text)), assembler.flush()]


def cut(text: str, stops: list[str]) -> str:
    """Up to the first stop string."""
    return text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]


@pytest.mark.parametrize("codec", CODECS, ids=["byte-level", "sentencepiece"])
@given(text=TEXTS, stops=STOPS)
def test_streamed_pieces_are_the_whole_text_up_to_the_first_stop_string(
    codec: HuggingFaceCodec, text: str, stops: list[str]
) -> None:
    pieces = pieces_of(codec, text, stops)
    assert "".join(pieces) == cut(text, stops)
    assert all("\ufffd" not in piece for piece in pieces)


@pytest.mark.parametrize("stop", ["😀你", "e\u0301", "👩\u200d👧", "好世"])
def test_a_stop_string_over_several_tokens_is_found_and_not_shown(stop: str) -> None:
    assembler = TextAssembler(CODECS[0], [stop])
    shown = "".join(assembler.push(token) for token in CODECS[0].encode_prompt(f"ab{stop}rest"))
    assert assembler.has_stopped
    assert shown == "ab"


def test_the_beginning_of_a_stop_string_that_never_comes_is_shown_at_the_end() -> None:
    pieces = pieces_of(CODECS[0], "ab😀", ["😀你"])
    assert (pieces[-1], "".join(pieces)) == ("😀", "ab😀")
