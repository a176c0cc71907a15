"""A real SGLang as the benchmark starts it, with the add-on or without, and a model for it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.control.contestants import SERVED_NAME, Engine, Sizes
from bench.server_processes import free_port, serving
from bench.sglang_packages import CPU_ENVIRON, CPU_FLAGS
from bench.sglang_probe import FOLDER_VARIABLE
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tools.sources import ROOT
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

# SGLang's dynamic chunking measures with token ids below 10,000.
VOCABULARY_SIZE = 12_000
_KV_TOKENS = 32_768


@dataclass(frozen=True)
class Setup:
    """What all servers of a run share.

    Attributes:
        python: of an environment with SGLang and the add-on.
        device: SGLang's word, `cpu` for the reference platform.
        work: a folder for logs and sockets.
    """

    python: Path
    model: Path
    device: str
    sizes: Sizes
    work: Path


def save_random_model(folder: Path) -> Path:
    """A Llama of 12 million random weights with a word for each token."""
    config = LlamaConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        tie_word_embeddings=False,  # SGLang runs no other Llama in several stages
        bos_token_id=None,
        eos_token_id=None,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    words = {f"w{index}": index for index in range(VOCABULARY_SIZE)}
    backend = Tokenizer(models.WordLevel(words, unk_token="w0"))  # noqa: S106 - no password
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece(prefix="##")
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(folder)
    return folder


@contextmanager
def sglang(
    setup: Setup,
    name: str,
    *flags: str,
    has_addon: bool = True,
    probe: Path | None = None,
) -> Iterator[Engine]:
    """A server for the length of the block.

    Args:
        setup: shared by all.
        name: of its log and socket.
        flags: of SGLang's, after our own.
        has_addon: whether the add-on has settings; without any there is none.
        probe: a folder in which each rank counts its hooks' time.

    Raises:
        ToolError: it does not start; the message has the end of its log.
    """
    sizes, port = setup.sizes, free_port()
    socket = setup.work / f"{name}.sock"
    url = f"http://127.0.0.1:{port}"
    command = [
        *(str(setup.python), "-m", "sglang.launch_server", f"--model-path={setup.model}"),
        *(f"--served-model-name={SERVED_NAME}", "--host=127.0.0.1", f"--port={port}"),
        *(f"--pp-size={sizes.stages}", f"--chunked-prefill-size={sizes.max_tokens}"),
        *("--enable-mixed-chunk", *flags),
    ]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if setup.device == "cpu":
        command += [
            *CPU_FLAGS,
            "--dtype=float32",
            f"--max-total-tokens={_KV_TOKENS}",
            "--max-running-requests=64",
        ]
        environ |= CPU_ENVIRON
    else:
        command += [f"--device={setup.device}"]
    if has_addon:
        environ["PIPELINESERVE_ADDON_STATIC_CHUNK_TOKENS"] = str(sizes.static_tokens)
        environ["PIPELINESERVE_ADDON_CONTROL_ADDRESS"] = f"unix:{socket}"
    if probe is not None:
        environ |= {FOLDER_VARIABLE: str(probe), "PYTHONPATH": f"{_plugin(setup.work)}:{ROOT}"}
    log = setup.work / f"{name}.log"
    with serving(command, environ, f"{url}/health_generate", log) as pid:
        yield Engine(url, f"unix:{socket}", pid)


def _plugin(work: Path) -> Path:
    """A folder that makes the probe one of SGLang's plugins, as if it were installed."""
    metadata = work / "bench_sglang_probe-0.dist-info"
    metadata.mkdir(exist_ok=True)
    described = "Metadata-Version: 2.1\nName: bench-sglang-probe\nVersion: 0\n"
    (metadata / "METADATA").write_text(described)
    entry_point = "[sglang.srt.plugins]\na_bench_probe = bench.sglang_probe:load\n"
    (metadata / "entry_points.txt").write_text(entry_point)
    return work
