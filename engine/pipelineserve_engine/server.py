"""The server process: API, engine loop and the stages that it starts.

Run as `python -m pipelineserve_engine.server --help`.
"""

import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from types import FrameType

import uvicorn
from prometheus_client import CollectorRegistry

from pipelineserve.errors import (
    EngineUnavailableError,
    ModelUnavailableError,
    PipelineServeError,
)
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.recovery import RecoveryBudget
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_engine.api.app import build_app
from pipelineserve_engine.api.authorization import KeyFile
from pipelineserve_engine.api.context import ApiContext
from pipelineserve_engine.control.assembly import make_desk, make_hello
from pipelineserve_engine.control.desk import ControlDesk
from pipelineserve_engine.control.server import control_server
from pipelineserve_engine.control.service import ControlledEngine
from pipelineserve_engine.core import EngineCore
from pipelineserve_engine.loop import EngineLoop
from pipelineserve_engine.model_config import load_config, shape_of
from pipelineserve_engine.nursery.owner import Nursery, own_nursery
from pipelineserve_engine.observation import Observer
from pipelineserve_engine.plan import PipelinePlan, make_plan, this_machine
from pipelineserve_engine.recovery import Recovery
from pipelineserve_engine.settings import SCHEDULES, EngineSettings, parse_settings
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_engine.stage_messages import ReadyReport
from pipelineserve_engine.telemetry import Telemetry
from pipelineserve_engine.text.tokenizer import TextCodec, load_codec
from pipelineserve_engine.tracing import TracedSetup, TraceRecorder

_PARENT_CHECK_PERIOD_S = 1.0

logger = logging.getLogger("pipelineserve_engine")


class Ending:
    """What signals do outside uvicorn: the first ends the process in order, any other one hurries.

    Orderly ends only: the default actions would leave the stages behind, and an exception out of a
    second signal would tear the clean-up of the first.

    Attributes:
        has_begun: set by the first signal, and by whoever ends for another reason.
        hurry: called by the signals after that.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self.hurry: Callable[[], None] = lambda: None

    def watch_signals(self) -> None:
        """Take over SIGINT and SIGTERM."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def begin(self) -> None:
        """From here on signals only hurry."""
        self.has_begun = True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.has_begun:
            self.hurry()
            return
        self.begin()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(0)


SchedulerMaker = Callable[[SchedulerSettings, EngineSettings], Scheduler]


def make_scheduler(sizes: SchedulerSettings, settings: EngineSettings) -> Scheduler:
    """The scheduler of the product: the static chunk until a controller says otherwise."""
    return Scheduler(
        sizes, Static(settings.static_chunk_tokens), schedule=SCHEDULES[settings.schedule]
    )


def serve(
    settings: EngineSettings,
    ending: Ending,
    make_scheduler: SchedulerMaker = make_scheduler,
) -> None:
    """Start the pipeline and serve until asked to stop.

    What can be checked cheaply is checked before the model is loaded: ports, keys, config,
    partition, memory, tokenizer, trace file.

    Args:
        settings: the flags.
        ending: what signals do.
        make_scheduler: another one is for comparisons.

    Raises:
        PipelineServeError: it cannot start, or the stages failed while serving.
    """
    with ExitStack() as stack:
        listener = stack.enter_context(listen(settings.host, settings.port))
        keys = KeyFile(Path(settings.api_key_file)) if settings.api_key_file else None
        shape = shape_of(load_config(settings.model_folder))
        # Before anything has a thread, which is why so little is checked earlier.
        nursery = stack.enter_context(_nursery(settings))
        _follow_parent(settings.parent_pid)
        control = stack.enter_context(
            control_server(settings.control_address, settings.control_tls_files)
        )
        plan = make_plan(settings, shape, this_machine())
        codec = _load_codec(settings.model_folder)
        registry = CollectorRegistry()
        telemetry = Telemetry(registry)
        observer = stack.enter_context(_observing(settings, telemetry, plan))
        group = stack.enter_context(StageGroup(plan, nursery))
        ending.hurry = group.kill
        stack.callback(ending.begin)
        logger.info("loading %s into %d stages", settings.served_name, plan.num_stages)
        ready_reports: list[ReadyReport] = []
        group.start(lambda report: _note_ready(report, ready_reports))
        scheduler = make_scheduler(scheduler_settings(settings, plan), settings)
        core = EngineCore(scheduler, group, observer)
        for report in ready_reports:
            core.absorb(report, time.monotonic())
        failure = _Failure()
        recovery = _recovery(settings, plan)
        desk = None if control is None else _desk(settings, plan, scheduler, observer, telemetry)
        loop = EngineLoop(
            core, group, recovery, failure.note, vocabulary_size=shape.vocabulary_size, desk=desk
        )
        context = ApiContext(
            engine=loop,
            codec=codec,
            served_model_name=settings.served_name,
            created_s=int(time.time()),
            max_context_tokens=scheduler.settings.max_request_tokens,
            registry=registry,
            new_id=lambda: uuid.uuid4().hex,
            unix_time_s=time.time,
            keys=keys,
        )
        server = _uvicorn_server(context, settings.drain_seconds)
        failure.stop_server = lambda: setattr(server, "should_exit", True)
        loop.start()
        stack.callback(lambda: group.kill() if server.force_exit else None)
        stack.callback(loop.stop)
        if control is not None and desk is not None:
            hello = make_hello(
                scheduler.settings,
                num_stages=plan.num_stages,
                static_chunk_tokens=settings.static_chunk_tokens,
                version=version("pipelineserve"),
            )
            control.open(ControlledEngine(loop, desk, hello))
            stack.callback(control.turn_away)
        stack.callback(ending.begin)
        host, port = listener.getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        logger.info("serving %s on http://%s:%d", settings.served_name, address, port)
        server.run(sockets=[listener])
        if failure.message is not None:
            raise EngineUnavailableError(failure.message)


@contextmanager
def _observing(
    settings: EngineSettings, telemetry: Telemetry, plan: PipelinePlan
) -> Iterator[Observer]:
    """What is told of everything; with a trace file until the end of the block."""
    if not settings.trace_file:
        yield Observer(telemetry, plan.num_stages)
        return
    path = Path(settings.trace_file)
    setup = TracedSetup(
        layers_per_stage=plan.partition.layers_per_stage,
        sizes=scheduler_settings(settings, plan),
        schedule=settings.schedule,
        static_chunk_tokens=settings.static_chunk_tokens,
    )
    with TraceRecorder(path, setup, settings.trace_max_events, time.monotonic) as recorder:
        yield Observer(telemetry, plan.num_stages, [recorder])


def _load_codec(model_folder: Path) -> TextCodec:
    try:
        return load_codec(model_folder)
    except Exception as error:  # the libraries below raise whatever the files make them
        reason = str(error).partition("\n")[0]
        raise ModelUnavailableError(
            f"{model_folder}: the tokenizer cannot be loaded: {reason}; "
            "expected the tokenizer's files beside config.json; fetch the model again"
        ) from error


def listen(host: str, port: int) -> socket.socket:
    """Bind the API's port before anything slow happens.

    Raises:
        EngineUnavailableError: the address is taken or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise EngineUnavailableError(
            f"cannot listen on {host}:{port}: {error.strerror}; "
            "choose another port, or end the process that uses this one"
        ) from error
    return listener


def scheduler_settings(settings: EngineSettings, plan: PipelinePlan) -> SchedulerSettings:
    """The scheduler's sizes, from the settings and the pipeline's plan."""
    return SchedulerSettings(
        num_slots=plan.num_slots,
        max_chunk_tokens=settings.max_chunk_tokens,
        num_blocks=plan.num_blocks,
        block_tokens=plan.block_tokens,
        max_context_tokens=plan.max_context_tokens,
        max_waiting_requests=settings.max_waiting_requests,
        max_running_requests=settings.max_running_requests,
        num_host_blocks=plan.num_host_blocks,
    )


def _desk(
    settings: EngineSettings,
    plan: PipelinePlan,
    scheduler: Scheduler,
    observer: Observer,
    telemetry: Telemetry,
) -> ControlDesk:
    return make_desk(
        scheduler,
        observer,
        telemetry,
        num_stages=plan.num_stages,
        static_chunk_tokens=settings.static_chunk_tokens,
        unix_time_s=time.time(),
    )


def _recovery(settings: EngineSettings, plan: PipelinePlan) -> Recovery:
    budget = RecoveryBudget(
        max_restarts=settings.recovery_max_restarts,
        window_s=float(settings.recovery_window_seconds),
    )
    return Recovery(budget, plan.num_stages)


class _Failure:
    """Remembers why the stages failed, and lets the server end because of it."""

    def __init__(self) -> None:
        self.message: str | None = None
        self.stop_server: Callable[[], None] = lambda: None

    def note(self, message: str) -> None:
        logger.error("engine failed: %s", message)
        self.message = message
        self.stop_server()


def _note_ready(report: ReadyReport, reports: list[ReadyReport]) -> None:
    reports.append(report)
    logger.info(
        "stage %d ready: pid %d, %d MiB of weights, up to %d MiB of KV",
        report.stage_index,
        report.pid,
        report.weight_bytes >> 20,
        report.kv_bytes >> 20,
    )


class _Server(uvicorn.Server):
    """Ends at once at a second signal of either kind; uvicorn does so for SIGINT only."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        super().handle_exit(sig, frame)


def _uvicorn_server(context: ApiContext, drain_seconds: int) -> uvicorn.Server:
    return _Server(
        uvicorn.Config(
            build_app(context),
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=drain_seconds,
        )
    )


def _nursery(settings: EngineSettings) -> Nursery:
    """One of this host's stages, if there are any: stage hosts have their own."""
    return Nursery() if settings.stage_addresses else own_nursery()


def _follow_parent(parent_pid: int) -> None:
    """End in order once the process that started this one is gone, however it went."""

    def watch() -> None:
        while os.getppid() == parent_pid:
            time.sleep(_PARENT_CHECK_PERIOD_S)
        os.kill(os.getpid(), signal.SIGTERM)

    if parent_pid:
        threading.Thread(target=watch, name="follow-parent", daemon=True).start()


def main(arguments: Sequence[str], make_scheduler: SchedulerMaker = make_scheduler) -> int:
    """Serve with the settings of these flags; 0 after an orderly end, 1 after a failure."""
    level = os.environ.get("PIPELINESERVE_LOG_LEVEL", "INFO").upper()
    if level not in logging.getLevelNamesMapping():
        known = ", ".join(logging.getLevelNamesMapping())
        sys.stderr.write(f"error: PIPELINESERVE_LOG_LEVEL: expected one of {known}, got {level}\n")
        return 2
    logging.basicConfig(
        level=level,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    ending = Ending()
    ending.watch_signals()
    try:
        settings = parse_settings(arguments)
        serve(settings, ending, make_scheduler)
    except PipelineServeError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
