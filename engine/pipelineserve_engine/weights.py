"""Weights from safetensors: only the tensors that a stage asks for are read."""

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from pipelineserve.errors import ModelUnavailableError

_SINGLE_FILE = "model.safetensors"
_INDEX_FILE = "model.safetensors.index.json"


class WeightFiles:
    """Which file of a model's folder holds which tensor.

    Raises:
        ModelUnavailableError: the folder has no safetensors, or they cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file_of = _file_table(folder)

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def read(self, names: Iterable[str], dtype: torch.dtype) -> dict[str, torch.Tensor]:
        """Read tensors by name onto the CPU, converted to `dtype`.

        Raises:
            ModelUnavailableError: a tensor is missing or a file is damaged.
        """
        wanted = list(names)
        missing = [name for name in wanted if name not in self]
        if missing:
            raise ModelUnavailableError(
                f"{self.folder}: the weights lack {', '.join(missing[:5])}"
                f"{' and more' if len(missing) > 5 else ''}; "
                "is config.json from the same model as the safetensors files?"
            )
        tensors: dict[str, torch.Tensor] = {}
        for file in sorted({self._file_of[name] for name in wanted}):
            tensors |= _read_file(file, [n for n in wanted if self._file_of[n] == file], dtype)
        return tensors


def _file_table(folder: Path) -> dict[str, Path]:
    index_path = folder / _INDEX_FILE
    try:
        if index_path.exists():
            weight_map: dict[str, str] = json.loads(index_path.read_text())["weight_map"]
            # By its last part only: an index must not lead out of the folder.
            return {name: folder / Path(file).name for name, file in weight_map.items()}
        with safe_open(folder / _SINGLE_FILE, framework="pt") as file:
            return dict.fromkeys(file.keys(), folder / _SINGLE_FILE)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise ModelUnavailableError(
            f"{folder}: expected readable {_SINGLE_FILE} or {_INDEX_FILE}, got: {error}"
        ) from error


def _read_file(path: Path, names: list[str], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name).to(dtype) for name in names}
    except (OSError, SafetensorError) as error:
        raise ModelUnavailableError(f"{path}: cannot be read: {error}; fetch it again") from error
