"""The public traces that experiments can be run on, beside the fits to them that are shipped."""

import hashlib
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.load.row_files import RowFile, read_rows

_NAMES = (
    "AzureLLMInferenceTrace_conv_2023.csv.gz",
    "AzureLLMInferenceTrace_conv_2023.csv",
    "AzureLLMInferenceTrace_conv.csv",
)


class Source(Enum):
    """Where lengths and times of Azure's conversation trace come from."""

    FITTED = "fitted"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class TraceFile:
    """Azure's conversation trace of 2023.

    Attributes:
        digest: of its bytes, for results that depend on it.
    """

    path: Path
    digest: str

    @property
    def rows(self) -> RowFile:
        """Read once in a process."""
        return _rows(self.path)


def find_trace(folder: Path) -> TraceFile:
    """Azure's conversation trace in a folder.

    Raises:
        InvalidInputError: there is none, or it cannot be read as one.
    """
    path = next((folder / name for name in _NAMES if (folder / name).is_file()), None)
    if path is None:
        text = f'"{folder}" holds none of {", ".join(_NAMES)}; expected the public trace there'
        raise InvalidInputError("the folder of traces", [Fault("--traces", text)])
    _rows(path)
    return TraceFile(path, hashlib.sha256(path.read_bytes()).hexdigest())


@cache
def _rows(path: Path) -> RowFile:
    return read_rows(path)
