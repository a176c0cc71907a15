"""Each token's bytes: joined, they are the text, wherever tokens cut its characters."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from pipelineserve_engine.text.token_bytes import byte_level_alphabet
from pipelineserve_engine.text.tokenizer import HuggingFaceCodec
from small_tokenizers import a_byte_level_tokenizer, a_sentencepiece_tokenizer

BYTE_LEVEL = HuggingFaceCodec(a_byte_level_tokenizer())
SENTENCEPIECE = HuggingFaceCodec(a_sentencepiece_tokenizer())
# Special tokens written as text would be taken for themselves.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<\u2581"))


def joined(codec: HuggingFaceCodec, token_ids: tuple[int, ...]) -> bytes:
    return b"".join(codec.token_bytes(i) for i in token_ids if codec.is_shown(i))


@given(TEXTS)
def test_the_bytes_of_a_byte_level_tokens_are_the_texts(text: str) -> None:
    assert joined(BYTE_LEVEL, BYTE_LEVEL.encode_prompt(text)) == text.encode()


@given(TEXTS)
def test_the_bytes_of_sentencepiece_tokens_are_the_texts_after_its_leading_space(
    text: str,
) -> None:
    expected = f" {text}" if text else ""
    assert joined(SENTENCEPIECE, SENTENCEPIECE.encode_prompt(text)) == expected.encode()


def test_the_alphabet_is_that_of_the_tokenizers_library() -> None:
    assert set(byte_level_alphabet()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_level_alphabet().values()) == list(range(256))


@pytest.mark.parametrize("tokenizer", [a_byte_level_tokenizer(), a_sentencepiece_tokenizer()])
def test_special_tokens_are_written_as_they_are_called(tokenizer: Any) -> None:
    codec = HuggingFaceCodec(tokenizer)
    assert codec.token_bytes(tokenizer.eos_token_id) == tokenizer.eos_token.encode()


def test_an_added_token_is_its_own_text() -> None:
    tokenizer = a_byte_level_tokenizer()
    codec = HuggingFaceCodec(tokenizer)
    assert codec.token_bytes(tokenizer.convert_tokens_to_ids("<think>")) == b"<think>"


@pytest.mark.parametrize("codec", [BYTE_LEVEL, SENTENCEPIECE])
def test_an_id_outside_the_vocabulary_has_no_bytes(codec: HuggingFaceCodec) -> None:
    assert codec.token_bytes(codec.vocabulary_size) == b""
