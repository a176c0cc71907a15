"""Typed access to the key-value part of a GGUF file."""

from pathlib import Path

import numpy as np
from gguf import GGUFReader

from pipelineserve.errors import ModelUnavailableError


def open_gguf(path: Path) -> GGUFReader:
    """Map the file into memory and read its metadata.

    Raises:
        ModelUnavailableError: it is not a whole GGUF file.
    """
    try:
        return GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError) as error:
        raise ModelUnavailableError(
            f"{path.name} is not a readable GGUF file ({error}). Expected a complete GGUF file of "
            "version 2 or 3. Fetch it again, or name another file."
        ) from error


class GgufMetadata:
    """Values by key; a missing or mistyped one raises ModelUnavailableError that names the key."""

    def __init__(self, reader: GGUFReader, name: str) -> None:
        self._reader = reader
        self.name = name
        self.architecture = self._required_text("general.architecture")

    def setting(self, key: str, default: int | None = None) -> int:
        """An integer of the model's architecture, such as `embedding_length`."""
        full_key = f"{self.architecture}.{key}"
        value = self.optional_integer(full_key)
        if value is None:
            value = default
        if value is None:
            raise self._fault(full_key, None, "an integer")
        return value

    def number_setting(self, key: str, default: float | None = None) -> float:
        """A float32 of the architecture, as the shortest decimal that means the same float32."""
        full_key = f"{self.architecture}.{key}"
        value = self._contents(full_key)
        if value is None:
            value = default
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._fault(full_key, value, "a number")
        return float(str(np.float32(value)))

    def optional_integer(self, key: str) -> int | None:
        """The integer under the full key, or None."""
        value = self._contents(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise self._fault(key, value, "an integer")
        return value

    def optional_text(self, key: str) -> str | None:
        """The string under the full key, or None."""
        value = self._contents(key)
        if value is not None and not isinstance(value, str):
            raise self._fault(key, value, "a string")
        return value

    def _required_text(self, key: str) -> str:
        if (value := self.optional_text(key)) is None:
            raise self._fault(key, None, "a string")
        return value

    def _contents(self, key: str) -> object:
        field = self._reader.get_field(key)
        contents: object = None if field is None else field.contents()
        return contents

    def _fault(self, key: str, value: object, expected: str) -> ModelUnavailableError:
        got = "nothing" if value is None else repr(value)[:80]
        return ModelUnavailableError(
            f"{self.name}: the GGUF metadata has {got} under {key!r}, expected {expected}. "
            "Use another file, or the model's original checkpoint with hf://organisation/name."
        )
