"""The closed formulas with a deployment's numbers put in."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pipelineserve.policy.control.feasibility import SteadyState, steady_state
from pipelineserve_simulator.hardware.costs import ProfileCosts
from pipelineserve_simulator.hardware.layouts import even_layout
from pipelineserve_simulator.pipeline.loads import fresh_prompt
from pipelineserve_simulator.planning.forecasts import exposed_s, formula_targets
from pipelineserve_simulator.planning.formulas import (
    all_reduce_s,
    batch_time_s,
    bubble_ratio,
    end_to_end_s,
    fewest_micro_batches,
    kv_bytes_per_token,
    mean_wait_s,
    optimal_micro_batches,
    pipeline_efficiency,
    pipeline_gain,
    requests_inside,
    stage_weights_bytes,
)
from pipelineserve_simulator.planning.layouts import size_text
from pipelineserve_simulator.planning.search import Question, Ranked

_GOOD_EFFICIENCY = 0.9
_INTERLEAVED_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Explained:
    """One formula.

    Attributes:
        name: what it gives.
        formula: in symbols.
        numbers: the same with this deployment's numbers.
        result: with its unit.
        source: see `formulas`.
    """

    name: str
    formula: str
    numbers: str
    result: str
    source: str


def explain(question: Question, ranked: Ranked) -> tuple[Explained, ...]:
    """All formulas for one deployment, at the rate of one of its replicas."""
    figures = _Figures.of(question, ranked)
    return (
        *_memory(figures),
        *_pipeline(figures),
        *_gain(figures),
        *_latency(figures),
    )


@dataclass(frozen=True, slots=True)
class _Figures:
    """What several formulas need.

    Attributes:
        rate_per_s: of one replica.
        work_s: a long prompt on one stage, without what each step takes beside.
        num_pieces: into which the chunk cuts that prompt.
        overhead_s: of each step, beside the stage's work.
    """

    question: Question
    ranked: Ranked
    costs: ProfileCosts
    rate_per_s: float
    chunk_tokens: int
    state: SteadyState
    num_pieces: int
    work_s: float
    overhead_s: float

    @staticmethod
    def of(question: Question, ranked: Ranked) -> "_Figures":
        deployment, demand = ranked.deployment, question.demand
        costs = ProfileCosts(question.machine.profile, deployment.placed.layout)
        chunk = deployment.static_tokens
        rate_per_s = demand.rate_per_s / deployment.num_replicas
        pipeline = ranked.forecast.pipeline
        num_pieces = math.ceil(demand.long_prompt_tokens / chunk)
        return _Figures(
            question=question,
            ranked=ranked,
            costs=costs,
            rate_per_s=rate_per_s,
            chunk_tokens=chunk,
            state=steady_state(
                pipeline, demand.load_at(rate_per_s), formula_targets(question.targets), chunk
            ),
            num_pieces=num_pieces,
            work_s=num_pieces * max(costs.stage_times_s(fresh_prompt(chunk))),
            overhead_s=exposed_s(costs, chunk),
        )

    @property
    def num_stages(self) -> int:
        return self.ranked.deployment.placed.shape.num_stages

    @property
    def shards(self) -> int:
        return self.ranked.deployment.placed.shape.tensor_parallel


def _memory(figures: _Figures) -> Iterator[Explained]:
    model, shape = figures.question.model, figures.question.model.shape
    head_size = shape.kv_bytes_per_layer_token // (2 * model.num_kv_heads * shape.parameter_bytes)
    layers = figures.ranked.deployment.placed.layout.partition.layers_per_stage
    for name, num_layers, shards in (
        ("KV per token, model", shape.num_layers, 1),
        ("KV per token, GPU of stage 0", layers[0], figures.shards),
    ):
        num_bytes = kv_bytes_per_token(
            num_layers, model.num_kv_heads, head_size, shape.parameter_bytes
        )
        yield Explained(
            name,
            "2 · layers · KV heads · head size · bytes ÷ shards",
            f"2 · {num_layers} · {model.num_kv_heads} · {head_size} · {shape.parameter_bytes} ÷ "
            f"{shards}",
            f"{num_bytes / shards / 1024:.1f} KiB",
            "GQA (Ainslie et al. 2023)",
        )
    ends = shape.embedding_bytes * (2 if figures.num_stages == 1 else 1)
    weights = stage_weights_bytes(layers[0], shape.layer_bytes, ends, figures.shards)
    yield Explained(
        "weights, GPU of stage 0",
        "(layers · layer + embedding, and head if it is the last) ÷ shards",
        f"({layers[0]} · {size_text(shape.layer_bytes)} + {size_text(ends)}) ÷ {figures.shards}",
        size_text(weights),
        "Megatron-LM (Shoeybi et al. 2019)",
    )


def _pipeline(figures: _Figures) -> Iterator[Explained]:
    stages, pieces = figures.num_stages, figures.num_pieces
    long_tokens = figures.question.demand.long_prompt_tokens
    alone = f"a lone prompt of {long_tokens:,.0f} tokens in {pieces} pieces"
    for rounds in (1, _INTERLEAVED_ROUNDS):
        extra = "" if rounds == 1 else f", {rounds} virtual stages per worker"
        yield Explained(
            f"efficiency{extra}",
            "v m ÷ (v m + p - 1)",
            f"{rounds} · {pieces} ÷ ({rounds} · {pieces} + {stages} - 1), {alone}",
            f"{pipeline_efficiency(pieces, stages, rounds):.0%}",
            "GPipe (Huang et al. 2019), Megatron-2 (Narayanan et al. 2021)",
        )
    yield Explained(
        "bubble",
        "(p - 1) ÷ (m + p - 1)",
        f"({stages} - 1) ÷ ({pieces} + {stages} - 1), {alone}",
        f"{bubble_ratio(pieces, stages):.0%} alone; "
        f"{figures.ranked.bubble_ratio:.0%} simulated under the load",
        "GPipe",
    )
    yield Explained(
        f"micro-batches for {_GOOD_EFFICIENCY:.0%}",
        "(p - 1) e ÷ (1 - e)",
        f"({stages} - 1) · {_GOOD_EFFICIENCY:g} ÷ {1 - _GOOD_EFFICIENCY:.2g}",
        f"{fewest_micro_batches(_GOOD_EFFICIENCY, stages)}",
        "GPipe",
    )
    best = optimal_micro_batches(figures.work_s, figures.overhead_s, stages)
    least_s = batch_time_s(figures.work_s, figures.overhead_s, stages, best)
    yield Explained(
        "optimal micro-batches",
        "√((p - 1) W ÷ o), for the least (m + p - 1) (W ÷ m + o)",
        f"√(({stages} - 1) · {_ms(figures.work_s)} ÷ {_ms(figures.overhead_s)}), {alone}",
        f"{best}, done in {_ms(least_s)}",
        "derivative of GPipe's schedule with an overhead per micro-batch",
    )


def _gain(figures: _Figures) -> Iterator[Explained]:
    """All devices of a replica as stages over all of them as shards."""
    devices = figures.ranked.deployment.placed.shape.num_devices
    if devices == 1:
        return
    profile, chunk = figures.question.machine.profile, figures.chunk_tokens
    model, link = profile.model, profile.link
    whole = ProfileCosts(profile, even_layout(model, 1))
    compute_s = whole.stage_times_s(fresh_prompt(chunk))[0]
    # The profile's bytes are already twice what is summed up: a ring sends (N - 1) ÷ N of them.
    sent = chunk * link.all_reduce_bytes_per_token / 2
    one_s = all_reduce_s(sent, devices, link.all_reduce_s, link.all_reduce_bytes_per_s)
    exchange_s = 2.0 * model.num_layers * one_s
    hand_off_s = whole.transfer_s(chunk) * (devices - 1) / devices
    yield Explained(
        "all-reduce of a layer's half",
        "a + 2 (N - 1) ÷ N · bytes ÷ rate, N shards",
        f"{link.all_reduce_s * 1e6:.0f} us + 2 · {devices - 1} ÷ {devices} · "
        f"{sent / 2**20:.1f} MiB ÷ {link.all_reduce_bytes_per_s / 1e9:.1f} GB/s",
        _ms(one_s),
        "ring (Patarasuk and Yuan 2009)",
    )
    yield Explained(
        f"throughput of PP {devices} over TP {devices}",
        "e (C ÷ N + A) ÷ (C ÷ N + H)",
        f"({_ms(compute_s)} ÷ {devices} + {_ms(exchange_s)}) ÷ ({_ms(compute_s)} ÷ {devices} + "
        f"{_ms(hand_off_s)}), chunks of {chunk}, e = 1",
        f"{pipeline_gain(compute_s, exchange_s, hand_off_s, devices, 1.0):.2f}",
        "two all-reduces per layer (Megatron-LM)",
    )


def _latency(figures: _Figures) -> Iterator[Explained]:
    demand, state = figures.question.demand, figures.state
    wait_s, prefill_s = _waits(figures)
    total_s = end_to_end_s(wait_s, prefill_s, state.tpot_s, state.tpot_s, demand.output_tokens)
    yield Explained(
        "mean wait",
        "u ÷ (1 - u) · E[S²] ÷ (2 E[S])",
        f"u = {state.load_ratio:.2f}, a mean prompt of {demand.prompt_tokens:,.0f} tokens takes "
        f"{_ms(prefill_s)}",
        _ms(wait_s),
        "Pollaczek-Khinchine",
    )
    yield Explained(
        "mean end to end",
        "wait + prefill + passage + (out - 1) TPOT",
        f"{_ms(wait_s)} + {_ms(prefill_s)} + {_ms(state.tpot_s)} + "
        f"{demand.output_tokens - 1:.0f} · {_ms(state.tpot_s)}, every micro-batch full",
        f"{_ms(total_s)}; {_ms(figures.ranked.mean_e2e_s)} simulated",
        "definitions of TTFT and TPOT",
    )
    yield Explained(
        "requests inside one replica",
        "rate · stay",
        f"{figures.rate_per_s:.2f}/s · {_ms(total_s)}",
        f"{requests_inside(figures.rate_per_s, total_s):.0f}, or {state.kv_ratio:.0%} of KV",
        "Little",
    )


def _waits(figures: _Figures) -> tuple[float, float]:
    """Mean wait and mean time of a prompt in the queue's server, which is the room for prefill."""
    demand, state = figures.question.demand, figures.state
    # By definition of the load ratio: it is the tokens that arrive over this room.
    room_per_s = figures.rate_per_s * demand.prompt_tokens / state.load_ratio
    mean_s = demand.prompt_tokens / room_per_s
    squared_s2 = demand.squared_prompt_tokens / room_per_s**2
    return mean_wait_s(state.load_ratio, mean_s, squared_s2), mean_s


def _ms(value_s: float) -> str:
    if math.isinf(value_s):
        return "no bound"
    return f"{value_s * 1000:,.{1 if value_s < 0.1 else 0}f} ms"
