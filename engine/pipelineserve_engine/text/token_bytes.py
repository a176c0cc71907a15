"""The bytes that each token stands for, also where they are only part of a character."""

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WORD_START = "\u2581"


def byte_reader(backend: Any) -> Callable[[str], bytes]:
    """How this tokenizer writes bytes in the names of its tokens: a function from name to bytes.

    Args:
        backend: of the tokenizers library.

    Two families are known, byte-level and byte fallback; a name of any other is its own text.
    """
    decoder = json.loads(backend.to_str())["decoder"] or {}
    kinds = {part["type"] for part in decoder.get("decoders", [decoder]) if "type" in part}
    if "ByteLevel" in kinds:
        return _read_byte_level
    if "ByteFallback" in kinds:
        return _read_byte_fallback
    return lambda name: name.encode()


@cache
def byte_level_alphabet() -> dict[str, int]:
    """The character that stands for each byte in byte-level vocabularies.

    Printable characters of Latin-1 stand for their own code; the other bytes, in order, have the
    characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + place): byte for place, byte in enumerate(others)}


def _read_byte_level(name: str) -> bytes:
    alphabet = byte_level_alphabet()
    if not all(character in alphabet for character in name):
        return name.encode()
    return bytes(alphabet[character] for character in name)


def _read_byte_fallback(name: str) -> bytes:
    if (piece := _BYTE_PIECE.fullmatch(name)) is not None:
        return bytes([int(piece[1], 16)])
    return name.replace(_WORD_START, " ").encode()
