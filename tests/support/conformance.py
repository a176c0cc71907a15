"""What the contract's conformance suite needs of an engine, and the three that have it."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import httpx

from control_client import ControlClient, ControlSessionClient, a_fixed_policy
from engine_server import NAME, PATIENCE_S, EngineServer, Samples, wait_until
from pipelineserve import metrics
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.policy.step_time import StepTimeModel, StepTimeTable
from pipelineserve.wire.policies import encode_policy
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from sglang_server import SglangServer
from vllm_server import VllmServer

NUM_STAGES = 2
STATIC_CHUNK_TOKENS = 48
MAX_CHUNK_TOKENS = 256
KV_TOKENS = 8192


class Kind(Enum):
    """The engines that speak the contract."""

    TORCH = "pipelineserve-torch"
    SGLANG = "sglang"
    VLLM = "vllm"


@dataclass(frozen=True)
class Engine:
    """A running one: its API and where it is controlled.

    Attributes:
        read_metrics: our metrics, wherever the engine serves them.
        log: all that it has written.
    """

    kind: Kind
    url: str
    address: str
    read_metrics: Callable[[], Samples]
    log: Callable[[], str]

    def complete(self, prompt: str | list[int], num_tokens: int) -> dict[str, Any]:
        """An answer of exactly so many tokens, greedy."""
        with httpx.Client(trust_env=False, timeout=PATIENCE_S) as client:
            body = completion_body(prompt, num_tokens)
            answer = client.post(f"{self.url}/v1/completions", json=body)
        assert answer.status_code == httpx.codes.OK, answer.text
        found: dict[str, Any] = answer.json()
        assert found["usage"]["completion_tokens"] == num_tokens
        return found

    def texts(self, prompts: Sequence[str], num_tokens: int) -> list[str]:
        """Of all at once."""
        with ThreadPoolExecutor(len(prompts)) as threads:
            answers = threads.map(lambda prompt: self.complete(prompt, num_tokens), prompts)
            return [answer["choices"][0]["text"] for answer in answers]

    def abandon(self, prompt: str, num_tokens: int, is_over: Callable[[], object]) -> None:
        """Hang up in the middle of an answer, once `is_over` returns."""
        body = {**completion_body(prompt, num_tokens), "stream": True}
        with (
            httpx.Client(trust_env=False, timeout=PATIENCE_S) as client,
            client.stream("POST", f"{self.url}/v1/completions", json=body) as answer,
        ):
            lines = answer.iter_lines()
            next(lines)
            is_over()
            del lines  # the connection would close with it

    def wait_free(self) -> None:
        """Return when no policy holds and nobody watches."""
        wait_until(
            self.read_metrics,
            lambda now: not now.value(metrics.WATCHERS) + now.value(metrics.POLICY_IN_FORCE),
        )

    @contextmanager
    def client(self) -> Iterator[ControlClient]:
        """A controller of an engine that nobody else controls or watches."""
        self.wait_free()
        with ControlClient(self.address) as client:
            yield client


def assert_sound(engine: Engine) -> None:
    """It has had no failure that counts, and lost no KV; SGLang's start may log some others."""
    log = engine.log()
    traces = ("hit an exception", "memory leak", "made a mistake", "an order for turn")
    for trace in (*traces, "EngineCore encountered", "cannot be told"):
        assert trace not in log, log


def completion_body(prompt: str | list[int], num_tokens: int) -> dict[str, Any]:
    """Exactly so many tokens, greedy."""
    return {
        "model": NAME,
        "prompt": prompt,
        "max_tokens": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }


@contextmanager
def torch_engine(folder: Path, socket_path: Path) -> Iterator[Engine]:
    """Ours."""
    flags = (
        *(f"--stages={NUM_STAGES}", f"--static-chunk-tokens={STATIC_CHUNK_TOKENS}"),
        *(f"--max-chunk-tokens={MAX_CHUNK_TOKENS}", f"--control-address=unix:{socket_path}"),
    )
    with EngineServer(folder, *flags) as server:
        server.wait_serving()
        yield Engine(
            Kind.TORCH, server.url, f"unix:{socket_path}", server.metrics, lambda: server.log
        )


@contextmanager
def sglang_engine(
    folder: Path, socket_path: Path, *flags: str, environ: dict[str, str] | None = None
) -> Iterator[Engine]:
    """SGLang's with the add-on; without flags decodes travel with prompts, as in ours."""
    sizes = (f"--chunked-prefill-size={MAX_CHUNK_TOKENS}", "--max-running-requests=32")
    with SglangServer(
        folder,
        *sizes,
        *(flags or ("--enable-mixed-chunk", f"--max-total-tokens={KV_TOKENS}")),
        environ={**add_on_settings(socket_path), **(environ or {})},
    ) as server:
        server.wait_serving()
        yield Engine(
            Kind.SGLANG, server.url, f"unix:{socket_path}", server.metrics, lambda: server.log
        )


@contextmanager
def vllm_engine(
    folder: Path, socket_path: Path, *flags: str, environ: dict[str, str] | None = None
) -> Iterator[Engine]:
    """A vLLM with the add-on as its scheduler class."""
    sizes = (
        *(f"--max-num-batched-tokens={MAX_CHUNK_TOKENS}", "--max-num-seqs=32"),
        # The smallest blocks that it has on a CPU; one of them is never given out.
        *("--block-size=32", f"--num-gpu-blocks-override={KV_TOKENS // 32 + 1}"),
    )
    settings = {**add_on_settings(socket_path), **(environ or {})}
    with VllmServer(folder, *sizes, *flags, environ=settings) as server:
        server.wait_serving()
        yield Engine(
            Kind.VLLM, server.url, f"unix:{socket_path}", server.metrics, lambda: server.log
        )


def add_on_settings(socket_path: Path) -> dict[str, str]:
    """Of an add-on, as environment variables."""
    return {
        "PIPELINESERVE_ADDON_STATIC_CHUNK_TOKENS": str(STATIC_CHUNK_TOKENS),
        "PIPELINESERVE_ADDON_CONTROL_ADDRESS": f"unix:{socket_path}",
    }


def end_lease(session: ControlSessionClient, sequence: int) -> None:
    """Leave no policy in force: whoever comes next would wait until its lease is over."""
    session.apply(sequence, a_fixed_policy(STATIC_CHUNK_TOKENS, lease_s=0.05))
    session.wait_snapshot(lambda now: not now.policy_sequence)


def holding_policy(
    max_gap_s: float,
    lease_s: float = 60.0,
    mode: HoldMode = HoldMode.TPOT_FIRST,
    *,
    most_decodes: int = 4,
) -> pb.Policy:
    """Decodes of a slot above so many are held, for gaps up to this.

    One more costs as much as twice as many. With four, one of each slot's five decodes is held.
    """
    tokens = (1, most_decodes, most_decodes + 1, 2 * most_decodes, 2 * most_decodes + 1, 64)
    stairs = StepTimeModel(StepTimeTable(tokens, (0.01, 0.01, 0.02, 0.02, 0.03, 0.04)))
    boundaries = (most_decodes, 2 * most_decodes)
    holding = Rebalance(mode, stairs, boundaries, max_gap_s, hold_budget_s=10.0 * max_gap_s)
    chunking = Static(MAX_CHUNK_TOKENS // 4)
    return encode_policy(LeasedPolicy(SchedulingPolicy(chunking, holding=holding), lease_s))
