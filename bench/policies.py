"""What one decision of each policy costs.

    python bench/policies.py [--json] [--rounds 7] [--candidates 64] [--slots 4]

Printed are microseconds of CPU time per decide(), the best of several rounds (another process can
only make a round slower), for views that take a policy through its longest ways. Building the view
is the scheduler's part and is measured by itself.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from time import process_time

from pipelineserve.policy.candidates import candidate_sizes
from pipelineserve.policy.fastpp.delay import FastppDelay, FastppDelayView
from pipelineserve.policy.fastpp.greedy import FastppGreedy
from pipelineserve.policy.fastpp.predictive import FastppPredictive
from pipelineserve.policy.fastpp.views import FastppView, LatencyTotals, SlotView
from pipelineserve.policy.fitting import StepSample, start_fit, update
from pipelineserve.policy.greedy import Greedy, LatencyView
from pipelineserve.policy.holding import HoldView
from pipelineserve.policy.ordering import Ageing
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.rebalancing import HoldMemory, HoldMode, Rebalance
from pipelineserve.policy.step_time import (
    StepCoefficients,
    StepFeatures,
    StepTimeModel,
    StepTimeTable,
)
from pipelineserve.policy.triage import Triage, TriageView
from pipelineserve.policy.views import DecodeLoad, LoadView, PromptLoad, WaitingRequestView

CALLS_PER_ROUND = 2000
MODEL = StepTimeModel(
    StepTimeTable((1, 128, 129, 256, 257, 2048), (0.015, 0.018, 0.025, 0.025, 0.037, 0.17)),
    StepCoefficients(1.0, 6e-8, 1.4e-9, 2.7e-9),
    spread_ratio=0.03,
)


@dataclass(frozen=True)
class Cost:
    """One row: a policy in one situation."""

    policy: str
    situation: str
    decide_us: float


@dataclass(frozen=True)
class Case:
    """One call to time."""

    policy: str
    situation: str
    call: Callable[[], object]
    calls_per_round: int = CALLS_PER_ROUND


def load_view(num_slots: int, waiting_tokens: int, arrived_tokens: int) -> LoadView:
    """40 decodes of 1,000 tokens, and prompts of 1,000 tokens."""
    num_waiting = waiting_tokens // 1000
    return LoadView(
        now_s=1000.0,
        slot_index=0,
        num_slots=num_slots,
        max_chunk_tokens=2048,
        num_waiting=num_waiting,
        waiting_tokens=waiting_tokens,
        num_prefilling=1,
        num_decoding=40 * num_slots,
        num_ready_decodes=40,
        kv_free_ratio=0.5,
        assigned=DecodeLoad(40, 40_000),
        started=PromptLoad(1, 500, 250_000, 250_000),
        waiting=PromptLoad(num_waiting, waiting_tokens, 1000 * waiting_tokens, 0),
        arrived_tokens=arrived_tokens,
        arrival_window_s=10.0,
    )


def our_chunks(num_candidates: int, num_slots: int) -> Iterator[Case]:
    sizes = candidate_sizes(2048 // num_candidates, 2048, 2048 // num_candidates)
    with_target = Predictive(MODEL, sizes, tpot_target_s=0.2)
    without = Predictive(MODEL, sizes, tpot_target_s=None)
    situations = {
        "small queue": load_view(num_slots, 1000, 0),
        "arrivals just served": load_view(num_slots, 3000, 60_000),
        "more than can be served": load_view(num_slots, 300_000, 60_000),
    }
    for situation, view in situations.items():
        yield Case("Predictive", situation, partial(with_target.decide, view))
        name = f"{situation}, no TPOT target"
        yield Case("Predictive", name, partial(without.decide, view))
    yield Case("(LoadView)", "built", partial(load_view, num_slots, 3000, 60_000))
    greedy = Greedy(128, 2048, 128, ttft_target_s=2.0, tpot_target_s=0.2)
    latency = LatencyView(0.5, 0.15, 0.1, 40, 0.5, 2048)
    yield Case("Greedy", "targets met", partial(greedy.decide, greedy.start(), latency))


def our_holds(num_slots: int) -> Iterator[Case]:
    rebalance = Rebalance(HoldMode.E2E_FIRST, MODEL, (128, 256))
    situations = {
        "above a boundary": hold_view(num_slots, due=140, live=140 * num_slots),
        "one slot too dear": hold_view(num_slots, due=200, live=220),
        "even": hold_view(num_slots, due=40, live=40 * num_slots),
    }
    for situation, view in situations.items():
        yield Case("Rebalance", situation, partial(rebalance.decide, HoldMemory(), view))


def hold_view(num_slots: int, due: int, live: int) -> HoldView:
    return HoldView(
        num_slots=num_slots,
        due=DecodeLoad(due, 1000 * due),
        live=DecodeLoad(live, 1000 * live),
        held=DecodeLoad(3, 3000),
        num_holdable=due,
        num_overdue=0,
        prefill_tokens=0,
        kv_free_ratio=0.5,
    )


def our_queue() -> Iterator[Case]:
    request = WaitingRequestView(10.0, 700)
    yield Case("Ageing", "per request", partial(Ageing().decide, request))
    triage = Triage(ttft_target_s=2.0)
    for num_waiting in (16, 256):
        waiting = tuple(
            WaitingRequestView(8.0 + 2.0 * index / num_waiting, 100 + 37 * index % 1500)
            for index in range(num_waiting)
        )
        view = TriageView(10.0, waiting, 0, 8000.0, passage_s=0.2)
        call = partial(triage.sort_out, view)
        yield Case("Triage", f"{num_waiting} hopeful", call, calls_per_round=200)


def our_fit() -> Iterator[Case]:
    state = start_fit(MODEL)
    sample = StepSample(300, StepFeatures(40_000.0, 70_000.0, 10_000.0), 0.04)
    yield Case("fitting.update", "per sample", partial(update, state, sample))


def fastpp(num_candidates: int, num_slots: int) -> Iterator[Case]:
    sizes = candidate_sizes(2048 // num_candidates, 2048, 2048 // num_candidates)
    predictive = FastppPredictive(
        2.0, 4.0, sizes, tuple(map(MODEL.table.at, sizes)), first_tokens=512
    )
    view = FastppView(
        slot_index=0,
        step_index=0,
        max_chunk_tokens=2048,
        slots=(SlotView(40, 40, 40_000),) * num_slots,
        waiting_prompts=(1000,) * (2 * num_slots + 1),
        kv_free_tokens=100_000,
        kv_pool_tokens=300_000,
        totals=LatencyTotals(5, 2.0, 5, 0.5),
        ttft_p90_s=None,
        tpot_p90_s=None,
        arrived_tokens=10**7,
        arrival_window_s=10.0,
        num_stale=0,
        stale_tokens=0,
        stale_wait_s=0.0,
    )
    memory = predictive.start()
    call = partial(predictive.decide, memory, view)
    yield Case("FastppPredictive", "all candidates", call, calls_per_round=100)
    greedy = FastppGreedy(2.0, 0.2)
    yield Case("FastppGreedy", "decides", partial(greedy.decide, greedy.start(), view))
    delay, slots = FastppDelay(0.2), (SlotView(140, 140, 140_000),) * num_slots
    delay_view = FastppDelayView(0, slots, 140, 0, 0.1, 0, 1.0)
    yield Case("FastppDelay", "in the band", partial(delay.decide, delay_view))


def measure(case: Case, num_rounds: int) -> Cost:
    best_s = float("inf")
    for _ in range(num_rounds):
        started = process_time()
        for _ in range(case.calls_per_round):
            case.call()
        best_s = min(best_s, (process_time() - started) / case.calls_per_round)
    return Cost(case.policy, case.situation, round(best_s * 1e6, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=7, help="rounds to take the best of")
    parser.add_argument("--candidates", type=int, default=64, help="chunk sizes to choose from")
    parser.add_argument("--slots", type=int, default=4, help="micro-batches in flight")
    options = parser.parse_args()
    cases = [
        *our_chunks(options.candidates, options.slots),
        *our_holds(options.slots),
        *our_queue(),
        *our_fit(),
        *fastpp(options.candidates, options.slots),
    ]
    costs = [measure(case, options.rounds) for case in cases]
    if options.json:
        print(json.dumps([asdict(cost) for cost in costs], indent=2))
        return
    print(f"{'policy':<18}{'situation':<42}{'µs':>8}")
    for cost in costs:
        print(f"{cost.policy:<18}{cost.situation:<42}{cost.decide_us:>8.1f}")


if __name__ == "__main__":
    main()
