"""The engine's side of control: it tells what happens, takes policies in and ends their leases."""

from collections.abc import Callable
from math import inf

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.control.heard import Capability, EngineFacts
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.scheduler.emissions import Emissions
from pipelineserve.scheduler.leases import Adopted, LeaseKeeper
from pipelineserve.scheduler.messages import MicroBatch
from pipelineserve.scheduler.requests import NewRequest
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.session import ControlSession
from pipelineserve.scheduler.telling.collecting import Batch, Collector
from pipelineserve.scheduler.telling.live_requests import LiveRequests
from pipelineserve_simulator.control.settings import ControlSettings, LeaseEnded, PolicyAdopted
from pipelineserve_simulator.kernel.ticks import TICKS_PER_S, to_seconds
from pipelineserve_simulator.pipeline.control import ControlledRun
from pipelineserve_simulator.pipeline.conveyor import Rank
from pipelineserve_simulator.pipeline.passage import Passage

_TICK_S = 1.0 / TICKS_PER_S


class EngineSide:
    """What the engine's desk, recorder and observer are, on virtual time.

    Args:
        scheduler: runs on its static chunk, which comes back when a lease ends.
        settings: whom to tell of adopted policies and ended leases.
        run: where things are planned.
        tell: takes each batch of records.

    Raises:
        TypeError: the scheduler has another chunk policy.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        settings: ControlSettings,
        run: ControlledRun,
        tell: Callable[[Batch], None],
    ) -> None:
        if not isinstance(scheduler.chunk_policy, Static):
            got = type(scheduler.chunk_policy).__name__
            raise TypeError(f"expected a scheduler with a static chunk to return to, got {got}")
        self._static_chunk_tokens = scheduler.chunk_policy.chunk_tokens
        self._scheduler = scheduler
        self._settings = settings
        self._run = run
        self._tell = tell
        self._session = ControlSession(first_epoch=1)
        default = SchedulingPolicy(scheduler.chunk_policy)
        self._leases = LeaseKeeper(scheduler, self._session, default)
        self._live_requests = LiveRequests()
        self._collector = Collector(run.num_stages, scheduler, self._session, self._live_requests)
        self._tells_at_s = inf
        self._has_planned_end = False

    # What a controller asks for

    def open(self, now_s: float) -> EngineFacts:
        """Begin a session, and tell from now on."""
        self._collector.begin(now_s)
        self._plan_telling(now_s)
        sizes = self._scheduler.settings
        return EngineFacts(
            name="twin",
            version="1",
            epoch=self._session.open(),
            num_stages=self._run.num_stages,
            num_slots=sizes.num_slots,
            max_chunk_tokens=sizes.max_chunk_tokens,
            static_chunk_tokens=self._static_chunk_tokens,
            block_tokens=sizes.block_tokens,
            kv_tokens=sizes.num_blocks * sizes.block_tokens,
            capabilities=tuple(Capability),
        )

    def close(self) -> None:
        """Nobody is told any more; the policy in force holds for the rest of its lease."""
        self._collector.end()

    def apply(self, epoch: int, sequence: int, leased: LeasedPolicy, now_s: float) -> bool:
        """Put a policy in force; whether it is."""
        is_adopted = isinstance(self._leases.apply(epoch, sequence, leased, now_s), Adopted)
        if is_adopted:
            self._plan_lease_end(now_s)
            self._settings.note(PolicyAdopted(now_s, leased))
        return is_adopted

    # What happens around the scheduler

    def accepted(self, request: NewRequest, now_s: float) -> None:
        """See `Control.on_accepted`."""
        self._live_requests.on_accepted(request, now_s)

    def rejected(self, num_prompt_tokens: int, now_s: float) -> None:
        """See `Control.on_rejected`."""
        self._collector.rejected(num_prompt_tokens, now_s)
        self._plan_telling(now_s)

    def sent(self, micro_batch: MicroBatch, now_s: float) -> None:
        """See `Control.on_sent`."""
        self._collector.sent(micro_batch, now_s)

    def back(self, passage: Passage, emissions: Emissions, now_s: float) -> None:
        """See `Control.on_back`."""
        sequence = passage.micro_batch.sequence
        spans = zip(passage.starts_ticks, passage.ends_ticks, strict=True)
        for stage_index, (start, end) in enumerate(spans):
            self._collector.stepped(sequence, stage_index, to_seconds(start), to_seconds(end))
        self._collector.completed(sequence, now_s, self._scheduler.num_in_flight)
        for emission in emissions:
            self._live_requests.on_emission(emission, now_s)
            if emission.record is not None:
                self._live_requests.on_ended(emission.record)
                self._collector.ended(emission.record)
        self._plan_telling(now_s)

    def stages_lost(self) -> None:
        """See `Control.on_stages_lost`."""
        self._collector.stages_lost()

    # What is planned

    def _plan_telling(self, now_s: float) -> None:
        """Be there when the next batch is due; what was planned for later stays harmless."""
        at_s = now_s + max(0.0, self._collector.due_in_s(now_s))
        if at_s < self._tells_at_s:
            self._tells_at_s = at_s
            self._run.agenda(at_s, Rank.TELLING, self._tell_what_is_due)

    def _tell_what_is_due(self, now_s: float) -> None:
        if now_s >= self._tells_at_s - _TICK_S:
            self._tells_at_s = inf
        # A tick is as near as virtual time comes to a sum of seconds.
        if self._collector.due_in_s(now_s) <= _TICK_S:
            self._tell(self._collector.take(now_s))
        self._plan_telling(now_s)

    def _plan_lease_end(self, now_s: float) -> None:
        """Be there when the lease ends; one that was renewed meanwhile ends later."""
        if self._has_planned_end:
            return
        self._has_planned_end = True
        left_s = max(_TICK_S, self._session.lease_left_s(now_s))
        self._run.agenda(now_s + left_s, Rank.LEASE, self._end_lease)

    def _end_lease(self, now_s: float) -> None:
        self._has_planned_end = False
        if self._leases.lapse(now_s):
            self._settings.note(LeaseEnded(now_s))
        else:
            self._plan_lease_end(now_s)
