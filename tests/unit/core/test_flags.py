"""A frozen class of settings is a command line: flags, kinds, defaults, texts and bounds."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipelineserve.errors import Fault
from pipelineserve.flags import faults_of_bounds, settings_from_flags


@dataclass(frozen=True, slots=True)
class Settings:
    """Of a server that does not exist."""

    folder: Path = field(metadata={"help": "folder that is served"})
    num_threads: int = field(default=4, metadata={"help": "threads that serve it"})
    pause_s: float = field(default=0.5, metadata={"help": "seconds between two looks"})
    name: str = field(default="", metadata={"help": "its name"})
    writes: bool = field(default=False, metadata={"help": "let clients write"})


def read(*flags: str) -> Settings:
    return settings_from_flags(Settings, flags, program="serve", description="Serve a folder.")


def test_defaults_hold_where_no_flag_is_given() -> None:
    assert read("--folder", "/a") == Settings(Path("/a"))


def test_each_flag_is_read_as_the_kind_of_its_field() -> None:
    flags = ("--num-threads", "2", "--pause-s", "1", "--name", "3", "--writes", "--folder=/b")
    assert read(*flags) == Settings(Path("/b"), 2, 1.0, "3", writes=True)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "required: --folder"),
        (("--folder=/a", "--threads=2"), "unrecognized arguments: --threads=2"),
        (("--folder=/a", "--num-threads=two"), "argument --num-threads: invalid int value: 'two'"),
        (("--folder=/a", "--num-thread=2"), "unrecognized arguments"),
        (("--folder=/a", "--writes=yes"), "argument --writes: ignored explicit argument"),
    ],
)
def test_what_cannot_be_read_is_named(
    flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read(*flags)
    assert said in capsys.readouterr().err


def test_help_shows_every_text_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("usage: serve ")
    assert "Serve a folder." in text
    assert "--num-threads NUM_THREADS threads that serve it (default: 4)" in text


def test_all_numbers_out_of_bounds_are_named_and_bounds_themselves_may_be() -> None:
    bounds = {"num_threads": (1, 1 << 34), "pause_s": (0.25, 2.0)}
    faults = faults_of_bounds(Settings(Path("/a"), num_threads=0, pause_s=2.5), bounds)
    assert faults == [
        Fault("num_threads", "expected 1 to 17179869184, got 0"),
        Fault("pause_s", "expected 0.25 to 2.0, got 2.5"),
    ]
    assert faults_of_bounds(Settings(Path("/a"), num_threads=1, pause_s=2.0), bounds) == []
