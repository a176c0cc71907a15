"""How things stand: the scheduler, the policy in force and the live requests in one message."""

from pipelineserve.policy.predictive import Predictive
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.session import ControlSession
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve_engine.control.live_requests import LiveRequests
from pipelineserve_engine.control.steps import StepAssembler

# In which a backlog should be gone when no policy in force says so; a fifth of a 2 s TTFT target.
_HORIZON_S = 0.4


class SnapshotSource:
    """Reads snapshots off what the engine's thread owns; to be called in that thread."""

    def __init__(
        self, scheduler: Scheduler, session: ControlSession, live_requests: LiveRequests
    ) -> None:
        self._scheduler = scheduler
        self._session = session
        self._live_requests = live_requests

    def at(self, now_s: float, steps: StepAssembler) -> pb.Snapshot:
        """The snapshot of this moment."""
        view = self._scheduler.view(0, now_s)
        even_decodes = -(-view.num_decoding // view.num_slots)
        return pb.Snapshot(
            num_waiting=view.num_waiting,
            waiting_tokens=view.waiting_tokens,
            num_running=self._scheduler.census().running,
            num_decoding=view.num_decoding,
            num_held=self._scheduler.num_held,
            kv_free_ratio=view.kv_free_ratio,
            oldest_wait_s=self._live_requests.oldest_wait_s(now_s),
            running_tpot_s=self._live_requests.tpot_percentiles_s(now_s),
            policy_epoch=self._session.in_force.epoch,
            policy_sequence=self._session.in_force.sequence,
            lease_left_s=self._session.lease_left_s(now_s),
            demand_tokens_per_s=self._demand_tokens_per_s(now_s),
            capacity_tokens_per_s=steps.capacity_tokens_per_s,
            # With one slot none may be in flight: its share of the pool stands in.
            most_decodes=max(steps.most_decodes, even_decodes),
        )

    def _demand_tokens_per_s(self, now_s: float) -> float:
        """As `Predictive.required_tokens_per_s` has it."""
        policy = self._scheduler.chunk_policy
        horizon_s = policy.horizon_s if isinstance(policy, Predictive) else _HORIZON_S
        arrived_tokens, window_s = self._scheduler.arrived_tokens(now_s)
        return max(self._scheduler.prefill_tokens / horizon_s, arrived_tokens / window_s)
