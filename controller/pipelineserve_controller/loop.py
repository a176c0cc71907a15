"""The loop: a few times a second it observes, decides, guards and acts."""

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from typing import TextIO

from pipelineserve.errors import EngineUnavailableError
from pipelineserve.policy.control.heard import Heard
from pipelineserve.policy.control.journal_format import to_json
from pipelineserve.policy.control.objectives import Mode, Objectives
from pipelineserve.policy.control.sending import Idle, SendingMemory, Sessions, next_sending
from pipelineserve.policy.control.turns import ControlMemory, Turn, take_turn
from pipelineserve.policy.scheduling import LeasedPolicy
from pipelineserve_controller.journal import Entry, Journal
from pipelineserve_controller.picture import Moment, Parts, state_of
from pipelineserve_controller.state import DecisionState, SidecarState

logger = logging.getLogger(__name__)


class ControlLoop:
    """Holds the memory from turn to turn; everything that decides is pure and elsewhere.

    Args:
        parts: link, objectives, chronicle and cross-check; the loop reads and fills them.
        journal: None keeps none.
        monotonic_s: the clock that turns are timed by.
        unix_s: the wall clock, for the screen and the journal.
        announce_to: gets a line of JSON for each decision that changes something.
        memory: what an earlier run left.
    """

    def __init__(
        self,
        parts: Parts,
        journal: Journal | None,
        monotonic_s: Callable[[], float],
        unix_s: Callable[[], float],
        announce_to: TextIO = sys.stdout,
        *,
        memory: ControlMemory | None = None,
    ) -> None:
        self._parts = parts
        self._journal = journal
        self._monotonic_s = monotonic_s
        self._unix_s = unix_s
        self._announce_to = announce_to
        self._memory = memory or ControlMemory()
        self._sending = SendingMemory()
        self._moment = Moment(unix_s())
        self._news = asyncio.Condition()
        self.applied_generation = 0
        self.num_turns = 0
        self.num_applied = 0
        self.num_failed = 0
        self.turned_at_s: float | None = None

    @property
    def state(self) -> SidecarState:
        """Everything as of the latest turn."""
        return state_of(self._parts, self._moment)

    @property
    def moment(self) -> Moment:
        """The latest turn."""
        return self._moment

    async def run(self, period_s: float) -> None:
        """Take turns until cancelled; a turn that took long is not made up for."""
        due_s = self._monotonic_s()
        while True:
            await self.turn()
            due_s = max(due_s + period_s, self._monotonic_s())
            await asyncio.sleep(due_s - self._monotonic_s())

    async def wait_for_news(self, timeout_s: float) -> bool:
        """Wait for the next turn; false if none came in that time."""
        async with self._news:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            except TimeoutError:
                return False
        return True

    async def turn(self) -> None:
        """One turn; without objectives there is nothing to decide by, and nothing is sent."""
        now_s, unix_s = self._monotonic_s(), self._unix_s()
        heard = self._parts.link.take(now_s)
        self._parts.cross_check.hear(heard)
        objectives = self._parts.store.current
        num_refused = self._moment.num_refused + heard.num_refused
        if objectives is None:
            self._moment = Moment(unix_s, num_lost=heard.num_lost, num_refused=num_refused)
        else:
            before = self._memory
            turn, observation, self._memory = take_turn(before, heard, objectives)
            self._moment = Moment(
                unix_s, observation, turn, self._memory, heard.num_lost, num_refused
            )
            if self._journal is not None:
                self._journal.write(before, Entry(unix_s, heard, objectives, turn))
            decision = self._parts.chronicle.note(observation, turn, unix_s)
            if decision is not None:
                self._announce(decision)
            await self._act(turn, heard, objectives)
        self.num_turns += 1
        self.turned_at_s = now_s
        async with self._news:
            self._news.notify_all()

    async def _act(self, turn: Turn, heard: Heard, objectives: Objectives) -> None:
        """Send what is new, and renew what is not before its lease ends."""
        if not turn.is_to_send and objectives.mode is not Mode.ACTIVE:
            # To send nothing is what these objectives ask for.
            self.applied_generation = objectives.generation
        link = self._parts.link
        sessions = Sessions(link.num_sessions, link.is_superseded)
        sending, self._sending = next_sending(self._sending, turn, heard, sessions)
        match sending:
            case Idle.KEEP:
                return
            case Idle.TAKE_OVER:
                link.reopen()
            case LeasedPolicy():
                await self._send(sending, heard, objectives)

    async def _send(self, leased: LeasedPolicy, heard: Heard, objectives: Objectives) -> None:
        try:
            await self._parts.link.apply(leased)
        except EngineUnavailableError as error:
            self.num_failed += 1
            self._sending = self._sending.failed()
            logger.warning("policy not applied: %s", error)
            return
        self.num_applied += 1
        self._sending = self._sending.applied(leased, heard.now_s)
        self.applied_generation = objectives.generation

    def _announce(self, decision: DecisionState) -> None:
        document = {"decision": to_json(decision)}
        try:
            self._announce_to.write(json.dumps(document) + "\n")
            self._announce_to.flush()
        except (OSError, ValueError) as error:
            # Nobody reads; the journal and the page have it all the same.
            logger.debug("decision not announced: %s", error)
