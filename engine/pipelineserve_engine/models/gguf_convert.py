"""From one GGUF file to a model folder in Hugging Face's layout, in float32."""

import json
from pathlib import Path

from pipelineserve.errors import ModelUnavailableError
from pipelineserve_engine.models.files import WEIGHTS_FILE
from pipelineserve_engine.models.gguf_architectures import (
    OUTPUT_TENSOR,
    architecture_of,
    model_config,
    special_token_ids,
)
from pipelineserve_engine.models.gguf_metadata import GgufMetadata, open_gguf
from pipelineserve_engine.models.gguf_tokenizer import save_tokenizer
from pipelineserve_engine.models.gguf_weights import converted_tensors
from pipelineserve_engine.models.progress import Progress, task
from pipelineserve_engine.models.safetensors_writer import write_safetensors
from pipelineserve_engine.models.store import require_free_space


def convert_gguf(gguf_path: Path, folder: Path, progress: Progress) -> None:
    """Write config.json, model.safetensors, the tokenizer and generation_config.json.

    Memory stays bounded by a piece of a tensor, whatever the model's size.

    Raises:
        ModelUnavailableError: the file is damaged or of a kind that cannot be converted exactly,
            or the disk is too small.
    """
    reader = open_gguf(gguf_path)
    metadata = GgufMetadata(reader, gguf_path.name)
    _refuse_splits(metadata)
    architecture = architecture_of(metadata)
    tensors = converted_tensors(architecture, metadata, reader.tensors)
    total_bytes = sum(tensor.num_bytes for tensor in tensors)
    require_free_space(folder, total_bytes, f"Converting {gguf_path.name} to float32")

    with task(progress, "Converting the tokenizer", None):
        save_tokenizer(gguf_path, metadata, folder)
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    config = model_config(
        architecture,
        metadata,
        vocab_size=shapes["model.embed_tokens.weight"][0],
        is_tied=OUTPUT_TENSOR[1] not in shapes,
    )
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", special_token_ids(metadata))
    with task(progress, "Converting the weights to float32", total_bytes):
        try:
            write_safetensors(folder / WEIGHTS_FILE, tensors, progress.advance)
        except (ValueError, NotImplementedError) as error:
            raise ModelUnavailableError(
                f"{gguf_path.name}: the weights cannot be dequantised ({error}). Use a file with "
                "another quantisation, such as Q4_K_M, Q8_0 or F16."
            ) from error


def _refuse_splits(metadata: GgufMetadata) -> None:
    num_parts = metadata.optional_integer("split.count") or 1
    if num_parts > 1:
        raise ModelUnavailableError(
            f"{metadata.name} is one of {num_parts} parts, expected a model in one file. Join the "
            "parts with llama.cpp's gguf-split --merge, and use the joined file."
        )


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
