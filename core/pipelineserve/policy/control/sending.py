"""What of a turn goes to the engine: what is new, and what must be renewed before its lease ends.

Pure, so that a twin sends what a controller would. Whoever sends says afterwards what came of it.
"""

from dataclasses import dataclass, replace
from enum import Enum

from pipelineserve.policy.control.heard import Heard, Standing
from pipelineserve.policy.control.observation import RECOVERY_S
from pipelineserve.policy.control.turns import Turn
from pipelineserve.policy.scheduling import LeasedPolicy

# A policy is renewed when this share of its lease has gone.
RENEWAL_SHARE = 0.3
# A later controller sends nothing before its input counts as fresh. Until then an engine without a
# policy is not one that this later controller has left.
VACANT_S = 2.0 * RECOVERY_S


class Idle(Enum):
    """What to do where nothing is to be sent."""

    KEEP = "keep"
    """Leave all as it is."""
    TAKE_OVER = "take_over"
    """Open a session anew: a later one has taken this one's place, and nobody's policy holds."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """The link to the engine.

    Attributes:
        num_opened: so far.
        is_superseded: a policy was refused since a later session has been opened.
    """

    num_opened: int
    is_superseded: bool = False


@dataclass(frozen=True, slots=True)
class SendingMemory:
    """What is kept between two turns.

    Attributes:
        in_force: what the engine has answered to; None: nothing is known to hold.
        applied_at_s: when the turn was that sent it.
        session: in which one.
        vacant_since_s: since when nobody's policy holds, while this session is superseded.
    """

    in_force: LeasedPolicy | None = None
    applied_at_s: float = 0.0
    session: int = 0
    vacant_since_s: float | None = None

    def applied(self, leased: LeasedPolicy, turned_at_s: float) -> "SendingMemory":
        """The engine has answered that it is in force."""
        return replace(self, in_force=leased, applied_at_s=turned_at_s)

    def failed(self) -> "SendingMemory":
        """The engine has refused, or did not answer."""
        return replace(self, in_force=None)


def next_sending(
    memory: SendingMemory, turn: Turn, heard: Heard, sessions: Sessions
) -> tuple[LeasedPolicy | Idle, SendingMemory]:
    """What to send now, if anything."""
    if not turn.is_to_send or turn.policy is None:
        return Idle.KEEP, memory.failed()
    if sessions.num_opened != memory.session:
        # A new session: what the one before sent is not known to hold.
        memory = replace(memory, in_force=None, session=sessions.num_opened)
    if sessions.is_superseded:
        return _while_superseded(memory, heard.standing, heard.now_s)
    memory = replace(memory, vacant_since_s=None)
    leased = LeasedPolicy(turn.policy, turn.lease_s, turn.static_chunk_tokens)
    is_due = heard.now_s - memory.applied_at_s >= RENEWAL_SHARE * turn.lease_s
    if leased == memory.in_force and not is_due:
        return Idle.KEEP, memory
    return leased, memory


def _while_superseded(
    memory: SendingMemory, standing: Standing | None, now_s: float
) -> tuple[Idle, SendingMemory]:
    """Take over once nobody's policy has been in force for a while."""
    if standing is None:
        return Idle.KEEP, memory
    if standing.policy_sequence:
        return Idle.KEEP, replace(memory, vacant_since_s=None)
    if memory.vacant_since_s is None:
        return Idle.KEEP, replace(memory, vacant_since_s=now_s)
    if now_s - memory.vacant_since_s < VACANT_S:
        return Idle.KEEP, memory
    return Idle.TAKE_OVER, replace(memory, vacant_since_s=None)
