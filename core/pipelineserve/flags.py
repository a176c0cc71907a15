"""Settings of a process: a frozen class whose fields are the command line's flags.

Each field is a flag of its name with hyphens, and has a text under `help` in its metadata. One
without a default is required; one that is true or false is a switch.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from pipelineserve.errors import Fault


class _Dataclass(Protocol):
    """What every instance of a dataclass has."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


_Settings = TypeVar("_Settings", bound=_Dataclass)
_KINDS: Mapping[str, Callable[[str], object]] = {
    "int": int,
    "float": float,
    "str": str,
    "Path": Path,
}


def settings_from_flags(
    kind: type[_Settings], arguments: Sequence[str], *, program: str, description: str
) -> _Settings:
    """Read settings from a command line.

    Args:
        kind: the settings' class, with fields of int, float, str, Path and bool.
        arguments: without the program's name.
        program: as people call it.
        description: what it does, for `--help`.

    Raises:
        SystemExit: an unknown flag or a malformed number, named on stderr (argparse).
    """
    parser = argparse.ArgumentParser(
        prog=program,
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    for entry in fields(kind):
        _add_flag(parser, entry)
    return kind(**vars(parser.parse_args(arguments)))


def faults_of_bounds(
    settings: _Dataclass, bounds: Mapping[str, tuple[float, float]]
) -> list[Fault]:
    """Numbers below the least or above the most that they may be, by the field's name."""
    return [
        Fault(name, f"expected {low} to {high}, got {value}")
        for name, (low, high) in bounds.items()
        if not low <= (value := getattr(settings, name)) <= high
    ]


def _add_flag(parser: argparse.ArgumentParser, entry: "Field[Any]") -> None:
    flag, text = f"--{entry.name.replace('_', '-')}", entry.metadata["help"]
    kind = entry.type if isinstance(entry.type, str) else entry.type.__name__
    if kind == "bool":
        parser.add_argument(flag, action="store_true", help=text)
    elif entry.default is MISSING:
        parser.add_argument(flag, type=_KINDS[kind], required=True, help=text)
    else:
        parser.add_argument(flag, type=_KINDS[kind], default=entry.default, help=text)
