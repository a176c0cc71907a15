"""Writes a safetensors file piece by piece, so that no whole tensor need be in memory.

The format: the header's length (8 bytes, little endian), a JSON header that maps each name to its
dtype, shape and byte range, then the bytes of all tensors in the header's order.
"""

import json
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Float32Array = npt.NDArray[np.float32]

_ALIGNMENT_BYTES = 8


@dataclass(frozen=True, slots=True)
class StreamedTensor:
    """A float32 tensor whose values come in pieces, in row-major order."""

    name: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[Float32Array]]

    @property
    def num_bytes(self) -> int:
        """Size in the file."""
        return 4 * math.prod(self.shape)


def write_safetensors(
    path: Path, tensors: Sequence[StreamedTensor], on_written: Callable[[int], None]
) -> None:
    """Write all tensors; `on_written` is called with the bytes of each piece.

    Raises:
        ValueError: a tensor's pieces are not as long as its shape says.
    """
    with path.open("wb") as file:
        file.write(_header(tensors))
        for tensor in tensors:
            written_bytes = 0
            for piece in tensor.pieces():
                written_bytes += file.write(np.ascontiguousarray(piece, dtype="<f4").tobytes())
                on_written(piece.size * 4)
            if written_bytes != tensor.num_bytes:
                raise ValueError(
                    f"{tensor.name}: {written_bytes} bytes for the shape {tensor.shape}, "
                    f"expected {tensor.num_bytes}"
                )


def _header(tensors: Sequence[StreamedTensor]) -> bytes:
    # transformers asks for the metadata's "format" before it loads a file.
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset_bytes = 0
    for tensor in tensors:
        end_bytes = offset_bytes + tensor.num_bytes
        header[tensor.name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [offset_bytes, end_bytes],
        }
        offset_bytes = end_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    return struct.pack("<Q", len(text)) + text
