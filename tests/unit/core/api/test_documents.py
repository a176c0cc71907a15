"""YAML text becomes JSON documents, or faults with a line."""

import pytest

from pipelineserve.api.documents import MAX_DEPTH, MAX_TEXT_BYTES, read_documents


def faults_of(text: str) -> list[str]:
    read = read_documents(text)
    found = [fault for document in read.documents for fault in document.faults]
    return [str(fault) for fault in (*found, *read.faults)]


def value_of(text: str) -> object:
    assert faults_of(text) == []
    return read_documents(text).documents[0].value


def test_reads_what_json_can_say() -> None:
    text = '{"a": [1, -2, 0.5, true, null, "x"], "b": {}}'
    assert value_of(text) == {"a": [1, -2, 0.5, True, None, "x"], "b": {}}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("Off", False),
        ("yes", True),
        ("~", None),
        ("2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z"),
        ("12:30", "12:30"),
        ("0123", "0123"),
        ("0x1F", "0x1F"),
        ("1e3", 1000.0),
        (".inf", ".inf"),
        ('"4"', "4"),
        ("!!str 4", "4"),
        ("! 4", "4"),
        (r'"\ud83d\ude00"', "😀"),
    ],
)
def test_reads_a_word_without_surprise(word: str, value: object) -> None:
    assert value_of(f"a: {word}") == {"a": value}


def test_joins_nothing_of_separate_documents_and_skips_empty_ones() -> None:
    read = read_documents("---\na: 1\n---\n# nothing\n---\nb: 2\n")
    assert [document.value for document in read.documents] == [{"a": 1}, {"b": 2}]
    assert [document.place for document in read.documents] == [
        "line 2, column 1",
        "line 6, column 1",
    ]


def test_names_the_line_of_a_syntax_error_and_keeps_earlier_documents() -> None:
    read = read_documents("a: 1\n---\nb: [1\nc: 2\n")
    assert [document.value for document in read.documents] == [{"a": 1}]
    assert [fault.field for fault in read.faults] == ["line 4, column 2"]


def test_refuses_a_key_given_twice() -> None:
    assert faults_of("spec:\n  a: 1\n  b: {a: 1}\n  a: 2\n") == [
        "spec.a: given twice; keep one of the two (line 4, column 3)"
    ]


def test_refuses_aliases() -> None:
    (fault,) = faults_of("a: &x [1]\nb: [*x]\n")
    assert fault == "b[0]: aliases (*x) are refused; write the value out (line 2, column 5)"


@pytest.mark.parametrize("value", ["!!python/name:os.system x", "!!set {a}", "!own [1]", "!!int x"])
def test_refuses_tags(value: str) -> None:
    (fault,) = faults_of(f"a: {value}\n")
    assert fault.startswith("a: the tag ")
    assert "is refused" in fault


def test_refuses_a_key_that_is_not_text() -> None:
    assert faults_of("a: {1: b}\n") == [
        "a: expected a text as key, got the integer 1; put it in quotes (line 1, column 5)"
    ]


def test_refuses_a_number_beyond_64_bits() -> None:
    faults = faults_of(f"a: {'9' * 5000}\nb: 1e999\n")
    assert [fault.partition(" (")[0] for fault in faults] == [
        "a: expected a number of 64 bits; put it in quotes if it is text",
        "b: expected a number of 64 bits; put it in quotes if it is text",
    ]


def test_refuses_half_a_surrogate_pair() -> None:
    (fault,) = faults_of(r'a: "\ud83d"')
    assert fault.startswith("a: expected text, got half a surrogate pair")


def test_refuses_a_document_that_is_too_deep() -> None:
    depth = MAX_DEPTH + 2
    (fault,) = faults_of("[" * depth + "]" * depth)
    assert "expected at most 32 levels" in fault


def test_refuses_a_deep_text_that_never_ends() -> None:
    (fault,) = faults_of("[" * 100_000)
    assert "expected at most 32 levels" in fault


def test_refuses_a_text_that_is_too_long() -> None:
    (fault,) = faults_of("#" * (MAX_TEXT_BYTES + 1))
    assert fault == "expected at most 262144 bytes, got 262145; split the file"


@pytest.mark.parametrize("text", ["\x00", r'"\UFFFFFFFF"', r'"\U00110000"', "%YAML 9.9\n--- a"])
def test_reports_text_that_the_parser_cannot_take(text: str) -> None:
    (fault,) = faults_of(text)
    assert "expected YAML, got text that is not" in fault
