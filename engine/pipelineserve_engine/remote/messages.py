"""Between the leader and the stage hosts: each says how things stand, again and again.

Nothing depends on a single message: a lost one is made good by the next.
"""

import msgspec

from pipelineserve_engine.worker_settings import WorkerSettings

MAX_CONTROL_BYTES = 1 << 16
MAX_COMMAND_BYTES = 1 << 28
MAX_REPORT_BYTES = 1 << 24


class MemberStatus(msgspec.Struct, frozen=True, array_like=True):
    """How things stand at a stage host.

    Attributes:
        stage_index: of the stage that it runs.
        group_epoch: of the group that it belongs to.
        instance_id: of this stage host's process.
        address: its own, as its neighbours reach it.
        generation: of the worker that it started last; empty before that.
        pid: of that worker.
        exit_code: of that worker, negative for a signal; None while it runs.
        clock_s: its monotonic clock when this was sent.
        echo_s: the leader's clock in the last word from it; None before the first.
        held_s: from that word to this status.
    """

    stage_index: int
    group_epoch: int
    instance_id: str
    address: str
    generation: str
    pid: int | None
    exit_code: int | None
    clock_s: float
    echo_s: float | None
    held_s: float


class RunWord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Run this worker, and no other one."""

    clock_s: float
    settings: WorkerSettings


class KeepWord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """All is as it should be."""

    clock_s: float


class IdleWord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Run no worker."""

    clock_s: float


class StacksWord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Let the worker write the stacks of its threads."""

    clock_s: float


class RefusedWord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """This stage host does not belong here.

    Attributes:
        reason: for a person.
        is_final: asking again cannot help.
    """

    clock_s: float
    reason: str
    is_final: bool


LeaderWord = RunWord | KeepWord | IdleWord | StacksWord | RefusedWord
