"""What a stage host refuses before it dials anybody."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelineserve_engine.stage_host import main, parse_flags


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


def flags(key_file: Path, leader: str = "127.0.0.1:7600") -> list[str]:
    return [
        *(f"--leader={leader}", "--stage-index=1", "--address=127.0.0.2"),
        *("--model-folder=model", f"--group-key-file={key_file}"),
    ]


@pytest.mark.parametrize("leader", ["127.0.0.1", ":7600", "host:", "host:x", "host:0", "h:65536"])
def test_a_malformed_leader_is_one_message_and_exit_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], leader: str
) -> None:
    key_file = tmp_path / "key"
    key_file.write_bytes(b"k" * 32)
    key_file.chmod(0o600)
    assert main(flags(key_file, leader)) == 1
    message = capsys.readouterr().err
    assert f"leader: expected HOST:PORT like 10.0.0.7:7600, got {leader}" in message
    assert "Traceback" not in message


def test_a_key_that_keeps_no_secret_is_one_message_and_exit_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key_file = tmp_path / "key"
    key_file.write_bytes(b"short")
    key_file.chmod(0o600)
    assert main(flags(key_file)) == 1
    assert "holds 5 bytes, expected 32 to 4096" in capsys.readouterr().err


def test_a_missing_flag_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--leader=h:1"])
    assert ended.value.code == 2
    assert "--stage-index" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "stage_index"),
    [
        ([], 1),
        (["--host-index=0", "--stages-per-host=2"], 1),
        (["--host-index=2", "--stages-per-host=2"], 5),
        (["--host-index=2"], 3),
    ],
)
def test_a_host_index_counts_whole_hosts_before_the_stage(
    tmp_path: Path, more: list[str], stage_index: int
) -> None:
    assert parse_flags([*flags(tmp_path / "key"), *more]).stage_index == stage_index
