"""GGUF tensors as float32 tensors under transformers' names, one piece of rows at a time."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from gguf import ReaderTensor, dequantize

from pipelineserve.errors import ModelUnavailableError
from pipelineserve_engine.models.gguf_architectures import (
    MODEL_TENSORS,
    OUTPUT_TENSOR,
    Architecture,
    num_heads,
)
from pipelineserve_engine.models.gguf_metadata import GgufMetadata
from pipelineserve_engine.models.safetensors_writer import Float32Array, StreamedTensor

_PIECE_BYTES = 16 * 1024 * 1024


def converted_tensors(
    architecture: Architecture, metadata: GgufMetadata, tensors: Sequence[ReaderTensor]
) -> list[StreamedTensor]:
    """Every tensor of the model, under its new name; nothing is read yet.

    Raises:
        ModelUnavailableError: a tensor that the architecture needs is missing, or one is there
            that it does not know (converting without it would give another model).
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    names = _expected_names(architecture, metadata.setting("block_count"))
    if OUTPUT_TENSOR[0] in by_name:  # absent where the embeddings are tied
        names[OUTPUT_TENSOR[0]] = OUTPUT_TENSOR[1]
    _check_names(metadata, expected=set(names), found=set(by_name))
    return [
        _converted(by_name[gguf_name], name, _row_order(architecture, metadata, by_name[gguf_name]))
        for gguf_name, name in names.items()
    ]


def paired_to_halved(num_rows: int, heads: int) -> npt.NDArray[np.intp]:
    """For each row of transformers' layout, the row of llama.cpp's that belongs there.

    A rotary embedding turns pairs of rows. llama.cpp's llama keeps the two rows of a pair side by
    side in a head (0, 1, 2, 3 are pairs 0, 0, 1, 1); transformers keeps all first ones, then all
    second ones.
    """
    return np.arange(num_rows).reshape(heads, num_rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)


def _expected_names(architecture: Architecture, num_layers: int) -> dict[str, str]:
    blocks = {
        f"blk.{layer_index}.{gguf_name}": f"model.layers.{layer_index}.{name}"
        for layer_index in range(num_layers)
        for gguf_name, name in architecture.block_tensors.items()
    }
    return MODEL_TENSORS | blocks


def _check_names(metadata: GgufMetadata, *, expected: set[str], found: set[str]) -> None:
    faults = [
        f"{what}: {', '.join(sorted(names)[:5])}{' and more' if len(names) > 5 else ''}"
        for what, names in (("missing", expected - found), ("not known", found - expected))
        if names
    ]
    if faults:
        raise ModelUnavailableError(
            f"{metadata.name}: the tensors are not those of a {metadata.architecture} model "
            f"({'; '.join(faults)}). Use another file, or the model's original checkpoint with "
            "hf://organisation/name."
        )


def _row_order(
    architecture: Architecture, metadata: GgufMetadata, tensor: ReaderTensor
) -> npt.NDArray[np.intp] | None:
    leaf = tensor.name.split(".", 2)[-1]
    if (heads_key := architecture.rotary_heads.get(leaf)) is None:
        return None
    num_rows, heads = int(tensor.shape[-1]), num_heads(metadata, heads_key)
    if heads < 1 or num_rows % (2 * heads):
        raise ModelUnavailableError(
            f"{metadata.name}: {tensor.name} has {num_rows} rows, expected an even number for each "
            f"of its {heads} heads. The file is damaged or of another kind; use another one."
        )
    return paired_to_halved(num_rows, heads)


def _converted(
    tensor: ReaderTensor, name: str, row_order: npt.NDArray[np.intp] | None
) -> StreamedTensor:
    shape = tuple(int(size) for size in reversed(tensor.shape.tolist()))
    return StreamedTensor(name, shape, partial(_pieces, tensor, shape, row_order))


def _pieces(
    tensor: ReaderTensor, shape: tuple[int, ...], row_order: npt.NDArray[np.intp] | None
) -> Iterator[Float32Array]:
    # Quantisation never crosses rows, so rows are put in order before they are dequantised.
    row_bytes = 4 * (shape[-1] if len(shape) > 1 else 1)
    piece_rows = max(1, _PIECE_BYTES // row_bytes) if len(shape) > 1 else shape[0]
    for start in range(0, shape[0], piece_rows):
        end = min(start + piece_rows, shape[0])
        rows = tensor.data[start:end] if row_order is None else tensor.data[row_order[start:end]]
        yield dequantize(np.ascontiguousarray(rows), tensor.tensor_type)
