"""What is streamed is what decoding the whole gives."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelineserve_engine.text.detokenize import RELEASE_AT_TOKENS, Detokenizer
from pipelineserve_engine.text.tokenizer import HuggingFaceCodec, TokenDecoder
from small_tokenizers import LINES, a_byte_level_tokenizer, a_sentencepiece_tokenizer

BYTE_LEVEL = HuggingFaceCodec(a_byte_level_tokenizer())
SENTENCEPIECE = HuggingFaceCodec(a_sentencepiece_tokenizer())
FIRST_BYTE_PIECE = 3


def _stream(
    codec: TokenDecoder, token_ids: Sequence[int], context_ids: Sequence[int] = ()
) -> list[str]:
    detokenizer = Detokenizer(codec, context_ids)
    return [*map(detokenizer.push, token_ids), detokenizer.flush()]


def _ids_of_bytes(content: bytes) -> list[int]:
    """One byte-level token per byte."""
    alphabet = {
        BYTE_LEVEL._tokenizer.convert_tokens_to_ids(character): character
        for character in _byte_characters()
    }
    by_character = {character: token_id for token_id, character in alphabet.items()}
    return [by_character[_byte_characters()[byte]] for byte in content]


def _byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


@given(st.lists(st.integers(0, BYTE_LEVEL.vocabulary_size + 5), max_size=120))
def test_streams_the_whole_of_any_byte_level_tokens(token_ids: list[int]) -> None:
    assert "".join(_stream(BYTE_LEVEL, token_ids)) == BYTE_LEVEL.decode(token_ids)


@given(st.binary(max_size=120))
@example(b"\xe2\x82" * 60)
@example(b"\xff" * 100)
@example(b"\x82" * 50 + "€😀".encode() * 10)
@example(b"\xf0\x9f\x98" * 40 + b"A")
def test_streams_the_whole_of_any_bytes(content: bytes) -> None:
    token_ids = _ids_of_bytes(content)
    assert "".join(_stream(BYTE_LEVEL, token_ids)) == content.decode(errors="replace")


@given(st.text(max_size=60))
@example("".join(LINES))
@example("\ufffd\ufffd")
def test_streams_any_text_unchanged(text: str) -> None:
    token_ids = BYTE_LEVEL.encode_prompt(text)
    assert "".join(_stream(BYTE_LEVEL, token_ids)) == BYTE_LEVEL.decode(token_ids) == text


@given(st.text(alphabet="hello .!你😀é  ", max_size=80))
@example("é" * 60)
@example("   hello")
def test_streams_any_sentencepiece_text_unchanged(text: str) -> None:
    token_ids = SENTENCEPIECE.encode_prompt(text)
    assert "".join(_stream(SENTENCEPIECE, token_ids)) == SENTENCEPIECE.decode(token_ids)


@given(st.lists(st.integers(0, SENTENCEPIECE.vocabulary_size - 1), max_size=80))
def test_streams_any_sentencepiece_tokens_unless_their_bytes_are_invalid(
    token_ids: list[int],
) -> None:
    whole, streamed = SENTENCEPIECE.decode(token_ids), "".join(_stream(SENTENCEPIECE, token_ids))
    if "\ufffd" in whole:
        assert len(streamed) == len(whole)
    else:
        assert streamed == whole


@given(st.text(alphabet="hello .!你", min_size=1, max_size=40), st.data())
def test_a_continuation_joins_its_prompt(text: str, data: st.DataObject) -> None:
    token_ids = SENTENCEPIECE.encode_prompt(text)
    cut = data.draw(st.integers(0, len(token_ids)))
    prompt_ids, output_ids = token_ids[:cut], token_ids[cut:]
    joined = SENTENCEPIECE.decode(prompt_ids).rstrip("\ufffd") + "".join(
        _stream(SENTENCEPIECE, output_ids, prompt_ids)
    )
    assert joined == SENTENCEPIECE.decode(token_ids)


def test_a_character_spread_over_tokens_is_held_back_until_it_is_whole() -> None:
    assert _stream(BYTE_LEVEL, _ids_of_bytes("😀".encode())) == ["", "", "", "😀", ""]


def test_bytes_that_never_become_a_character_come_out_at_the_end() -> None:
    assert _stream(BYTE_LEVEL, _ids_of_bytes(b"a\xf0\x9f")) == ["a", "", "", "\ufffd"]


def test_a_word_after_a_prompt_keeps_its_space_and_a_first_word_has_none() -> None:
    hello = SENTENCEPIECE.encode_prompt("hello")
    assert "".join(_stream(SENTENCEPIECE, hello)) == "hello"
    assert "".join(_stream(SENTENCEPIECE, hello, hello)) == " hello"


def test_special_and_unknown_tokens_have_no_text() -> None:
    reserved = BYTE_LEVEL._tokenizer.convert_tokens_to_ids("<|reserved|>")
    hidden = [reserved, BYTE_LEVEL.vocabulary_size, *BYTE_LEVEL.stop_token_ids]
    assert _stream(BYTE_LEVEL, hidden) == [""] * 4


class _Recorder:
    """Notes how many tokens each decode covers."""

    def __init__(self) -> None:
        self.longest = 0

    def decode(self, token_ids: Sequence[int]) -> str:
        self.longest = max(self.longest, len(token_ids))
        return BYTE_LEVEL.decode(token_ids)

    def is_shown(self, token_id: int) -> bool:
        return BYTE_LEVEL.is_shown(token_id)


@pytest.mark.parametrize("content", [b"word " * 200, b"\xff" * 1000, "你好".encode() * 100])
def test_no_decode_grows_with_the_output(content: bytes) -> None:
    recorder = _Recorder()
    _stream(recorder, _ids_of_bytes(content))
    assert recorder.longest <= RELEASE_AT_TOKENS
