"""The tokenizer that a GGUF file describes, saved in Hugging Face's layout."""

from pathlib import Path
from typing import Any

from pipelineserve.errors import ModelUnavailableError
from pipelineserve_engine.models.gguf_metadata import GgufMetadata

# Byte-level vocabularies whose merges were learned after every digit was split off, then GPT-2's
# pattern. transformers leaves that first split out, and " 12" or an indented number would get
# other tokens than the model was trained on.
_DIGITS_FIRST = frozenset(
    {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}
)
# A word that is one token of the vocabulary is taken whole, whatever its merges would give.
_WHOLE_WORDS_FIRST = frozenset({"llama3", "llama-v3", "llama-bpe", "tekken"})
# transformers splits these as they should be.
_AS_CONVERTED = frozenset({"gpt-2", "qwen2", "deepseek-r1-qwen", "smaug-bpe"})


def save_tokenizer(gguf_path: Path, metadata: GgufMetadata, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and the chat template into `folder`.

    Raises:
        ModelUnavailableError: the tokenizer is of a kind that would be converted wrongly.
    """
    splitting = _checked_splitting(metadata)
    # Takes seconds to import; needed once per model, not once per start.
    from transformers import AutoTokenizer  # noqa: PLC0415

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            gguf_path.parent, gguf_file=gguf_path.name, local_files_only=True
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ModelUnavailableError(
            f"{metadata.name}: its tokenizer cannot be converted ({error}). Use another file, or "
            "the model's original checkpoint with hf://organisation/name."
        ) from error
    tokenizer.model_max_length = metadata.setting("context_length")
    if splitting is not None:
        _correct(tokenizer.backend_tokenizer, splitting)
    for machine_fact in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(machine_fact, None)
    tokenizer.save_pretrained(folder)


def _checked_splitting(metadata: GgufMetadata) -> str | None:
    kind = metadata.optional_text("tokenizer.ggml.model")
    if kind == "llama":
        return None  # sentencepiece: no pattern splits the text first
    splitting = metadata.optional_text("tokenizer.ggml.pre")
    known = _DIGITS_FIRST | _WHOLE_WORDS_FIRST | _AS_CONVERTED
    if kind != "gpt2" or splitting not in known:
        raise ModelUnavailableError(
            f"{metadata.name}: its tokenizer ({kind!r}, split by {splitting!r}) cannot be "
            f"converted exactly; expected 'llama', or 'gpt2' split by one of "
            f"{', '.join(sorted(known))}. Use the model's original checkpoint with "
            "hf://organisation/name."
        )
    return splitting


def _correct(backend: Any, splitting: str) -> None:
    from tokenizers import pre_tokenizers  # noqa: PLC0415 - beside transformers, see above

    if splitting in _DIGITS_FIRST:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    elif splitting in _WHOLE_WORDS_FIRST:
        model = backend.model
        model.ignore_merges = True
        backend.model = model
