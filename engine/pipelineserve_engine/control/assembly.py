"""The parts of control that live in the engine's thread, put together."""

from pipelineserve import metrics
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.session import ControlSession
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve.scheduler.telling.collecting import Collector
from pipelineserve.scheduler.telling.live_requests import LiveRequests
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve_engine.control.desk import ControlDesk, first_epoch
from pipelineserve_engine.control.recorder import Recorder
from pipelineserve_engine.observation import Listener, Observer
from pipelineserve_engine.telemetry import Telemetry

ENGINE_NAME = "pipelineserve-torch"


class HeardLiveRequests(LiveRequests, Listener):
    """The live requests as the observer's listener."""


def make_desk(
    scheduler: Scheduler,
    observer: Observer,
    telemetry: Telemetry,
    *,
    num_stages: int,
    static_chunk_tokens: int,
    unix_time_s: float,
) -> ControlDesk:
    """A desk that hears what the observer hears.

    Args:
        scheduler: obeys it.
        observer: gets two more listeners.
        telemetry: counts.
        num_stages: of the pipeline.
        static_chunk_tokens: what comes back when a lease ends.
        unix_time_s: the wall clock's time, from which epochs are counted.
    """
    session = ControlSession(first_epoch(unix_time_s))
    live_requests = HeardLiveRequests()
    collector = Collector(num_stages, scheduler, session, live_requests)
    recorder = Recorder(collector, telemetry.counter(metrics.RECORDS_LOST).inc)
    observer.add(live_requests)
    observer.add(recorder)
    default = SchedulingPolicy(Static(static_chunk_tokens))
    telemetry.gauge(metrics.CONTROL_ACTIVE).set(1)
    return ControlDesk(_Told(scheduler, observer), session, default, recorder, telemetry)


class _Told:
    """A scheduler whose changes of policy the observer is told of."""

    def __init__(self, scheduler: Scheduler, observer: Observer) -> None:
        self._scheduler = scheduler
        self._observer = observer

    def adopt(self, policy: SchedulingPolicy) -> int:
        """See `Scheduler.adopt`."""
        self._observer.on_adopted(policy)
        return self._scheduler.adopt(policy)


def make_hello(
    settings: SchedulerSettings, *, num_stages: int, static_chunk_tokens: int, version: str
) -> pb.Hello:
    """What every session begins with, but for its epoch."""
    return pb.Hello(
        engine_name=ENGINE_NAME,
        engine_version=version,
        num_stages=num_stages,
        num_slots=settings.num_slots,
        max_chunk_tokens=settings.max_chunk_tokens,
        static_chunk_tokens=static_chunk_tokens,
        block_tokens=settings.block_tokens,
        kv_tokens=settings.num_blocks * settings.block_tokens,
        capabilities=[
            pb.CAPABILITY_CHUNK,
            pb.CAPABILITY_PREDICTIVE,
            pb.CAPABILITY_ORDER,
            pb.CAPABILITY_HOLD,
        ],
    )
