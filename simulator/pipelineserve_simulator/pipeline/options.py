"""How a run is carried out, beside the scheduler and the costs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from pipelineserve.scheduler.emissions import Emissions
from pipelineserve_simulator.kernel.ticks import TICKS_PER_S
from pipelineserve_simulator.pipeline.control import Agenda, Control, ControlledRun
from pipelineserve_simulator.pipeline.conveyor import Rank
from pipelineserve_simulator.pipeline.costs import Noise, NoNoise
from pipelineserve_simulator.pipeline.faults import Fault
from pipelineserve_simulator.pipeline.passage import Passage

Observer = Callable[[Passage, Emissions], None]
"""Called with a micro-batch that came back, and with what it brought; it must keep neither."""


@dataclass(frozen=True, slots=True)
class FreeRunning:
    """Each stage takes micro-batches in order, as soon as it and its input are there.

    Where the costs say that stages share what they compute with, each is faster while others wait.
    """


@dataclass(frozen=True, slots=True)
class LockStep:
    """All stages step together, as in the published system; a step lasts as long as the slowest.

    At step t, slot t mod P is composed and stage r computes what was composed r steps before; its
    tokens come back P - 1 steps after it was composed (a broadcast ends every step). The leader's
    work and the hand-off to the next stage are exposed in every step. Stages that share what they
    compute with take as long as if all of them computed, since nearly always all do.
    """


@dataclass(frozen=True, slots=True)
class Interleaved:
    """Each worker has several virtual stages, so that a micro-batch passes all workers repeatedly.

    Virtual stage v runs on worker v mod `num_workers`; of the micro-batches that wait for a worker
    the oldest goes first, so that they come back in order. The costs are those of virtual stages.
    Workers that share what they compute with take as long as if all of them computed.
    """

    num_workers: int


Timing = FreeRunning | LockStep | Interleaved


@dataclass(frozen=True)
class ControlTurns(Control):
    """A controller that takes turns on the scheduler itself, without any delay.

    Attributes:
        period_s: virtual time between two turns, the first one after as much; at least a tick.
        take: called with the time of each turn, as long as requests are live or to come.
        hear: what it is told of every micro-batch that comes back.

    Raises:
        ValueError: the period is shorter.
    """

    period_s: float
    take: Callable[[float], None]
    hear: Observer | None = None

    def __post_init__(self) -> None:
        if self.period_s < 1.0 / TICKS_PER_S:
            raise ValueError(f"period_s: expected at least a nanosecond, got {self.period_s}")

    def begin(self, run: ControlledRun) -> None:
        """See `Control`."""
        self._plan(run.agenda, 0.0)

    def on_back(self, passage: Passage, emissions: Emissions, now_s: float) -> None:
        """See `Control`."""
        del now_s
        if self.hear is not None:
            self.hear(passage, emissions)

    def _plan(self, agenda: Agenda, now_s: float) -> None:
        agenda(now_s + self.period_s, Rank.CONTROL, partial(self._turn, agenda))

    def _turn(self, agenda: Agenda, now_s: float) -> None:
        self.take(now_s)
        self._plan(agenda, now_s)


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """The rest of a run's inputs.

    Attributes:
        timing: how micro-batches move; the order in which slots are filled (`Continuous`,
            `FillDrain`) is the scheduler's own.
        noise: chance in the times.
        faults: what goes wrong.
        control: a controller in the loop.
        observe: told of every micro-batch that comes back.
        step_stride: every so many-th step is kept in the outcome; 0 for none.
    """

    timing: Timing = field(default_factory=FreeRunning)
    noise: Noise = field(default_factory=NoNoise)
    faults: tuple[Fault, ...] = ()
    control: Control | None = None
    observe: Observer | None = None
    step_stride: int = 1
