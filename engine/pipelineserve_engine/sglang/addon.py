"""The add-on of one of SGLang's scheduler processes, from the loop's start to its end."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelineserve_engine.addon.ledger import StageReport
from pipelineserve_engine.addon.mirror import EngineSizes
from pipelineserve_engine.addon.settings import AddOnSettings
from pipelineserve_engine.addon.stopwatch import Stopwatch, stopwatch_of
from pipelineserve_engine.sglang import reading
from pipelineserve_engine.sglang.channel import Receiver, Sender, StoreThread, distributed_store
from pipelineserve_engine.sglang.orders import TurnOrder
from pipelineserve_engine.sglang.stage import StageSide
from pipelineserve_engine.sglang.targets import installed_version

if TYPE_CHECKING:
    from pipelineserve_engine.addon.serving import ControlPart
    from pipelineserve_engine.sglang.leader import Leader

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process stands among SGLang's.

    Attributes:
        rank_of_stage: its rank within the stage (tensor parallelism); 0 leads it.
        ranks_per_stage: of each stage.
    """

    stage_index: int
    num_stages: int
    rank_of_stage: int
    ranks_per_stage: int

    @property
    def rank(self) -> int:
        """Among all."""
        return self.stage_index * self.ranks_per_stage + self.rank_of_stage

    @property
    def num_ranks(self) -> int:
        """Of all stages."""
        return self.num_stages * self.ranks_per_stage

    @property
    def leads_stage(self) -> bool:
        """Whether it reports for its stage."""
        return self.rank_of_stage == 0

    @property
    def leads(self) -> bool:
        """Whether it decides for all."""
        return self.rank == 0


class AddOn:
    """What the hooks call once the loop runs; whichever rank it is of."""

    def __init__(
        self,
        scheduler: Any,
        place: Place,
        stage: StageSide,
        stopwatch: Stopwatch,
        clock: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self.stage = stage
        self.leader: Leader | None = None
        self._place = place
        self._stopwatch = stopwatch
        self._clock = clock
        self._sender: Sender | None = None
        self._receiver: Receiver | None = None
        self._control: ControlPart | None = None

    def connect(self, sender: Sender, receiver: Receiver | None) -> None:
        """Tell stage 0 what this stage does; on stage 0, hear what the others do."""
        self._sender, self._receiver = sender, receiver

    def serve(self, control: "ControlPart") -> None:
        """Be controlled through this as soon as every rank obeys."""
        self._control = control

    def order(self, received: list[Any]) -> TurnOrder | None:
        """The order for the turn that begins; None if nothing changes, and on ranks that follow."""
        receiver = self._receiver
        if receiver is None:
            return None
        if self.leader is None:
            self._begin_to_lead(receiver)
        if self.leader is None:
            return None
        reports = [*receiver.take(), *self._own_reports()]
        return self.leader.order(self._scheduler, received, reports, self._clock())

    def now_s(self) -> float:
        """The scheduling thread's clock."""
        return self._clock()

    def start_step(self) -> None:
        """A micro-batch is launched on this stage."""
        self._stopwatch.start()

    def stop_step(self, batch: Any) -> None:
        """It is launched; on a CPU, done."""
        if self.stage.chunk_tokens is None:
            return  # no order yet
        num_tokens = reading.num_tokens_of(batch)
        self._stopwatch.stop(self.stage.turn, num_tokens, self.stage.chunk_tokens)
        if self._receiver is None and self._sender is not None:
            self._sender.put(self._own_reports())

    def _begin_to_lead(self, receiver: Receiver) -> None:
        """Lead as soon as every rank obeys; say for good why not if one does not."""
        control = self._control
        if control is None:
            return
        if receiver.inactive_reason:
            logger.error("the add-on is inactive: %s", receiver.inactive_reason)
            control.refuse(receiver.inactive_reason)
            self._receiver = None
        elif receiver.is_ready:
            # As `_control_part`: what it imports would be too early in the other processes.
            from pipelineserve_engine.sglang.leader import Leader  # noqa: PLC0415

            self.leader = Leader(control.begin(lambda: self.stage.turn + 1), self.stage)

    def _own_reports(self) -> list[StageReport]:
        stage_index = self._place.stage_index
        return [StageReport(stage_index, *span) for span in self._stopwatch.take()]


@contextmanager
def add_on(scheduler: Any, place: Place, settings: AddOnSettings) -> Iterator[AddOn]:
    """The add-on of an SGLang scheduler that it can control, for the length of its loop."""
    sizes = sizes_of(scheduler, place.num_stages)
    stage = StageSide(
        page_tokens=sizes.page_tokens,
        max_chunk_tokens=sizes.max_chunk_tokens,
        num_slots=sizes.num_slots,
    )
    running = AddOn(scheduler, place, stage, stopwatch_of(scheduler.device), time.monotonic)
    with ExitStack() as stack:
        reports_for = place.stage_index if place.leads_stage else None
        sender = Sender(distributed_store(), place.rank, reports_for, "")
        receiver = None
        if place.leads:
            others = range(1, place.num_stages)
            receiver = Receiver(distributed_store(), place.num_ranks, others)
            control = stack.enter_context(_control_part(settings, sizes))
            running.serve(control)
        running.connect(sender, receiver)
        thread = StoreThread(sender) if receiver is None else StoreThread(sender, receiver)
        stack.callback(thread.close)
        yield running


@contextmanager
def inactive(place: Place, settings: AddOnSettings, reason: str) -> Iterator[None]:
    """Say to whoever asks why nothing is controlled, for the length of SGLang's loop."""
    logger.error("the add-on is inactive: %s; SGLang serves as if there were none", reason)
    Sender(distributed_store(), place.rank, None, reason)
    if not place.leads or not settings.control_address:
        yield
        return
    sizes = EngineSizes(
        num_stages=place.num_stages,
        num_slots=place.num_stages,
        max_chunk_tokens=1,
        page_tokens=1,
        least_piece_tokens=1,
        kv_tokens=0,
        is_mixed=False,
        can_hold=False,
        ends_lone_decodes=False,
    )
    with _control_part(settings, sizes) as control:
        control.refuse(reason)
        yield


def _control_part(settings: AddOnSettings, sizes: EngineSizes) -> "ControlPart":
    # Not in every process that loads plugins: SGLang decides later where metrics are shared.
    from pipelineserve_engine.addon.serving import (  # noqa: PLC0415
        ControlPart,
        EngineIdentity,
    )

    return ControlPart(settings, EngineIdentity("sglang", "SGLang", installed_version()), sizes)


def sizes_of(scheduler: Any, num_stages: int) -> EngineSizes:
    """What does not change while SGLang runs."""
    from sglang.srt.runtime_context import (  # noqa: PLC0415 - tests have no SGLang
        get_parallel,
    )

    return EngineSizes(
        num_stages=num_stages,
        num_slots=num_stages + get_parallel().pp_async_batch_depth,
        max_chunk_tokens=scheduler.chunked_prefill_size,
        page_tokens=scheduler.page_size,
        # Or SGLang would cut it at a length below 1.
        least_piece_tokens=scheduler.page_size,
        kv_tokens=scheduler.max_total_num_tokens,
        is_mixed=scheduler.is_mixed_chunk,
        # Turns that this option defers compose nothing, and holding is done while composing.
        can_hold=scheduler.prefill_decode_interval == 0,
        ends_lone_decodes=True,
    )
