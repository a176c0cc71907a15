"""Random lives of a scheduler; whatever happens, nothing is lost, mixed up or overwritten."""

from collections import Counter
from collections.abc import Callable
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pipelineserve.policy.admission import KnownLengths
from pipelineserve.policy.assignment import DecodeAssignment
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.preemption import UNMEASURED, KvCosts, PreemptionPolicy
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.scheduler.messages import CopyDirection
from pipelineserve.scheduler.requests import NewRequest, RequestRecord
from pipelineserve.scheduler.settings import SchedulerSettings
from scheduling import VOCABULARY, Pipeline, make_request, make_settings
from scheduling_invariants import check_drained, check_running
from scheduling_scripts import (
    ADMISSIONS,
    ASSIGNMENTS,
    COSTS,
    POLICIES,
    PREEMPTIONS,
    STEMS,
    run_dense_script,
)

SETTINGS = st.builds(
    make_settings,
    num_slots=st.integers(1, 5),
    max_chunk_tokens=st.integers(1, 64),
    num_blocks=st.integers(1, 24),
    block_tokens=st.integers(1, 8),
    max_context_tokens=st.integers(2, 64),
    max_waiting_requests=st.integers(1, 8),
    max_running_requests=st.integers(1, 8),
    num_host_blocks=st.integers(0, 24),
)
REACHED = ("preemptions", "swaps", "cached_tokens", "rejected", "cancelled", "failed", "finished")
PREEMPTION_REASONS = (
    Reason.SWAP_IS_CHEAPER,
    Reason.RECOMPUTE_IS_CHEAPER,
    Reason.NO_HOST_BLOCKS,
    Reason.FIXED_PREEMPTION,
)
EndEarly = Callable[[Pipeline, str], RequestRecord | None]
REQUEST_IDS = st.sampled_from([f"request-{index}" for index in range(12)])


@st.composite
def prompts(draw: st.DrawFn) -> tuple[int, ...]:
    stem = draw(st.sampled_from(STEMS))
    tail = draw(st.lists(st.integers(0, VOCABULARY - 1), max_size=3))
    return (*stem[: draw(st.integers(0, 66))], *tail)


REQUESTS = st.builds(
    make_request,
    request_id=REQUEST_IDS,
    prompt=prompts(),
    max_output_tokens=st.one_of(st.none(), st.integers(0, 24)),
    stop_token_ids=st.sets(st.integers(0, VOCABULARY - 1), max_size=1),
    client_id=st.sampled_from(["anna", "bert", "carl"]),
    priority=st.integers(0, 2),
)


class SchedulerLife(RuleBasedStateMachine):
    """Arrivals, ends at any moment, completions in the pipeline's order, lost executors."""

    @initialize(
        settings=SETTINGS,
        chunk_tokens=st.integers(1, 64),
        preemption=st.sampled_from(PREEMPTIONS),
        costs=st.sampled_from([UNMEASURED, COSTS]),
        decodes_and_starts=st.tuples(st.sampled_from(ASSIGNMENTS), st.sampled_from(ADMISSIONS)),
    )
    def start(
        self,
        settings: SchedulerSettings,
        chunk_tokens: int,
        preemption: PreemptionPolicy,
        costs: KvCosts,
        decodes_and_starts: tuple[DecodeAssignment, KnownLengths | None],
    ) -> None:
        """Draw the sizes."""
        assignment, admission = decodes_and_starts
        self.pipeline = Pipeline(
            settings,
            chunk_tokens=chunk_tokens,
            preemption=preemption,
            costs=costs,
            assignment=assignment,
            admission=admission,
        )

    @rule(new=REQUESTS)
    def submit(self, new: NewRequest) -> None:
        """Ask for one request."""
        self.pipeline.submit(new)

    @rule(base=REQUESTS, number=st.integers(2, 6), wait_s=st.floats(0.0, 5.0))
    def submit_burst(self, base: NewRequest, number: int, wait_s: float) -> None:
        """Ask for several requests with one prompt."""
        self.pipeline.now_s += wait_s
        for index in range(number):
            self.pipeline.submit(
                make_request(
                    f"{base.request_id}-{index}",
                    base.prompt_token_ids,
                    max_output_tokens=base.max_output_tokens,
                    priority=index % 2,
                )
            )

    @precondition(lambda self: self.pipeline.free_slots)
    @rule(data=st.data())
    def launch(self, data: st.DataObject) -> None:
        """Compose for any free slot."""
        slot_index = data.draw(st.sampled_from(self.pipeline.free_slots))
        launched = self.pipeline.launch(slot_index)
        if launched is None and self.pipeline.scheduler.assignment.is_slot_bound:
            self.pipeline.fill()  # another slot may have what this one lacks
        if launched is None and not self.pipeline.flights:
            assert not self.pipeline.live, "nothing is in flight and nothing can be composed"

    @rule()
    def fill(self) -> None:
        """Compose for all free slots."""
        self.pipeline.fill()

    @precondition(lambda self: self.pipeline.flights)
    @rule(wait_s=st.floats(0.0, 1.0))
    def complete(self, wait_s: float) -> None:
        """Bring back the oldest micro-batch."""
        self.pipeline.now_s += wait_s
        self.pipeline.complete()

    @rule(number=st.integers(1, 12))
    def run(self, number: int) -> None:
        """Let time pass under full load."""
        for _ in range(number):
            self.pipeline.fill()
            if self.pipeline.flights:
                self.pipeline.complete()

    @precondition(lambda self: self.pipeline.live)
    @rule(
        data=st.data(),
        end=st.sampled_from([Pipeline.cancel, Pipeline.finish, Pipeline.fail]),
    )
    def end_early(self, data: st.DataObject, end: EndEarly) -> None:
        """Cancel, finish or fail a live request."""
        request_id = data.draw(st.sampled_from(sorted(self.pipeline.live)))
        assert end(self.pipeline, request_id) is not None

    @rule(request_id=REQUEST_IDS)
    def cancel_whoever(self, request_id: str) -> None:
        """Cancel a name, live or not."""
        self.pipeline.cancel(request_id)

    @rule(chunk_tokens=st.integers(1, 64))
    def change_chunk(self, chunk_tokens: int) -> None:
        """Apply another budget from the next micro-batch on."""
        self.pipeline.scheduler.chunk_policy = Static(chunk_tokens)

    @rule(policy=st.sampled_from(POLICIES))
    def adopt(self, policy: SchedulingPolicy) -> None:
        """Schedule by another policy from the next micro-batch on."""
        assert self.pipeline.scheduler.adopt(policy) == len(self.pipeline.launched)

    @precondition(lambda self: len(self.pipeline.launched) % 7 == 6)
    @rule()
    def fail_all(self) -> None:
        """Lose the executor, now and then."""
        self.pipeline.fail_all()

    @precondition(lambda self: len(self.pipeline.launched) % 5 == 4)
    @rule()
    def recall_all(self) -> None:
        """Lose the executor and get another one, now and then."""
        self.pipeline.recall_all()

    @invariant()
    def holds(self) -> None:
        """Check between any two calls."""
        check_running(self.pipeline)

    def teardown(self) -> None:
        """Every request ends in the end."""
        self.pipeline.drain()
        check_drained(self.pipeline)


TestSchedulerLife = SchedulerLife.TestCase


def test_dense_scripts_reach_what_they_are_for() -> None:
    """Hypothesis likes short scripts; these are long, and show that they reach the rare cases."""
    reached: Counter[str | CopyDirection | Reason] = Counter()
    for seed in range(4 * settings().max_examples):
        pipeline = run_dense_script(Random(seed), check_running)
        check_drained(pipeline)
        copies = [copy for launched in pipeline.launched for copy in launched.copies]
        reached.update(copy.direction for copy in copies)
        tally = pipeline.scheduler.tally
        reached.update({what: getattr(tally, what) for what in REACHED})
        reached.update(d.reason for d in tally.preemption_decisions.elements())
        records = [tracked.record for tracked in pipeline.accepted if tracked.record is not None]
        reached["held"] += sum(record.held_s > 0.0 for record in records)
    for what in (*REACHED, *CopyDirection, "held"):
        assert reached[what] > 20, what
    for reason in PREEMPTION_REASONS:
        assert reached[reason] > 5, reason
