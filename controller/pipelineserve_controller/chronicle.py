"""The recent past for the screen: one point a second, and the decisions that changed something."""

from collections import deque

from pipelineserve.policy.control.observation import Observation
from pipelineserve.policy.control.turns import Turn
from pipelineserve_controller.facts import fact_texts, policy_text
from pipelineserve_controller.state import (
    MAX_DECISIONS,
    MAX_HISTORY,
    DecisionState,
    HistoryPoint,
)

POINT_PERIOD_S = 1.0


class Chronicle:
    """Bounded in time and number."""

    def __init__(self) -> None:
        self._points: deque[HistoryPoint] = deque(maxlen=MAX_HISTORY)
        self._decisions: deque[DecisionState] = deque(maxlen=MAX_DECISIONS)

    @property
    def history(self) -> tuple[HistoryPoint, ...]:
        """Oldest first."""
        return tuple(self._points)

    @property
    def decisions(self) -> tuple[DecisionState, ...]:
        """Newest first."""
        return tuple(self._decisions)

    def note(self, observation: Observation, turn: Turn, unix_s: float) -> DecisionState | None:
        """Take in one turn; returns its decision if it is another than the one before."""
        if not self._points or unix_s - self._points[-1].at_unix_s >= POINT_PERIOD_S:
            self._points.append(_point(observation, unix_s))
        decision = DecisionState(
            at_unix_s=unix_s,
            summary=policy_text(turn.policy),
            reason=turn.reason.value,
            facts=fact_texts(turn.facts),
            is_sent=turn.is_to_send,
        )
        if self._decisions and _is_same(self._decisions[0], decision):
            return None
        self._decisions.appendleft(decision)
        return decision


def _is_same(old: DecisionState, new: DecisionState) -> bool:
    return (old.summary, old.reason, old.is_sent) == (new.summary, new.reason, new.is_sent)


def _point(observation: Observation, unix_s: float) -> HistoryPoint:
    """What was known then; what is no longer fresh leaves a gap."""
    is_known = observation.age_s is not None and observation.age_s < POINT_PERIOD_S + 2.0
    standing = observation.standing if is_known else None
    step = observation.last_step if is_known else None
    return HistoryPoint(
        at_unix_s=unix_s,
        chunk_tokens=step.chunk_tokens if step else None,
        ttft_s=observation.recent_ttft_s,
        tpot_s=observation.recent_tpot_s if is_known else None,
        demand_tokens_per_s=standing.demand_tokens_per_s if standing else None,
        # 0 is what an engine says before its first micro-batch: it is not known yet.
        capacity_tokens_per_s=(standing.capacity_tokens_per_s or None) if standing else None,
        num_waiting=standing.num_waiting if standing else None,
        num_running=standing.num_running if standing else None,
        num_held=standing.num_held if standing else None,
        kv_free_ratio=standing.kv_free_ratio if standing else None,
    )
