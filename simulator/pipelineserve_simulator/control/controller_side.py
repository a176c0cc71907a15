"""The controller's side: what one life of its process remembers, from turn to turn."""

from pipelineserve.policy.control.heard import EngineFacts, Told
from pipelineserve.policy.control.sending import Idle, SendingMemory, Sessions, next_sending
from pipelineserve.policy.control.turns import ControlMemory, take_turn
from pipelineserve.policy.scheduling import LeasedPolicy
from pipelineserve.scheduler.telling.inbox import Inbox
from pipelineserve_simulator.control.settings import ControlSettings, TurnTaken


class ControllerSide:
    """One process of the controller; another one begins with what is left of it, if anything.

    Nobody else opens sessions here, so that none is ever superseded.

    Attributes:
        engine: of the open session; None before it.
        memory: of the pure controller.
    """

    def __init__(self, settings: ControlSettings, memory: ControlMemory) -> None:
        self.engine: EngineFacts | None = None
        self.memory = memory
        self._settings = settings
        self._inbox = Inbox()
        self._sending = SendingMemory()

    def hear(self, told: Told) -> None:
        """A batch of records has arrived."""
        self._inbox.put(told)

    def turn(self, now_s: float) -> LeasedPolicy | None:
        """Take a turn; what to send now, if anything."""
        heard = self._inbox.take(now_s, self.engine)
        objectives = self._settings.objectives_at(now_s)
        turn, observation, self.memory = take_turn(self.memory, heard, objectives)
        self._settings.note(TurnTaken(now_s, turn, observation))
        sessions = Sessions(num_opened=int(self.engine is not None))
        sending, self._sending = next_sending(self._sending, turn, heard, sessions)
        return None if isinstance(sending, Idle) else sending

    def answered(self, leased: LeasedPolicy, turned_at_s: float, *, is_adopted: bool) -> None:
        """The engine has answered to a policy that a turn has sent."""
        self._sending = (
            self._sending.applied(leased, turned_at_s) if is_adopted else self._sending.failed()
        )
