"""Manifests on disk."""

from pathlib import Path

from pipelineserve.api import PipelineServe, parse_resource
from pipelineserve.errors import Fault, InvalidInputError


def read_resource(path: Path) -> PipelineServe:
    """The one PipelineServe of a manifest.

    Raises:
        InvalidInputError: the file cannot be read, or is no valid manifest.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        found = f"{error.object[error.start]:#04x} at byte {error.start}"
        fault = Fault("", f"expected UTF-8 text, got {found}; save it as UTF-8")
        raise InvalidInputError(str(path), [fault]) from error
    except OSError as error:
        fault = Fault("", f"cannot be read: {error.strerror}")
        raise InvalidInputError(str(path), [fault]) from error
    return parse_resource(text, str(path))
