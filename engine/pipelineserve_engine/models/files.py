"""What a usable model folder holds."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelineserve.errors import ModelUnavailableError

WEIGHTS_FILE = "model.safetensors"
WEIGHTS_INDEX_FILE = "model.safetensors.index.json"
# transformers can build a tokenizer from any one of these.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")

PICKLE_ADVICE = (
    "its weights are pickle files (.bin, .pt, .pth), which can run code when they are loaded; "
    "PipelineServe reads safetensors only. Choose a revision or a repository with *.safetensors, "
    "or convert once on a machine that may run this code "
    "(transformers: from_pretrained, then save_pretrained) and use file:///the/converted/folder"
)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A folder that `check_model_folder` accepts.

    Attributes:
        folder: config.json, safetensors (one file, or shards with an index), the tokenizer's files
            with its chat template, and generation_config.json where the model has one.
        source: where the files came from, with the exact version or commit where one is known.
    """

    folder: Path
    source: str


def check_model_folder(folder: Path, source: str) -> ModelFiles:
    """Check that the folder can be served, by looking at files only (no weights are read).

    Raises:
        ModelUnavailableError: naming every file that is missing or unreadable.
    """
    if not folder.is_dir():
        raise ModelUnavailableError(
            f"{source}: {folder} is not a folder. Expected a folder with config.json, "
            "*.safetensors and tokenizer.json. Check the path."
        )
    if faults := [*_config_faults(folder), *_weight_faults(folder), *_tokenizer_faults(folder)]:
        raise ModelUnavailableError(
            f"{source}: {folder} cannot be served: {'; '.join(faults)}. Expected a Hugging Face "
            "checkpoint: config.json, model.safetensors (or shards and their index) and "
            "tokenizer.json. Add what is missing, or name another model."
        )
    return ModelFiles(folder, source)


def has_pickled_weights_only(names: list[str]) -> bool:
    """Whether there are weights among these file names, and all of them are pickles."""
    has_safetensors = any(name.endswith(".safetensors") for name in names)
    return not has_safetensors and any(name.endswith((".bin", ".pt", ".pth")) for name in names)


def _config_faults(folder: Path) -> Iterator[str]:
    path = folder / "config.json"
    if not path.is_file():
        yield "config.json is missing"
        return
    config = _read_json_object(path)
    if config is None:
        yield "config.json is not a JSON object"
    elif not isinstance(config.get("model_type"), str):
        yield 'config.json names no "model_type"'


def _weight_faults(folder: Path) -> Iterator[str]:
    if (folder / WEIGHTS_FILE).is_file():
        return
    if (folder / WEIGHTS_INDEX_FILE).is_file():
        yield from _shard_faults(folder)
    elif has_pickled_weights_only([path.name for path in folder.iterdir()]):
        yield PICKLE_ADVICE
    else:
        yield f"{WEIGHTS_FILE} (or {WEIGHTS_INDEX_FILE} with its shards) is missing"


def _shard_faults(folder: Path) -> Iterator[str]:
    index = _read_json_object(folder / WEIGHTS_INDEX_FILE)
    shards = index.get("weight_map") if index is not None else None
    if not isinstance(shards, dict) or not shards:
        yield f'{WEIGHTS_INDEX_FILE} has no "weight_map"'
        return
    for name in sorted({str(shard) for shard in shards.values()}):
        if Path(name).name != name:
            yield f"{WEIGHTS_INDEX_FILE} points outside the folder: {name!r}"
        elif not (folder / name).is_file():
            yield f"{name}, which {WEIGHTS_INDEX_FILE} names, is missing"


def _tokenizer_faults(folder: Path) -> Iterator[str]:
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        yield f"the tokenizer is missing (none of {', '.join(TOKENIZER_FILES)})"


def _read_json_object(path: Path) -> dict[str, object] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None  # also UnicodeDecodeError; the caller names the file
    return value if isinstance(value, dict) else None
