"""Paths of fields as faults show them: `spec.engine.args[2]`, `metadata.labels["a.b/c"]`."""

import json
import re

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SHOWN_KEY_CHARACTERS = 64


def join(path: str, part: str | int) -> str:
    """One level below `path`: an index in brackets, a key after a dot or quoted in brackets."""
    if isinstance(part, int):
        return f"{path}[{part}]"
    if not _PLAIN_KEY.fullmatch(part):
        return f"{path}[{json.dumps(shortened(part, _SHOWN_KEY_CHARACTERS))}]"
    return f"{path}.{part}" if path else part


def join_all(*parts: str | int) -> str:
    """The path from the document's root through `parts`."""
    path = ""
    for part in parts:
        path = join(path, part)
    return path


def overlap(one: str, other: str) -> bool:
    """Whether the paths are the same or one lies below the other."""
    return one == other or _is_below(one, other) or _is_below(other, one)


def shortened(text: str, limit: int) -> str:
    """`text` of at most `limit` characters, with an ellipsis where it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _is_below(path: str, ancestor: str) -> bool:
    return not ancestor or path.startswith((f"{ancestor}.", f"{ancestor}["))
