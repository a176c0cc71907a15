"""Files of requests are told apart by their content; faulty rows are named, all at once."""

import gzip
from pathlib import Path

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve.load.prompts import ChatPrompt, TextPrompt
from pipelineserve.load.row_files import Row, RowFile, read_rows

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9305900,396,0\r\n"
)


def read(folder: Path, text: str, name: str = "rows") -> RowFile:
    path = folder / name
    path.write_text(text, newline="")
    return read_rows(path)


def faults_of(folder: Path, text: str) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read(folder, text)
    return [str(fault) for fault in caught.value.faults]


def test_reads_an_azure_trace(tmp_path: Path) -> None:
    file = read(tmp_path, AZURE, "azure.csv")
    assert file.rows == (Row(0, 0.0, 374, 44), Row(1, 4.25, 396, 0))
    assert file.has_times
    assert file.name == "azure.csv"


def test_reads_a_mooncake_trace(tmp_path: Path) -> None:
    line = '{"timestamp": %d, "input_length": 600, "output_length": 5, "hash_ids": [0, %d]}\n'
    file = read(tmp_path, line % (1000, 1) + line % (1500, 2))
    assert file.rows == (Row(0, 0.0, 600, 5, (0, 1)), Row(1, 0.5, 600, 5, (0, 2)))


def test_reads_lengths(tmp_path: Path) -> None:
    file = read(tmp_path, "prompt_tokens,output_tokens\n10,2\n20,3\n")
    assert file.rows == (Row(0, None, 10, 2), Row(1, None, 20, 3))
    assert not file.has_times
    assert read(tmp_path, "input_tokens,output_tokens\n10,2\n20,3\n").rows == file.rows


def test_reads_prompts_and_conversations(tmp_path: Path) -> None:
    file = read(tmp_path, '{"prompt": "Hello", "output_tokens": 4}\n\n{"prompt": "You"}\n')
    assert file.rows == (
        Row(0, output_tokens=4, prompt=TextPrompt("Hello")), Row(1, prompt=TextPrompt("You"))
    )  # fmt: skip
    message = {"role": "user", "content": "Hi"}
    chats = read(tmp_path, '{"messages": [{"role": "user", "content": "Hi"}]}')
    assert chats.rows == (Row(0, prompt=ChatPrompt((message,))),)


def test_unpacks_gzip(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv.gz"
    path.write_bytes(gzip.compress(AZURE.encode()))
    assert len(read_rows(path).rows) == 2


def test_puts_rows_into_the_order_of_time_and_keeps_their_numbers(tmp_path: Path) -> None:
    file = read(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n7.5,1,1\n5,2,2\n")
    assert [(row.index, row.at_s) for row in file.rows] == [(1, 0.0), (0, 2.5)]


def test_names_every_faulty_row(tmp_path: Path) -> None:
    faults = faults_of(tmp_path, "prompt_tokens,output_tokens\n1,2\n0,2\n5,x\n5\n")
    assert [fault.partition(":")[0] for fault in faults] == ["line 3", "line 4", "line 5"]
    assert "prompt_tokens: expected a whole number from 1, got '0'" in faults[0]
    assert "output_tokens: expected a number, got 'x'" in faults[1]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("prompt_tokens,output_tokens\n", "has no rows"),
        ("prompt_tokens,output_tokens\n1,2,3\n", "line 2: expected as many cells as the header"),
        ('prompt_tokens,output_tokens\n1,"' + "2" * 200_000 + '"\n', "line 2 is no CSV"),
        ("a,b\n1,2\n", "lacks 'prompt_tokens'; expected the columns TIMESTAMP"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,1\n", "expected seconds or a date"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnan,1,1\n", "expected seconds or a date"),
        ('{"prompt": ""}', 'expected "prompt" to be a text'),
        ('{"messages": []}', 'expected "messages" to be a list'),
        ('{"prompt": "a", "output_tokens": 0}', "output_tokens: expected a whole number from 1"),
        ('{"prompt": "a"}\n[1]\n', "expected a JSON object"),
        ('{"prompt": "a"', "line 1"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": ["a"]}', "hash_ids"),
        ('{"timestamp": 0, "input_length": true, "output_length": 1}', "got True"),
        (
            '{"prompt": "a"}\n{"timestamp": 0, "input_length": 1, "output_length": 1}',
            "mixes rows of different formats",
        ),
    ],
)
def test_says_what_is_wrong_with_a_file(tmp_path: Path, text: str, part: str) -> None:
    assert part in " ".join(faults_of(tmp_path, text))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(b"\xff\xfe not gzip")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_rows(path)


def test_a_file_that_unpacks_to_more_than_the_bound_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelineserve.load.row_files._LARGEST_BYTES", len(AZURE))
    assert len(read(tmp_path, AZURE).rows) == 2
    path = tmp_path / "azure.csv.gz"
    path.write_bytes(gzip.compress((AZURE + "\n").encode()))
    with pytest.raises(InvalidInputError, match="unpacked; split it"):
        read_rows(path)
