"""Which objectives hold: the newest generation of a resource, from a file or the operator."""

import asyncio
import json
import logging
from dataclasses import replace
from enum import Enum
from pathlib import Path

from google.protobuf.json_format import Parse, ParseError

from pipelineserve.api import (
    API_VERSION,
    KIND,
    PipelineServe,
    effective_chunking,
    parse_resource,
    resource_from_document,
)
from pipelineserve.api.targets import LatencyTarget
from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.policy.control.objectives import (
    ChunkLaw,
    HoldLaw,
    LatencyGoal,
    Mode,
    Objectives,
    OrderLaw,
)
from pipelineserve.wire.v1 import operator_pb2 as pb

logger = logging.getLogger(__name__)

LIVE_SECTIONS = ("slo", "chunking", "rebalancing", "queueing", "control", "engine")
_POLL_S = 0.25
_MAX_FILE_BYTES = 1 << 20


class Source(Enum):
    """Where objectives came from."""

    NOWHERE = "nowhere"
    FILE = "file"
    OPERATOR = "operator"


class ObjectivesStore:
    """Holds the objectives that are followed, and why the latest offer was not taken.

    Args:
        resource_uid: offers of another resource are refused; empty takes any.
    """

    def __init__(self, resource_uid: str = "") -> None:
        self._resource_uid = resource_uid
        self.current: Objectives | None = None
        self.resource_name = ""
        self.source = Source.NOWHERE
        self.refused_edit = ""

    def offer(self, objectives: Objectives, source: Source, resource_name: str = "") -> bool:
        """Follow these unless they are another resource's or older; tells whether they are."""
        old = self.current
        if self._resource_uid and objectives.resource_uid != self._resource_uid:
            expected, got = self._resource_uid, objectives.resource_uid or "none"
            self.refuse(source, f"expected objectives of the resource {expected}, got {got}")
            return False
        if old and old.resource_uid == objectives.resource_uid:
            if objectives.generation < old.generation:
                return False  # an older word of the same resource changes nothing, by contract
            if objectives == old:
                self.refused_edit = ""
                return True
        self.current, self.source, self.refused_edit = objectives, source, ""
        self.resource_name = resource_name or self.resource_name
        logger.info("objectives taken: generation %d, %s", objectives.generation, source.value)
        return True

    def refuse(self, source: Source, problem: str) -> None:
        """Remember why an edit was not taken; what holds stays."""
        if problem != self.refused_edit:
            logger.warning("objectives refused (%s): %s", source.value, problem)
        self.refused_edit = problem


class ObjectivesFile:
    """Offers the objectives in a file whenever it changes.

    The file is a resource, or the operator's Objectives as protobuf's JSON. A resource without a
    generation, as a person writes it, gets the number of edits of it that were taken so far.
    """

    def __init__(self, path: Path, store: ObjectivesStore) -> None:
        self._path = path
        self._store = store
        self._text: str | None = None
        self._num_edits = 0

    async def run(self) -> None:
        """Look at the file again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_POLL_S)

    def look(self) -> None:
        """Read the file, and offer what it says if its text has changed."""
        try:
            text = _read(self._path)
        except (OSError, UnicodeDecodeError) as error:
            # A file that is being replaced is gone for a moment; the targets hold meanwhile.
            self._store.refuse(Source.FILE, f"{self._path}: cannot be read: {error}")
            return
        if text == self._text:
            return
        self._text = text
        try:
            objectives, name = objectives_from_text(
                text, str(self._path), generation=self._num_edits + 1
            )
        except InvalidInputError as error:
            self._store.refuse(Source.FILE, str(error))
            return
        if self._store.offer(objectives, Source.FILE, name):
            self._num_edits += 1


def objectives_from_text(text: str, source: str, generation: int) -> tuple[Objectives, str]:
    """Objectives and the resource's name, from a resource or from the operator's Objectives.

    Args:
        text: YAML or JSON.
        source: names the text in errors.
        generation: for a resource that has none.

    Raises:
        InvalidInputError: with every fault and its field's path.
    """
    if '"spec_json"' in text or '"specJson"' in text:
        try:
            message = Parse(text, pb.Objectives())
        except ParseError as error:
            raise InvalidInputError(source, [Fault("", f"expected Objectives: {error}")]) from error
        return objectives_from_message(message, source), ""
    resource = parse_resource(text, source)
    return objectives_of(resource, generation), resource.name


def objectives_from_message(message: pb.Objectives, source: str) -> Objectives:
    """Objectives as the operator sends them.

    Raises:
        InvalidInputError: with every fault and its field's path.
    """
    try:
        sections = json.loads(message.spec_json)
    except ValueError as error:
        raise InvalidInputError(source, [Fault("spec_json", f"expected JSON: {error}")]) from error
    if not isinstance(sections, dict):
        fault = Fault("spec_json", f"expected an object, got {message.spec_json[:60]}")
        raise InvalidInputError(source, [fault])
    unknown = [
        Fault(f"spec.{name}", "not a live section")
        for name in sections
        if name not in LIVE_SECTIONS
    ]
    if unknown:
        raise InvalidInputError(source, unknown)
    # The live sections are judged as part of a whole resource, by the same rules; what is not live
    # stands in and is not looked at.
    rest = {"model": {"uri": "file:///model"}, "parallelism": {"stages": 1}}
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "objectives"},
        "spec": {**rest, **sections},
    }
    resource = resource_from_document(document, source)
    return replace(objectives_of(resource, message.generation), resource_uid=message.resource_uid)


def objectives_of(resource: PipelineServe, generation: int) -> Objectives:
    """The live part of a resource; `generation` is for one that has none."""
    spec, metadata = resource.spec, resource.metadata
    sizes = effective_chunking(spec.chunking, spec.engine.max_chunk_tokens)
    given = metadata.generation
    return Objectives(
        resource_uid=metadata.uid or "",
        generation=generation if given is None else given,
        ttft=_goal(spec.slo.ttft),
        tpot=_goal(spec.slo.tpot),
        window_s=float(spec.slo.window_seconds),
        chunk_law=ChunkLaw(spec.chunking.policy.value),
        min_tokens=sizes.min_tokens,
        max_tokens=sizes.max_tokens,
        step_tokens=sizes.step_tokens,
        static_tokens=sizes.static_tokens,
        hold_law=HoldLaw(spec.rebalancing.mode.value),
        max_gap_s=spec.rebalancing.max_gap_s,
        order_law=OrderLaw(spec.queueing.order.value),
        late_share_ratio=spec.queueing.late_share_percent / 100,
        mode=Mode(spec.control.mode.value),
        lease_s=float(spec.control.lease_seconds),
        stale_s=float(spec.control.stale_seconds),
    )


def _goal(target: LatencyTarget | None) -> LatencyGoal | None:
    return None if target is None else LatencyGoal(target.percentile, target.target_s)


def _read(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise OSError(f"expected at most {_MAX_FILE_BYTES} bytes, got more")
    return content.decode()
