"""The product's controller in the loop: the pure controller, and what is between it and the engine.

What lies in between takes time, each way. One process of the controller, from its start to its end,
is a life: it opens a session, hears what the engine tells, takes turns and sends policies. What is
under way to a process that is no more is lost, and what it sent still arrives.

Simpler than the sidecar in one point: a session is open for all of a life. The sidecar opens a new
one after ten seconds of silence, which changes nothing that is decided.
"""

from collections.abc import Callable
from functools import partial

from pipelineserve.policy.control.turns import ControlMemory, remembered
from pipelineserve.policy.scheduling import LeasedPolicy
from pipelineserve.scheduler.emissions import Emissions
from pipelineserve.scheduler.messages import MicroBatch
from pipelineserve.scheduler.requests import NewRequest
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.telling.collecting import Batch
from pipelineserve_simulator.control.controller_side import ControllerSide
from pipelineserve_simulator.control.engine_side import EngineSide
from pipelineserve_simulator.control.settings import ControlSettings
from pipelineserve_simulator.pipeline.control import Control, ControlledRun
from pipelineserve_simulator.pipeline.conveyor import Rank
from pipelineserve_simulator.pipeline.faults import ControllerGone, RecordsLost
from pipelineserve_simulator.pipeline.passage import Passage


def controlled_by(settings: ControlSettings) -> Callable[[Scheduler], Control]:
    """A `ControlMaker` of the product's controller; the scheduler must have a static chunk."""
    return partial(SimulatedController, settings)


class SimulatedController(Control):
    """Both sides, and the time between them.

    Args:
        settings: of the controller.
        scheduler: that it controls.
    """

    def __init__(self, settings: ControlSettings, scheduler: Scheduler) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._num_lost = 0
        self._num_sent = 0

    def begin(self, run: ControlledRun) -> None:
        """See `Control`."""
        self._run = run
        self._absences = [f for f in run.faults if isinstance(f, ControllerGone)]
        self._silences = [f for f in run.faults if isinstance(f, RecordsLost)]
        self._engine = EngineSide(self._scheduler, self._settings, run, self._tell)
        self._life: ControllerSide | None = None
        # Whom the engine's records are sent to.
        self._watcher: ControllerSide | None = None
        for absence in self._absences:
            run.agenda(absence.start_s, Rank.HEARING, self._end_life)
            run.agenda(absence.end_s, Rank.HEARING, partial(self._come_back, absence))
        self._memory = ControlMemory()
        run.agenda(0.0, Rank.HEARING, self._begin_life)

    def on_accepted(self, request: NewRequest, now_s: float) -> None:
        """See `Control`."""
        self._engine.accepted(request, now_s)

    def on_rejected(self, num_prompt_tokens: int, now_s: float) -> None:
        """See `Control`."""
        self._engine.rejected(num_prompt_tokens, now_s)

    def on_sent(self, micro_batch: MicroBatch, now_s: float) -> None:
        """See `Control`."""
        self._engine.sent(micro_batch, now_s)

    def on_back(self, passage: Passage, emissions: Emissions, now_s: float) -> None:
        """See `Control`."""
        self._engine.back(passage, emissions, now_s)

    def on_stages_lost(self) -> None:
        """See `Control`."""
        self._engine.stages_lost()

    # Lives

    def _begin_life(self, now_s: float) -> None:
        """Start a process, unless there is one, or it is away at this time."""
        is_away = any(absence.start_s <= now_s < absence.end_s for absence in self._absences)
        if is_away or self._life is not None:
            return
        self._life = life = ControllerSide(self._settings, self._memory)
        self._later(now_s, Rank.POLICY, partial(self._open, life))
        self._run.agenda(now_s, Rank.CONTROL, partial(self._turn, life))

    def _end_life(self, now_s: float) -> None:
        """The process is no more; the engine sees the end of its stream."""
        life, self._life = self._life, None
        if life is not None:
            self._memory = life.memory
            self._later(now_s, Rank.POLICY, partial(self._close, life))

    def _come_back(self, absence: ControllerGone, now_s: float) -> None:
        keeps = absence.keeps_journal
        self._memory = remembered(self._memory, now_s) if keeps else ControlMemory()
        self._begin_life(now_s)

    # What travels

    def _later(self, now_s: float, rank: Rank, action: Callable[[float], None]) -> None:
        self._run.agenda(now_s + self._settings.delay_s, rank, action)

    def _open(self, life: ControllerSide, now_s: float) -> None:
        """The engine opens a session; its first message is on the way."""
        self._num_lost = self._num_sent = 0
        self._watcher = life
        engine = self._engine.open(now_s)

        def greet(at_s: float) -> None:
            del at_s
            life.engine = engine

        self._later(now_s, Rank.HEARING, greet)

    def _close(self, life: ControllerSide, now_s: float) -> None:
        del now_s
        if self._watcher is life:
            self._watcher = None
            self._engine.close()

    def _tell(self, batch: Batch) -> None:
        now_s, watcher = batch.now_s, self._watcher
        if any(silence.start_s <= now_s < silence.end_s for silence in self._silences):
            self._num_lost += batch.num_records
            return
        told = batch.told(self._num_lost)

        def hear(at_s: float) -> None:
            del at_s
            if watcher is not None:
                watcher.hear(told)

        self._later(now_s, Rank.HEARING, hear)

    def _turn(self, life: ControllerSide, now_s: float) -> None:
        """Take a turn, and the next one a period later, or once the engine has answered."""
        if life is not self._life:
            return
        next_s = now_s + self._settings.period_s
        leased = life.turn(now_s)
        if leased is not None:
            self._num_sent += 1
            arrival = partial(self._arrive, life, self._num_sent, leased, now_s)
            self._later(now_s, Rank.POLICY, arrival)
            next_s = max(next_s, now_s + 2.0 * self._settings.delay_s)
        self._run.agenda(next_s, Rank.CONTROL, partial(self._turn, life))

    def _arrive(
        self,
        life: ControllerSide,
        sequence: int,
        leased: LeasedPolicy,
        turned_at_s: float,
        now_s: float,
    ) -> None:
        """A policy is at the engine, whose answer is then on the way."""
        epoch = 0 if life.engine is None else life.engine.epoch
        is_adopted = self._engine.apply(epoch, sequence, leased, now_s)

        def answer(at_s: float) -> None:
            del at_s
            life.answered(leased, turned_at_s, is_adopted=is_adopted)

        self._later(now_s, Rank.HEARING, answer)
