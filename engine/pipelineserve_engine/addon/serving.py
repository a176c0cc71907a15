"""The control server inside another engine: that one is controlled, or it says why not."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry

from pipelineserve import metrics
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.scheduler.session import ControlSession
from pipelineserve.scheduler.telling.collecting import Collector
from pipelineserve.scheduler.telling.live_requests import LiveRequests
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve_engine.addon.ledger import Ledger
from pipelineserve_engine.addon.mirror import EngineSizes, SchedulerMirror
from pipelineserve_engine.addon.mistakes import Mistakes
from pipelineserve_engine.addon.settings import AddOnSettings
from pipelineserve_engine.addon.tracked_requests import RequestBook
from pipelineserve_engine.control.address import parse_address
from pipelineserve_engine.control.desk import ControlDesk, first_epoch
from pipelineserve_engine.control.questions import Questions
from pipelineserve_engine.control.server import ControlServer
from pipelineserve_engine.control.service import ControlledEngine, InactiveEngine
from pipelineserve_engine.control.telling import Teller
from pipelineserve_engine.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """Which engine it is.

    Attributes:
        name: as the handshake has it.
        title: as people write it.
        version: of what is installed.
    """

    name: str
    title: str
    version: str


@dataclass(frozen=True, slots=True)
class ControlParts:
    """What decides and tells; all of it lives in the thread that schedules.

    Attributes:
        mirror: the engine's scheduler as policies see it.
        book: its requests.
        ledger: puts down what happens.
        desk: takes policies in and tells records.
        questions: what the control server's threads ask the desk.
        mistakes: end the control.
        static_chunk_tokens: what holds after one.
        count_held: told how many are held, when that changes.
    """

    mirror: SchedulerMirror
    book: RequestBook
    ledger: Ledger
    desk: ControlDesk
    questions: Questions
    mistakes: Mistakes
    static_chunk_tokens: int
    count_held: Callable[[int], None]


class ControlPart:
    """Listens from the start; whom it speaks for comes with `begin` or `refuse`.

    Its metrics are where the engine serves its own, which gathers those of all its processes where
    it was told to.
    """

    def __init__(
        self,
        settings: AddOnSettings,
        engine: EngineIdentity,
        sizes: EngineSizes,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._sizes = sizes
        self._epoch = first_epoch(unix_time())
        self._telemetry = Telemetry(CollectorRegistry(), metrics.CONTROL_OF_ENGINE)
        self._telemetry.gauge(metrics.CONTROL_ACTIVE).set(0)
        self._questions = Questions()
        address = parse_address(settings.control_address)
        self._server = ControlServer(address, settings.control_tls_files)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Turn away whoever calls, then end the server."""
        self._questions.close()
        self._server.close()

    def begin(self, next_turn: Callable[[], int]) -> ControlParts:
        """Serve controllers from now on; their questions are to be answered at each turn.

        Args:
            next_turn: the turn that is decided next.
        """
        parts = control_parts(
            self._settings.static_chunk_tokens,
            self._engine.title,
            self._sizes,
            next_turn,
            session=ControlSession(self._epoch),
            telemetry=self._telemetry,
            questions=self._questions,
            on_mistake=self.refuse,
        )
        self._telemetry.gauge(metrics.CONTROL_ACTIVE).set(1)
        self._server.open(ControlledEngine(self._questions, parts.desk, self._hello()))
        return parts

    def refuse(self, reason: str) -> None:
        """Say to whoever calls from now on why nothing can be controlled."""
        hello = self._hello(reason)
        hello.epoch = self._epoch
        self._telemetry.gauge(metrics.CONTROL_ACTIVE).set(0)
        self._server.open(InactiveEngine(hello))

    def _hello(self, inactive_reason: str = "") -> pb.Hello:
        capabilities = [pb.CAPABILITY_CHUNK, pb.CAPABILITY_PREDICTIVE]
        if self._sizes.can_hold:
            capabilities.append(pb.CAPABILITY_HOLD)
        return pb.Hello(
            engine_name=self._engine.name,
            engine_version=self._engine.version,
            num_stages=self._sizes.num_stages,
            num_slots=self._sizes.num_slots,
            max_chunk_tokens=self._sizes.max_chunk_tokens,
            static_chunk_tokens=self._settings.static_chunk_tokens,
            block_tokens=self._sizes.page_tokens,
            kv_tokens=self._sizes.kv_tokens,
            capabilities=[] if inactive_reason else capabilities,
            inactive_reason=inactive_reason,
        )


def control_parts(
    static_chunk_tokens: int,
    engine_title: str,
    sizes: EngineSizes,
    next_turn: Callable[[], int],
    *,
    session: ControlSession,
    telemetry: Telemetry,
    questions: Questions,
    on_mistake: Callable[[str], None],
) -> ControlParts:
    """The parts, put together.

    Args:
        static_chunk_tokens: what holds without a policy.
        engine_title: as people write it.
        sizes: of the engine.
        next_turn: the turn that is decided next.
        session: decides which policies count.
        telemetry: counts.
        questions: of the control server's threads.
        on_mistake: told why control has ended.
    """
    policy = SchedulingPolicy(Static(static_chunk_tokens))
    live, book = LiveRequests(), RequestBook()
    mirror = SchedulerMirror(sizes, book, policy, next_turn)
    collector = Collector(sizes.num_stages, mirror, session, live)
    teller = Teller(collector, telemetry.counter(metrics.RECORDS_LOST).inc)
    return ControlParts(
        mirror=mirror,
        book=book,
        ledger=Ledger(mirror, book, live, collector),
        desk=ControlDesk(mirror, session, policy, teller, telemetry),
        questions=questions,
        mistakes=Mistakes(engine_title, questions, on_mistake),
        static_chunk_tokens=static_chunk_tokens,
        count_held=telemetry.gauge(metrics.REQUESTS_HELD).set,
    )
