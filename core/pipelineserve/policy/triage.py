"""Triage of the waiting queue: when not all can meet their TTFT target, the largest go to the back.

Moore and Hodgson's rule (Management Science 15, 1968): going by deadline, whenever one would be
late, drop the largest so far. For one server it keeps the largest number of jobs in time. The price
is paid by long prompts, which therefore keep a share of the work, oldest first.
"""

from dataclasses import dataclass
from heapq import heappop, heappush

from pipelineserve.policy.ordering import PositionDecision
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.views import WaitingRequestView


@dataclass(frozen=True, slots=True)
class TriageView:
    """Waiting requests of one priority class, one by one: this law needs their sizes.

    Attributes:
        now_s: the time passed to the scheduler.
        waiting: those requests by arrival, which is by deadline. Those whose deadline has passed
            may be left out: they are late whatever else waits, and change nothing for the others.
        tokens_ahead: prompt tokens that go first whatever is decided: what is left of started
            prompts, which are never interrupted, and of preempted requests.
        tokens_per_s: prefill that can be promised, above 0; infinite where nothing is known.
        passage_s: from launching a prompt's last piece to its token: one cycle.
    """

    now_s: float
    waiting: tuple[WaitingRequestView, ...]
    tokens_ahead: int
    tokens_per_s: float
    passage_s: float


@dataclass(frozen=True, slots=True)
class TriageMemory:
    """Tokens of prefill that are owed to those who are late; below 0 when they had more."""

    credit_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class TriageDecision:
    """Who is not expected in time: indices into the view's `waiting`, ascending.

    The others are, if they go by arrival.
    """

    late: tuple[int, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class TurnDecision:
    """Whether one of those who are late starts next, rather than one of those in time."""

    is_late_turn: bool
    reason: Reason


@dataclass(frozen=True, slots=True)
class Triage:
    """Decides anew each time from nothing: being late is no lasting mark, a lull takes it back.

    Attributes:
        ttft_target_s: from arrival to the first token.
        late_share_ratio: share of prefill tokens kept for those who are late.
        most_credit_tokens: what may be owed to them at most.
        least_credit_tokens: what they may have had beyond their share at most, below 0.
    """

    ttft_target_s: float
    late_share_ratio: float = 0.05
    most_credit_tokens: float = 4000.0
    least_credit_tokens: float = -20_000.0

    def decide(self, view: WaitingRequestView) -> PositionDecision:
        """Among those in time, and among those who are late, the order is that of arrival."""
        return PositionDecision(view.arrival_s, Reason.ARRIVAL_ORDER)

    def sort_out(self, view: TriageView) -> TriageDecision:
        """Find who is late; n · log n for n waiting requests."""
        done_s = view.now_s + view.tokens_ahead / view.tokens_per_s
        latest_s = self.ttft_target_s - view.passage_s
        late: list[int] = []
        largest_first: list[tuple[int, int]] = []
        for index, request in enumerate(view.waiting):
            done_s += request.remaining_tokens / view.tokens_per_s
            heappush(largest_first, (-request.remaining_tokens, index))
            while largest_first and done_s > request.arrival_s + latest_s:
                negative_tokens, dropped = heappop(largest_first)
                done_s += negative_tokens / view.tokens_per_s
                late.append(dropped)
        return TriageDecision(tuple(sorted(late)), Reason.LATE if late else Reason.IN_TIME)

    def turn(self, memory: TriageMemory, *, num_in_time: int, num_late: int) -> TurnDecision:
        """Those in time go first, but for the share that is owed to the others."""
        if num_late == 0:
            return TurnDecision(is_late_turn=False, reason=Reason.IN_TIME)
        if num_in_time == 0:
            return TurnDecision(is_late_turn=True, reason=Reason.LATE)
        if memory.credit_tokens > 0.0:
            return TurnDecision(is_late_turn=True, reason=Reason.LATE_SHARE)
        return TurnDecision(is_late_turn=False, reason=Reason.IN_TIME)

    def charge(
        self, memory: TriageMemory, *, in_time_tokens: int, late_tokens: int
    ) -> TriageMemory:
        """Account for prompts that start: all their tokens at once, since none is interrupted."""
        share = self.late_share_ratio
        credit = memory.credit_tokens + share * in_time_tokens - (1.0 - share) * late_tokens
        return TriageMemory(min(self.most_credit_tokens, max(self.least_credit_tokens, credit)))
