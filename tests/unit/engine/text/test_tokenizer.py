"""Encoding of chats and prompts with a model's own files."""

import json
from pathlib import Path

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve_engine.text.tokenizer import ChatMessage, HuggingFaceCodec, load_codec
from small_tokenizers import a_byte_level_tokenizer

HI = ChatMessage("user", "Hi")


def test_a_chat_ends_where_the_assistant_begins() -> None:
    tokenizer = a_byte_level_tokenizer()
    token_ids = HuggingFaceCodec(tokenizer).encode_chat([HI])
    assert tokenizer.decode(token_ids) == "<|turn|>user\nHi<|end|><|turn|>assistant\n"
    assert token_ids[0] == tokenizer.convert_tokens_to_ids("<|turn|>")


def test_a_template_that_refuses_names_messages_and_says_why() -> None:
    with pytest.raises(InvalidInputError, match="unknown role") as refused:
        HuggingFaceCodec(a_byte_level_tokenizer()).encode_chat([ChatMessage("judge", "Hi")])
    assert refused.value.faults[0].field == "messages"


def test_a_model_without_a_template_points_to_completions() -> None:
    with pytest.raises(InvalidInputError, match="/v1/completions"):
        HuggingFaceCodec(a_byte_level_tokenizer(chat_template=None)).encode_chat([HI])


def test_the_name_of_a_message_reaches_the_template() -> None:
    tokenizer = a_byte_level_tokenizer("{{ messages[0].name }}:{{ messages[0].content }}")
    codec = HuggingFaceCodec(tokenizer)
    assert codec.decode(codec.encode_chat([ChatMessage("user", "Hi", name="al")])) == "al:Hi"


def test_a_prompt_is_not_cut_by_a_limit_in_the_tokenizers_file() -> None:
    tokenizer = a_byte_level_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(4)
    codec = HuggingFaceCodec(tokenizer)
    assert codec.decode(codec.encode_prompt("a long prompt" * 9)) == "a long prompt" * 9


@pytest.mark.parametrize(
    ("eos", "expected"),
    [(None, {"<|end|>"}), (2, {"<|end|>", "<|reserved|>"}), ([0], {"<|turn|>", "<|end|>"})],
)
def test_stop_ids_are_the_tokenizers_and_the_generation_configs(
    tmp_path: Path, eos: int | list[int] | None, expected: set[str]
) -> None:
    tokenizer = a_byte_level_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    if eos is not None:
        config = {"eos_token_id": eos}
        (tmp_path / "generation_config.json").write_text(json.dumps(config), encoding="utf-8")
    names = set(tokenizer.convert_ids_to_tokens(sorted(load_codec(tmp_path).stop_token_ids)))
    assert names == expected


def test_a_codec_read_from_files_decodes_what_it_encodes(tmp_path: Path) -> None:
    a_byte_level_tokenizer().save_pretrained(tmp_path)
    codec = load_codec(tmp_path)
    assert codec.decode(codec.encode_prompt("naïve 😀 <think>")) == "naïve 😀 <think>"
    assert codec.encode_chat([HI]) == HuggingFaceCodec(a_byte_level_tokenizer()).encode_chat([HI])
