"""What the scheduler itself costs per micro-batch: composing it and taking its tokens back.

    python bench/scheduler.py [--json] [--slots 4] [--rounds 7] [--triage]

All requests decode at contexts of about 1,000 tokens, in blocks of 16. Printed are microseconds of
CPU time per micro-batch, the median of several rounds, and what they come to per decode; pieces and
emissions are counted in, which the engine reads and the twin does not. With `--triage` the waiting
queue is sorted out as well, and everybody in it can still be in time, which is its dearest case.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from statistics import median
from time import process_time

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.ordering import Arrival, QueueOrder
from pipelineserve.policy.triage import Triage
from pipelineserve.scheduler.messages import MicroBatch, StepResult
from pipelineserve.scheduler.requests import NewRequest
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings

CONTEXT_TOKENS = 1000
BLOCK_TOKENS = 16
MICRO_BATCHES_PER_ROUND = 200
NUM_WAITING_CLIENTS = 64


@dataclass(frozen=True)
class Cost:
    """One row: what was run and what it took."""

    num_running: int
    num_waiting: int
    num_slots: int
    decodes_per_micro_batch: float
    compose_us: float
    complete_us: float


def make_scheduler(
    num_running: int, num_waiting: int, num_slots: int, num_steps: int, order: QueueOrder
) -> Scheduler:
    tokens_each = CONTEXT_TOKENS + num_steps + BLOCK_TOKENS
    scheduler = Scheduler(
        SchedulerSettings(
            num_slots=num_slots,
            max_chunk_tokens=8192,
            num_blocks=num_running * -(-tokens_each // BLOCK_TOKENS) + num_running,
            block_tokens=BLOCK_TOKENS,
            max_context_tokens=32_768,
            max_running_requests=num_running,
        ),
        Static(8192),
        order,
    )
    for index in range(num_running + num_waiting):
        prompt = tuple(range(index * 10_000, index * 10_000 + CONTEXT_TOKENS))
        client_id = f"client {index % NUM_WAITING_CLIENTS}"
        scheduler.submit(
            NewRequest(f"request {index}", prompt, num_steps, client_id=client_id), 0.0
        )
    return scheduler


def result_of(micro_batch: MicroBatch) -> StepResult:
    return StepResult(micro_batch.sequence, tuple(7 for _ in micro_batch.sampling_pieces))


def prefill(scheduler: Scheduler, num_running: int) -> None:
    """Bring every request that may run to its first token."""
    while scheduler.view(0, 0.0).num_decoding < num_running:
        micro_batch = scheduler.next_micro_batch(0, 0.0)
        assert micro_batch is not None  # noqa: S101 - else it would loop for ever
        scheduler.complete(0, result_of(micro_batch), 0.0)


def measure(
    num_running: int, num_waiting: int, num_slots: int, num_rounds: int, order: QueueOrder
) -> Cost:
    num_steps = (num_rounds + 1) * MICRO_BATCHES_PER_ROUND + num_slots
    scheduler = make_scheduler(num_running, num_waiting, num_slots, num_steps, order)
    prefill(scheduler, num_running)
    in_flight: dict[int, MicroBatch] = {}
    composing: list[float] = []
    completing: list[float] = []
    num_decodes = 0
    for _ in range(num_rounds + 1):
        compose_s = complete_s = 0.0
        for step in range(MICRO_BATCHES_PER_ROUND):
            slot_index = step % num_slots
            before = in_flight.pop(slot_index, None)
            if before is not None:
                result = result_of(before)
                started = process_time()
                tuple(scheduler.complete(slot_index, result, 1.0))
                complete_s += process_time() - started
            started = process_time()
            micro_batch = scheduler.next_micro_batch(slot_index, 1.0)
            num_decodes += 0 if micro_batch is None else len(micro_batch.pieces)
            compose_s += process_time() - started
            if micro_batch is not None:
                in_flight[slot_index] = micro_batch
        composing.append(compose_s / MICRO_BATCHES_PER_ROUND * 1e6)
        completing.append(complete_s / MICRO_BATCHES_PER_ROUND * 1e6)
    return Cost(
        num_running=num_running,
        num_waiting=num_waiting,
        num_slots=num_slots,
        decodes_per_micro_batch=num_decodes / ((num_rounds + 1) * MICRO_BATCHES_PER_ROUND),
        compose_us=round(median(composing[1:]), 1),  # the first round warms up
        complete_us=round(median(completing[1:]), 1),
    )


def show(costs: list[Cost]) -> None:
    titles = f"{'running':>8}{'waiting':>8}{'decodes':>8}{'compose µs':>12}{'complete µs':>12}"
    print(f"{titles}{'per decode µs':>14}")
    for cost in costs:
        both = cost.compose_us + cost.complete_us
        print(
            f"{cost.num_running:>8}{cost.num_waiting:>8}{cost.decodes_per_micro_batch:>8.1f}"
            f"{cost.compose_us:>12.1f}{cost.complete_us:>12.1f}"
            f"{both / max(1.0, cost.decodes_per_micro_batch):>14.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--slots", type=int, default=4, help="micro-batches in flight")
    parser.add_argument("--rounds", type=int, default=7, help="rounds to take the median of")
    parser.add_argument("--triage", action="store_true", help="order the queue by triage")
    options = parser.parse_args()
    loads = [(1, 0), (16, 0), (64, 0), (256, 0), (64, 512), (64, 950)]
    order = Triage(ttft_target_s=2.0) if options.triage else Arrival()
    costs = [
        measure(running, waiting, options.slots, options.rounds, order)
        for running, waiting in loads
    ]
    if options.json:
        print(json.dumps([asdict(cost) for cost in costs], indent=2))
    else:
        show(costs)


if __name__ == "__main__":
    main()
