"""Who runs which stage, and what each stage host is told; no sockets, no clock, no threads."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipelineserve_engine.remote.clocks import ClockOffset
from pipelineserve_engine.remote.messages import (
    IdleWord,
    KeepWord,
    LeaderWord,
    MemberStatus,
    RefusedWord,
    RunWord,
)
from pipelineserve_engine.stage_process import ProcessEnd, end_of
from pipelineserve_engine.worker_settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class StageState:
    """What is known of the worker that was ordered last.

    Attributes:
        generation: of the order; empty if there is none.
        pid: on its own host, once it runs.
        end: how it ended, if it did.
        clock_offset_s: from its host's clock to the leader's.
    """

    generation: str = ""
    pid: int | None = None
    end: ProcessEnd | None = None
    clock_offset_s: float = 0.0


@dataclass(slots=True)
class _Member:
    """The stage host that has a seat."""

    instance_id: str
    connection: bytes
    heard_at_s: float
    clock: ClockOffset = field(default_factory=ClockOffset)


@dataclass(slots=True)
class _Seat:
    """One stage: who holds it, and what it is to run."""

    order: WorkerSettings | None = None
    member: _Member | None = None
    given_to: str | None = None
    run_by: str | None = None
    pid: int | None = None
    end: ProcessEnd | None = None

    @property
    def generation(self) -> str:
        return "" if self.order is None else self.order.endpoints.generation


class Roster:
    """One seat per stage.

    Args:
        addresses: where each stage is expected.
        group_epoch: members of other epochs are refused.
        silence_s: a member that was not heard for so long can be replaced.
    """

    def __init__(self, addresses: Sequence[str], group_epoch: int, silence_s: float) -> None:
        self._addresses = tuple(addresses)
        self._group_epoch = group_epoch
        self._silence_s = silence_s
        self._seats = [_Seat() for _ in addresses]

    def order(self, stage_index: int, settings: WorkerSettings | None) -> None:
        """What this stage is to run from now on; None for nothing."""
        seat = self._seats[stage_index]
        self._seats[stage_index] = _Seat(order=settings, member=seat.member)

    def hear(self, connection: bytes, status: MemberStatus, now_s: float) -> LeaderWord:
        """A stage host has said how things stand; return the answer."""
        refusal = self._refusal(status, now_s)
        if refusal is not None:
            return refusal
        seat = self._seats[status.stage_index]
        member = self._seat_member(seat, connection, status, now_s)
        if status.echo_s is not None:
            member.clock.note(
                sent_s=status.echo_s,
                held_s=status.held_s,
                remote_s=status.clock_s,
                received_s=now_s,
            )
        if seat.order is not None and status.generation == seat.generation:
            seat.given_to = seat.run_by = status.instance_id
            seat.pid = status.pid
            if status.exit_code is not None and seat.end is None:
                seat.end = end_of(status.exit_code)
        elif seat.run_by == status.instance_id and seat.end is None:
            # Another one of the same generation would have none of the keys and values of this one.
            seat.end = ProcessEnd("was ended by its stage host", is_cause=True)
        return self._word(seat, status.generation, now_s)

    def word(self, stage_index: int, now_s: float) -> LeaderWord | None:
        """What the stage's host is to do, whatever it does now; None where there is none."""
        seat = self._seats[stage_index]
        return None if seat.member is None else self._word(seat, None, now_s)

    def connection(self, stage_index: int) -> bytes | None:
        """Where to reach the stage's host."""
        member = self._seats[stage_index].member
        return None if member is None else member.connection

    def state(self, stage_index: int) -> StageState:
        """What is known of the worker that was ordered last."""
        seat = self._seats[stage_index]
        offset_s = 0.0 if seat.member is None else seat.member.clock.offset_s
        return StageState(seat.generation, seat.pid, seat.end, offset_s)

    def _refusal(self, status: MemberStatus, now_s: float) -> RefusedWord | None:
        if (reason := self._final_reason(status)) is not None:
            return RefusedWord(now_s, reason, is_final=True)
        epoch = status.group_epoch
        if epoch > self._group_epoch:
            text = f"this leader's group epoch {self._group_epoch} is older than {epoch}"
            return RefusedWord(now_s, text, is_final=False)
        member = self._seats[status.stage_index].member
        if member is None or member.instance_id == status.instance_id:
            return None
        silent_s = now_s - member.heard_at_s
        if silent_s > self._silence_s:
            return None
        text = f"stage {status.stage_index} has a stage host already, heard {silent_s:.1f} s ago"
        return RefusedWord(now_s, text, is_final=False)

    def _final_reason(self, status: MemberStatus) -> str | None:
        index, epoch = status.stage_index, status.group_epoch
        if not 0 <= index < len(self._seats):
            return f"stage {index} does not exist: this group has {len(self._seats)} stages"
        if epoch < self._group_epoch:
            return f"group epoch {epoch} is over: this leader's is {self._group_epoch}"
        if status.address != self._addresses[index]:
            return f"stage {index} is expected at {self._addresses[index]}, not {status.address}"
        return None

    def _seat_member(
        self, seat: _Seat, connection: bytes, status: MemberStatus, now_s: float
    ) -> _Member:
        """Note the member as it connects now, a new one in the place of one that fell silent."""
        member = seat.member
        if member is None or member.instance_id != status.instance_id:
            if seat.given_to is not None and seat.end is None:
                seat.end = ProcessEnd("was lost with its stage host", is_cause=True)
            member = _Member(status.instance_id, connection, now_s)
            seat.member = member
        member.connection = connection
        member.heard_at_s = now_s
        return member

    def _word(self, seat: _Seat, generation: str | None, now_s: float) -> LeaderWord:
        if seat.order is None:
            return IdleWord(now_s)
        if generation == seat.generation or seat.end is not None:
            return KeepWord(now_s)
        if seat.member is not None:
            seat.given_to = seat.member.instance_id
        return RunWord(now_s, seat.order)
