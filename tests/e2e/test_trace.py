"""A traced server: pieces of one prompt are on several stages at once, and every stage is busy."""

import asyncio
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, LlamaConfig

from api_server import RunningApi
from engine_server import NAME, EngineServer
from pipelineserve_cli.traces.conversion import trace_events
from pipelineserve_cli.traces.picture import longest_prompt
from pipelineserve_cli.traces.record import TraceRecord, read_record
from pipelineserve_cli.traces.summary import summarise_record
from pipelineserve_cli.traces.timeline import num_consecutive, overlapping_pieces
from served_model import CONTEXT_TOKENS, a_small_tokenizer
from tiny_models import VOCABULARY_SIZE

pytestmark = pytest.mark.anyio

NUM_STAGES = 2
CHUNK_TOKENS = 64
LONG_TOKENS = 1500


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that is large enough for a step to outweigh what the host does around it."""
    path = tmp_path_factory.mktemp("wide")
    config = LlamaConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=None,
        eos_token_id=None,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(path)
    a_small_tokenizer().save_pretrained(path)
    return path


async def complete(api: RunningApi, prompt: Iterable[int], max_tokens: int) -> None:
    answer: Any = await api.client.completions.create(
        model=NAME, prompt=list(prompt), max_tokens=max_tokens, temperature=0,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    assert answer.usage.completion_tokens == max_tokens


async def record_of(folder: Path, path: Path, requests: list[Any]) -> TraceRecord:
    """What a server with two stages records of prompts with their output lengths, sent at once."""
    flags = (
        *(f"--stages={NUM_STAGES}", f"--static-chunk-tokens={CHUNK_TOKENS}"),
        f"--trace-file={path}",
    )
    with EngineServer(folder, *flags) as server:
        api = RunningApi(server.wait_serving().port)
        try:
            await asyncio.gather(*(complete(api, *request) for request in requests))
        finally:
            await api.close()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert "Traceback" not in server.log
    return read_record(path)


def prompt(first: int, num_tokens: int) -> range:
    """Token ids that no other prompt begins with."""
    return range(first, first + num_tokens)


async def test_pieces_of_one_prompt_are_on_two_stages_at_once(folder: Path, tmp_path: Path) -> None:
    ids = [20 + index % 200 for index in range(LONG_TOKENS)]
    requests: list[Any] = [(prompt(20 + 30 * index, 12), 40) for index in range(4)]
    record = await record_of(folder, tmp_path / "record.jsonl", [*requests, (ids, 4)])
    long = longest_prompt(record)
    assert long is not None
    pieces = [p for b in record.micro_batches for p in b.prefill_pieces if p.request_id == long]
    assert sum(piece.num_tokens for piece in pieces) == LONG_TOKENS
    # Pieces follow each other in consecutive micro-batches ...
    assert num_consecutive(record) >= len(pieces) - 2
    # ... and do not wait for each other's way back.
    assert long in {request_id for request_id, _ in overlapping_pieces(record)}
    assert trace_events(record)["traceEvents"]


async def test_every_stage_is_busy_under_load(folder: Path, tmp_path: Path) -> None:
    requests: list[Any] = [(prompt(index, 250), 8) for index in range(8)]
    record = await record_of(folder, tmp_path / "record.jsonl", requests)
    summary = summarise_record(record)
    assert [stage.busy_ratio > 0.3 for stage in summary.stages] == [True] * NUM_STAGES, summary
    assert len(record.ended) == len(requests)
    assert not summary.is_cut


def test_a_trace_file_that_cannot_be_written_stops_the_start(folder: Path, tmp_path: Path) -> None:
    with EngineServer(folder, f"--trace-file={tmp_path / 'no' / 'file'}") as server:
        assert server.wait() == 1
    assert "--trace-file: cannot write" in server.log
    assert server.stage_pids == ()
