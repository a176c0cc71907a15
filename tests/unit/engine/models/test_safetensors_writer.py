"""The written file, read by the library that defines the format."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from pipelineserve_engine.models.safetensors_writer import StreamedTensor, write_safetensors

SHAPES = st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple), max_size=5)


def _tensor(name: str, shape: tuple[int, ...]) -> StreamedTensor:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + len(name)
    return StreamedTensor(name, shape, lambda: iter(np.array_split(values, 3)))


@settings(max_examples=40)
@given(shapes=SHAPES)
def test_the_library_reads_back_what_was_written_in_pieces(shapes: list[tuple[int, ...]]) -> None:
    tensors = [_tensor("t" * (index + 1), shape) for index, shape in enumerate(shapes)]
    written: list[int] = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        write_safetensors(path, tensors, written.append)
        found = load_file(path)
    assert set(found) == {tensor.name for tensor in tensors}
    for tensor in tensors:
        expected = np.concatenate(list(tensor.pieces()))
        np.testing.assert_array_equal(found[tensor.name], expected)
    assert sum(written) == sum(tensor.num_bytes for tensor in tensors)


def test_refuses_pieces_that_do_not_fill_the_shape(tmp_path: Path) -> None:
    short = StreamedTensor("short", (3,), lambda: iter([np.zeros(2, dtype=np.float32)]))
    with pytest.raises(ValueError, match="short: 8 bytes"):
        write_safetensors(tmp_path / "model.safetensors", [short], lambda _: None)
