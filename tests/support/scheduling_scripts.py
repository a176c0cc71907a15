"""Long random scripts that keep every slot and block in use; one seed, one script."""

from collections.abc import Callable
from random import Random

from pipelineserve.policy.admission import Counted, KnownLengths
from pipelineserve.policy.assignment import DecodeAssignment, OnePool, SlotBound
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.ordering import Ageing
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.preemption import (
    AlwaysRecompute,
    AlwaysSwap,
    ByCost,
    KvCosts,
    PreemptionPolicy,
)
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.policy.step_time import StepCoefficients, StepTimeModel, StepTimeTable
from pipelineserve.policy.triage import Triage
from pipelineserve.scheduler.requests import NewRequest
from pipelineserve.scheduler.settings import SchedulerSettings
from scheduling import VOCABULARY, Pipeline, make_request, make_settings

# Prompts are cut from few stems, so that many share a prefix or are equal.
STEMS = ((0,) * 70, (0, 1) * 35, (0, 1, 2, 3, 3, 2, 1) * 10)


PREEMPTIONS: tuple[PreemptionPolicy, ...] = (ByCost(), AlwaysRecompute(), AlwaysSwap())
# Blocks of more than two tokens are cheaper to copy out and in than to compute again.
ASSIGNMENTS: tuple[DecodeAssignment, ...] = (OnePool(), OnePool(0.5), SlotBound())
ADMISSIONS = (*[None] * 4, KnownLengths(), KnownLengths(Counted.SLOT))
COSTS = KvCosts(recompute_s_per_token=1.0, copy_s_per_block=1.0)


_MODEL = StepTimeModel(
    StepTimeTable((1, 2, 3, 8, 64), (0.1, 0.1, 0.5, 0.6, 2.0)), StepCoefficients(1.0, 1e-3, 1e-4)
)
POLICIES = (
    SchedulingPolicy(Static(5)),
    SchedulingPolicy(Static(64), Ageing(0.5)),
    SchedulingPolicy(Predictive(_MODEL, (1, 4, 16, 64), 1.0), Ageing(0.1)),
    SchedulingPolicy(Static(30), Triage(3.0)),
    SchedulingPolicy(Predictive(_MODEL, (4, 16, 64), 1.0), Triage(20.0, 0.3)),
    SchedulingPolicy(
        Static(40),
        holding=Rebalance(
            HoldMode.E2E_FIRST,
            _MODEL,
            (2,),
            3.0,
            9.0,
            least_kv_free_ratio=0.0,
            relaxed_kv_free_ratio=0.0,
        ),
    ),
    SchedulingPolicy(
        Predictive(_MODEL, (8, 32), None),
        holding=Rebalance(HoldMode.TPOT_FIRST, _MODEL, (), 5.0, 5.0),
    ),
)


def run_dense_script(random: Random, check: Callable[[Pipeline], None]) -> Pipeline:
    """Keep more requests waiting than run, end some at any moment; check after every step."""
    pipeline = Pipeline(
        draw_settings(random),
        chunk_tokens=random.randint(1, 64),
        preemption=random.choice(PREEMPTIONS),
        costs=COSTS,
        assignment=random.choice(ASSIGNMENTS),
        admission=random.choice(ADMISSIONS),
    )
    pipeline.scheduler.adopt(random.choice(POLICIES))
    for index in range(150):
        pipeline.now_s += random.random()
        if random.random() < 0.6:
            pipeline.submit(draw_request(random, index, pipeline.settings))
        if pipeline.free_slots and random.random() < 0.8:
            pipeline.launch(random.choice(pipeline.free_slots))
        if pipeline.flights and random.random() < 0.6:
            pipeline.complete()
        if pipeline.live and random.random() < 0.08:
            end_early = random.choice([pipeline.cancel, pipeline.finish])
            end_early(random.choice(sorted(pipeline.live)))
        if random.random() < 0.1:
            pipeline.scheduler.adopt(random.choice(POLICIES))
        if random.random() < 0.02:
            random.choice([pipeline.fail_all, pipeline.recall_all])()
        check(pipeline)
    pipeline.drain()
    return pipeline


def draw_settings(random: Random) -> SchedulerSettings:
    """Draw sizes with a pool that has barely room for one request, or a little more."""
    block_tokens = random.randint(1, 8)
    longest = random.randint(10, 60)
    return make_settings(
        num_slots=random.randint(1, 5),
        num_blocks=-(-longest // block_tokens) + random.choice([0, 0, 1, 3, 10, 60]),
        block_tokens=block_tokens,
        max_context_tokens=longest,
        max_waiting_requests=random.randint(1, 10),
        max_running_requests=random.choice([2, 5, 20]),
        num_host_blocks=random.choice([0, 3, 10, 100, 100]),
        shares_prefixes=random.random() < 0.75,
    )


def draw_request(random: Random, index: int, settings: SchedulerSettings) -> NewRequest:
    """Draw a request that often shares a prefix with others and sometimes does not fit."""
    num_tokens = random.randint(1, settings.max_request_tokens)
    tail = random.choices(range(VOCABULARY), k=random.randint(0, 3))
    return make_request(
        f"request-{index % 20}",
        (*random.choice(STEMS)[:num_tokens], *tail),
        max_output_tokens=random.choice([None, 1, 5, 20]),
        stop_token_ids=random.choice([(), (), (3,)]),
        client_id=random.choice(["anna", "bert", "carl"]),
        priority=random.randint(0, 2),
    )


def transcript(seed: int) -> str:
    """Every micro-batch of a script, in full."""
    pipeline = run_dense_script(Random(seed), check=lambda _: None)
    return "\n".join(repr(micro_batch) for micro_batch in pipeline.launched)
