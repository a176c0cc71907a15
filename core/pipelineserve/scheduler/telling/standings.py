"""How things stand: the scheduler, the policy in force and the live requests in one value."""

from typing import Protocol

from pipelineserve.policy.chunking import ChunkPolicy
from pipelineserve.policy.control.heard import Standing
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.views import SchedulerView
from pipelineserve.scheduler.messages import Census
from pipelineserve.scheduler.session import ControlSession
from pipelineserve.scheduler.telling.live_requests import LiveRequests
from pipelineserve.scheduler.telling.steps import StepAssembler


class Standable(Protocol):
    """What is asked how things stand: our scheduler, or the mirror of another engine's."""

    @property
    def num_held(self) -> int:
        """Decodes kept out of micro-batches for now."""
        ...

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that wait, of started prompts as well."""
        ...

    @property
    def chunk_policy(self) -> ChunkPolicy:
        """The chunk policy in force."""
        ...

    def view(self, slot_index: int, now_s: float) -> SchedulerView:
        """What policies see."""
        ...

    def census(self) -> Census:
        """Every request, counted once."""
        ...

    def arrived_tokens(self, now_s: float) -> tuple[int, float]:
        """Prompt tokens that arrived lately, and the seconds that lately means."""
        ...


# In which a backlog should be gone when no policy in force says so; a fifth of a 2 s TTFT target.
_HORIZON_S = 0.4


def standing_of(
    scheduler: Standable,
    session: ControlSession,
    live_requests: LiveRequests,
    steps: StepAssembler,
    now_s: float,
) -> Standing:
    """How things stand at this moment."""
    view = scheduler.view(0, now_s)
    even_decodes = -(-view.num_decoding // view.num_slots)
    return Standing(
        engine_now_s=now_s,
        num_waiting=view.num_waiting,
        waiting_tokens=view.waiting_tokens,
        num_running=scheduler.census().running,
        num_decoding=view.num_decoding,
        num_held=scheduler.num_held,
        kv_free_ratio=view.kv_free_ratio,
        oldest_wait_s=live_requests.oldest_wait_s(now_s),
        running_tpot_s=live_requests.tpot_percentiles_s(now_s),
        policy_epoch=session.in_force.epoch,
        policy_sequence=session.in_force.sequence,
        lease_left_s=session.lease_left_s(now_s),
        demand_tokens_per_s=_demand_tokens_per_s(scheduler, now_s),
        capacity_tokens_per_s=steps.capacity_tokens_per_s,
        # With one slot none may be in flight: its share of the pool stands in.
        most_decodes=max(steps.most_decodes, even_decodes),
    )


def _demand_tokens_per_s(scheduler: Standable, now_s: float) -> float:
    """As `Predictive.required_tokens_per_s` has it."""
    policy = scheduler.chunk_policy
    horizon_s = policy.horizon_s if isinstance(policy, Predictive) else _HORIZON_S
    arrived_tokens, window_s = scheduler.arrived_tokens(now_s)
    return max(scheduler.prefill_tokens / horizon_s, arrived_tokens / window_s)
