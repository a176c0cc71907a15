"""The link to the operator: tells how this replica fares, and gets the objectives that hold."""

import asyncio
import logging
import random
from collections.abc import Callable
from pathlib import Path

import grpc

from pipelineserve.errors import InvalidInputError
from pipelineserve.policy.control.answers import Answer
from pipelineserve.policy.control.histograms import Histogram
from pipelineserve.wire import keepalive
from pipelineserve.wire.keepalive import Keepalive
from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve.wire.v1.operator_pb2_grpc import OperatorLinkStub
from pipelineserve_controller.backoff import Backoff
from pipelineserve_controller.facts import feasible_instead
from pipelineserve_controller.loop import ControlLoop
from pipelineserve_controller.objectives import (
    ObjectivesStore,
    Source,
    objectives_from_message,
)
from pipelineserve_controller.picture import is_effective
from pipelineserve_controller.settings import SidecarSettings
from pipelineserve_controller.watch import EngineLink

logger = logging.getLogger(__name__)

# What is run is said again this often, and at once when it changes.
REPEAT_S = 5.0
_LOOK_S = 0.2
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_VERDICTS = {
    Answer.YES: pb.VERDICT_TRUE,
    Answer.NO: pb.VERDICT_FALSE,
    Answer.UNKNOWN: pb.VERDICT_UNKNOWN,
}


class OperatorAttendant:
    """Attends to the operator, for as long as `run` runs; without it control goes on as before.

    Args:
        settings: where the operator is, and the files it is known by, read again each time.
        store: gets what the operator sends.
        status: makes what is said.
        chance: spreads attempts to connect.
        pings: by which a connection that carries nothing any more is noticed.
    """

    def __init__(
        self,
        settings: SidecarSettings,
        store: ObjectivesStore,
        status: Callable[[], pb.ControllerStatus],
        chance: random.Random,
        pings: Keepalive = keepalive.SIDECAR,
    ) -> None:
        self._settings = settings
        self._store = store
        self._status = status
        self._chance = chance
        self._pings = pings
        self.is_connected = False

    async def run(self) -> None:
        """Dial, attend, and dial again after a pause, until cancelled."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            try:
                await self.attend_once()
            except (grpc.RpcError, OSError, ValueError) as error:
                logger.warning("operator connection lost: %s", error)
            backoff = backoff.succeeded() if self.is_connected else backoff.failed()
            self.is_connected = False
            await asyncio.sleep(backoff.pause_s(self._chance))

    async def attend_once(self) -> None:
        """One call, from dialling to its end."""
        async with _channel(self._settings, self._pings) as channel:
            call = OperatorLinkStub(channel).Attend(
                metadata=(("authorization", f"Bearer {_token(self._settings)}"),)
            )
            telling = asyncio.create_task(self._tell(call))
            try:
                while isinstance(message := await call.read(), pb.Objectives):
                    self.is_connected = True
                    self._take(message)
            finally:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)

    def _take(self, message: pb.Objectives) -> None:
        try:
            objectives = objectives_from_message(message, "the operator's objectives")
        except InvalidInputError as error:
            self._store.refuse(Source.OPERATOR, str(error))
            return
        self._store.offer(objectives, Source.OPERATOR)

    async def _tell(
        self, call: "grpc.aio.StreamStreamCall[pb.ControllerStatus, pb.Objectives]"
    ) -> None:
        said: pb.ControllerStatus | None = None
        quiet_s = 0.0
        while True:
            status = self._status()
            if said is None or _is_news(said, status) or quiet_s >= REPEAT_S:
                await call.write(status)
                said, quiet_s = status, 0.0
            await asyncio.sleep(_LOOK_S)
            quiet_s += _LOOK_S


def status_of(
    settings: SidecarSettings, loop: ControlLoop, store: ObjectivesStore, link: EngineLink
) -> pb.ControllerStatus:
    """What is said of this replica."""
    objectives, moment = store.current, loop.moment
    status = pb.ControllerStatus(
        resource_uid=objectives.resource_uid if objectives else settings.resource_uid,
        replica_index=settings.replica_index,
        received_generation=objectives.generation if objectives else 0,
        applied_generation=loop.applied_generation,
        is_engine_connected=link.is_connected,
        is_control_effective=is_effective(link, moment.observation),
        slo_met=pb.VERDICT_UNKNOWN,
        slo_feasible=pb.VERDICT_UNKNOWN,
        inactive_reason=link.engine.inactive_reason if link.engine else "",
    )
    observation, turn = moment.observation, moment.turn
    if observation is None or turn is None:
        return status
    status.reason = turn.reason.value
    status.are_metrics_fresh = observation.is_fresh
    status.slo_met = _VERDICTS[observation.slo_met]
    status.slo_feasible = _VERDICTS[turn.slo_feasible]
    if turn.slo_feasible is Answer.NO:
        status.feasible_instead = feasible_instead(turn.verdict)
    status.ttft.CopyFrom(_histogram(observation.ttft))
    status.tpot.CopyFrom(_histogram(observation.tpot))
    status.num_requests = observation.num_judged
    status.num_attained = observation.num_attained
    return status


def _is_news(said: pb.ControllerStatus, status: pb.ControllerStatus) -> bool:
    """Whether anything but figures has changed; these are said again every few seconds."""
    return _without_figures(said) != _without_figures(status)


def _without_figures(status: pb.ControllerStatus) -> pb.ControllerStatus:
    bare = pb.ControllerStatus()
    bare.CopyFrom(status)
    for name in ("ttft", "tpot", "num_requests", "num_attained", "feasible_instead", "reason"):
        bare.ClearField(name)
    return bare


def _histogram(histogram: Histogram) -> pb.LatencyHistogram:
    return pb.LatencyHistogram(
        bucket_indices=[index for index, _ in histogram.buckets],
        counts=[count for _, count in histogram.buckets],
    )


def _token(settings: SidecarSettings) -> str:
    """The token of this moment: it is replaced long before it ends."""
    return Path(settings.operator_token_file).read_text(encoding="ascii").strip()


def _channel(settings: SidecarSettings, pings: Keepalive) -> grpc.aio.Channel:
    credentials = grpc.ssl_channel_credentials(Path(settings.operator_ca_file).read_bytes())
    return grpc.aio.secure_channel(
        settings.operator_address,
        credentials,
        options=[
            # One name, whatever address the operator has.
            ("grpc.ssl_target_name_override", settings.operator_server_name),
            ("grpc.enable_http_proxy", 0),
            *pings.options(),
        ],
    )
