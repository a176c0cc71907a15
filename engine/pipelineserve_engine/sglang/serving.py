"""The control server in stage 0's scheduler process: SGLang is controlled, or it says why not."""

import time
from collections.abc import Callable
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
from pipelineserve_engine.control.address import parse_address
from pipelineserve_engine.control.desk import ControlDesk, first_epoch
from pipelineserve_engine.control.questions import Questions
from pipelineserve_engine.control.server import ControlServer
from pipelineserve_engine.control.service import ControlledEngine, InactiveEngine
from pipelineserve_engine.control.telling import Teller
from pipelineserve_engine.sglang.leader import Leader, LeaderParts
from pipelineserve_engine.sglang.mirror import EngineSizes, SchedulerMirror
from pipelineserve_engine.sglang.settings import AddOnSettings
from pipelineserve_engine.sglang.stage import StageSide
from pipelineserve_engine.sglang.targets import installed_version
from pipelineserve_engine.sglang.tracked_requests import RequestBook
from pipelineserve_engine.telemetry import Telemetry

ENGINE_NAME = "sglang"


class ControlPart:
    """Listens from the start; whom it speaks for comes with `begin` or `refuse`.

    Its metrics are in SGLang's own `/metrics`, which gathers those of all its processes where
    SGLang was told to have any.
    """

    def __init__(
        self,
        settings: AddOnSettings,
        sizes: EngineSizes,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
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

    def begin(self, stage: StageSide) -> Leader:
        """Serve controllers from now on; the leader is to be called at each turn."""
        static = self._settings.static_chunk_tokens
        policy = SchedulingPolicy(Static(static))
        session, live, book = ControlSession(self._epoch), LiveRequests(), RequestBook()
        mirror = SchedulerMirror(self._sizes, book, policy, lambda: stage.turn + 1)
        collector = Collector(self._sizes.num_stages, mirror, session, live)
        teller = Teller(collector, self._telemetry.counter(metrics.RECORDS_LOST).inc)
        desk = ControlDesk(mirror, session, policy, teller, self._telemetry)
        parts = LeaderParts(stage, mirror, book, live, collector, desk, self._questions)
        held = self._telemetry.gauge(metrics.REQUESTS_HELD)
        self._telemetry.gauge(metrics.CONTROL_ACTIVE).set(1)
        self._server.open(ControlledEngine(self._questions, desk, self._hello()))
        return Leader(parts, static, held.set, self.refuse)

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
            engine_name=ENGINE_NAME,
            engine_version=installed_version(),
            num_stages=self._sizes.num_stages,
            num_slots=self._sizes.num_slots,
            max_chunk_tokens=self._sizes.max_chunk_tokens,
            static_chunk_tokens=self._settings.static_chunk_tokens,
            block_tokens=self._sizes.page_tokens,
            kv_tokens=self._sizes.kv_tokens,
            capabilities=[] if inactive_reason else capabilities,
            inactive_reason=inactive_reason,
        )
