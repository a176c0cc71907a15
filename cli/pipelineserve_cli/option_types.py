"""What options of several commands have in common: types of values, and whole declarations."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
POSITIVE = click.FloatRange(min=0, min_open=True, max=1e9)
AT_LEAST_ONE = click.IntRange(min=1)


def json_option(text: str) -> Callable[[CommandT], CommandT]:
    """`--json`, as the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def chunk_tokens_option(text: str) -> Callable[[CommandT], CommandT]:
    """`--chunk-tokens` of a command that takes one chunk."""
    return click.option(
        "--chunk-tokens", default=512, show_default=True, type=AT_LEAST_ONE, help=text
    )
