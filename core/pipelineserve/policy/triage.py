"""Triage of the waiting queue: when not all can meet their TTFT target, the largest go to the back.

Moore and Hodgson's rule (Management Science 15, 1968): going by deadline, whenever one would be
late, drop the largest so far. For one server it keeps the largest number of jobs in time. The price
is paid by long prompts, which therefore keep a share of the work, oldest first.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.views import WaitingRequestView


@dataclass(frozen=True, slots=True)
class TriageView:
    """The waiting requests of one priority class, one by one: this law needs their sizes.

    Attributes:
        now_s: the time passed to the scheduler.
        waiting: those requests, in any fixed order.
        tokens_ahead: prompt tokens that go first whatever is decided: what is left of started
            prompts, which are never interrupted, and of preempted requests.
        tokens_per_s: prefill that can be promised, above 0 (`Predictive.promised_tokens_per_s`).
    """

    now_s: float
    waiting: tuple[WaitingRequestView, ...]
    tokens_ahead: int
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class TriageMemory:
    """Tokens of prefill that are owed to those who are late; below 0 when they had more."""

    credit_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class TriageDecision:
    """The order in which waiting requests start.

    Attributes:
        order: indices into the view's `waiting`, first to last.
        late: those of them that are not expected in time, ascending.
        reason: IN_TIME if the first one is, LATE_SHARE if it is owed to those who are late,
            LATE if nobody is in time.
    """

    order: tuple[int, ...]
    late: tuple[int, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class Triage:
    """Decides anew each time from nothing: being late is no lasting mark, a lull takes it back.

    One decision costs n · log n for n waiting requests; it need not be made for a micro-batch in
    which the queue has not changed and nobody starts.

    Attributes:
        ttft_target_s: from arrival to the first token.
        passage_s: from launching a prompt's last piece to its token: one cycle.
        late_share_ratio: share of prefill tokens kept for those who are late.
        most_credit_tokens: what may be owed to them at most.
        least_credit_tokens: what they may have had beyond their share at most, below 0.
    """

    ttft_target_s: float
    passage_s: float
    late_share_ratio: float = 0.05
    most_credit_tokens: float = 4000.0
    least_credit_tokens: float = -20_000.0

    def decide(self, memory: TriageMemory, view: TriageView) -> TriageDecision:
        """Those in time by deadline, then the others by arrival; who is owed goes first."""
        by_arrival = sorted(
            range(len(view.waiting)), key=lambda index: view.waiting[index].arrival_s
        )
        late = self._late(view, by_arrival)
        in_time = [index for index in by_arrival if index not in late]
        behind = [index for index in by_arrival if index in late]
        reason = Reason.IN_TIME if in_time else Reason.LATE
        if in_time and behind and memory.credit_tokens > 0.0:
            in_time.insert(0, behind.pop(0))
            reason = Reason.LATE_SHARE
        return TriageDecision((*in_time, *behind), tuple(sorted(late)), reason)

    def charge(
        self, memory: TriageMemory, *, in_time_tokens: int, late_tokens: int
    ) -> TriageMemory:
        """Account for the prefill tokens of one micro-batch."""
        share = self.late_share_ratio
        credit = memory.credit_tokens + share * in_time_tokens - (1.0 - share) * late_tokens
        return TriageMemory(min(self.most_credit_tokens, max(self.least_credit_tokens, credit)))

    def _late(self, view: TriageView, by_arrival: Iterable[int]) -> set[int]:
        """Who is not expected in time; deadlines are in the order of arrivals."""
        done_s = view.now_s + view.tokens_ahead / view.tokens_per_s
        late: set[int] = set()
        largest_first: list[tuple[int, int]] = []
        for index in by_arrival:
            request = view.waiting[index]
            done_s += request.remaining_tokens / view.tokens_per_s
            heappush(largest_first, (-request.remaining_tokens, index))
            while (
                largest_first and done_s + self.passage_s > request.arrival_s + self.ttft_target_s
            ):
                negative_tokens, dropped = heappop(largest_first)
                done_s += negative_tokens / view.tokens_per_s
                late.add(dropped)
        return late
