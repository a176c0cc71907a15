"""Carries out triage of the waiting queue at a cost that does not grow with the queue.

Who is past the deadline is late for good and is looked at no more; a queue that is long for an
overload's sake is one of such requests. Of those that can still be in time there are as many as
arrive within one TTFT target. They are sorted out before each micro-batch as long as they are few,
and before every n-th where a burst makes them many: a decision stays right for as long as prompts
are served at the pace that it foresaw, since who starts moves from those who wait to what goes
ahead of them, and who arrives goes behind them all. So a micro-batch costs what some 64 requests
cost, however many wait.
"""

from itertools import takewhile
from typing import Any

from pipelineserve.policy.triage import Triage, TriageMemory, TriageView
from pipelineserve.policy.views import WaitingRequestView
from pipelineserve.scheduler.pace import PrefillPace
from pipelineserve.scheduler.requests import Request

_REQUESTS_PER_MICRO_BATCH = 64

_Hopeful = dict[str, tuple[Request, WaitingRequestView]]


class Triaging:
    """Who of the waiting is late, and what is owed to them.

    Attributes:
        policy: the order in force.
        pace: measured while the order is in force.
    """

    def __init__(self, policy: Triage) -> None:
        self.policy = policy
        self.pace = PrefillPace()
        self._memory = TriageMemory()
        # By priority: those that never ran and are not past their deadline, by arrival; as many of
        # them as are expected late all the same; and those that ran before, which go first.
        self._hopeful: dict[int, _Hopeful] = {}
        self._late: dict[int, dict[str, Request]] = {}
        self._preempted: dict[int, dict[str, Request]] = {}
        self._num_to_skip = 0

    def join(self, request: Request) -> None:
        """A request begins to wait, and counts as in time until it is sorted out."""
        priority, request_id = request.new.priority, request.request_id
        if request.num_requeues:
            self._preempted.setdefault(priority, {})[request_id] = request
            return
        view = WaitingRequestView(request.arrival_s, request.num_remaining)
        self._hopeful.setdefault(priority, {})[request_id] = (request, view)

    def leave(self, request: Request) -> None:
        """A request waits no more."""
        for group in (self._hopeful, self._late, self._preempted):
            members: dict[str, Any] | None = group.get(request.new.priority)
            if members is not None:
                members.pop(request.request_id, None)
                if not members:
                    del group[request.new.priority]

    def charge(self, request: Request, *, is_late: bool) -> None:
        """A waiting request starts."""
        tokens = 0 if request.num_requeues else request.num_remaining
        self._memory = self.policy.charge(
            self._memory,
            in_time_tokens=0 if is_late else tokens,
            late_tokens=tokens if is_late else 0,
        )

    def is_late_turn(self, priority: int, num_in_time: int, num_late: int) -> bool:
        """Whether one of those who are late is the next to start."""
        if priority in self._preempted:
            return False
        turn = self.policy.turn(self._memory, num_in_time=num_in_time, num_late=num_late)
        return turn.is_late_turn

    def sort_out(
        self, priority: int, now_s: float, started_tokens: int, tokens_per_s: float
    ) -> tuple[list[Request], list[Request]]:
        """Those of a class that are found late now, and those that are so no more."""
        hopeful = self._hopeful.get(priority)
        if not hopeful:
            return [], []
        past = self._past_deadline(hopeful, now_s)
        for request in past:
            self.leave(request)
        if self._num_to_skip > 0:
            self._num_to_skip -= 1
            return past, []
        self._num_to_skip = len(hopeful) // _REQUESTS_PER_MICRO_BATCH
        preempted = self._preempted.get(priority, {}).values()
        members = list(hopeful.values())
        decision = self.policy.sort_out(
            TriageView(
                now_s=now_s,
                waiting=tuple(view for _, view in members),
                tokens_ahead=started_tokens + sum(request.num_remaining for request in preempted),
                tokens_per_s=tokens_per_s,
                passage_s=self.pace.passage_s,
            )
        )
        late = {members[index][0].request_id: members[index][0] for index in decision.late}
        before = self._late.pop(priority, {})
        if late:
            self._late[priority] = late
        found = [request for request_id, request in late.items() if request_id not in before]
        relieved = [request for request_id, request in before.items() if request_id not in late]
        return past + found, relieved

    def _past_deadline(self, hopeful: _Hopeful, now_s: float) -> list[Request]:
        latest_s = now_s - self.policy.ttft_target_s
        members = takewhile(lambda member: member[1].arrival_s < latest_s, hopeful.values())
        return [request for request, _ in members]
