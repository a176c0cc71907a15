"""Which objectives hold: valid ones, of the right resource, and none older than those before."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from control_turns import make_objectives
from pipelineserve.errors import InvalidInputError
from pipelineserve.policy.control.objectives import ChunkLaw, HoldLaw, LatencyGoal, Mode, OrderLaw
from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve_controller.objectives import (
    ObjectivesFile,
    ObjectivesStore,
    Source,
    objectives_from_message,
    objectives_from_text,
)

RESOURCE = """
apiVersion: pipelineserve.dev/v1alpha1
kind: PipelineServe
metadata: {name: demo}
spec:
  model: {uri: "file:///model"}
  engine: {maxChunkTokens: 1024}
  parallelism: {stages: 2}
  slo: {ttft: {percentile: 95, milliseconds: 1500}, windowSeconds: 60}
  chunking: {policy: Greedy, minTokens: 64, staticTokens: 256}
  rebalancing: {mode: "Off", maxGapMilliseconds: 700}
  queueing: {order: Triage, lateSharePercent: 20}
  control: {mode: Advisory, leaseSeconds: 7, staleSeconds: 20}
"""
SLO = {"slo": {"ttft": {"milliseconds": 1000}}}


def message_of(spec: Mapping[str, object]) -> pb.Objectives:
    return pb.Objectives(resource_uid="uid", generation=3, spec_json=json.dumps(spec))


def test_a_resource_is_read_with_its_live_sections() -> None:
    objectives, name = objectives_from_text(RESOURCE, "file", generation=4)
    assert name == "demo"
    assert objectives.generation == 4
    assert (objectives.ttft, objectives.tpot) == (LatencyGoal(95, 1.5), None)
    assert objectives.chunk_law is ChunkLaw.GREEDY
    assert (objectives.min_tokens, objectives.static_tokens, objectives.max_tokens) == (
        64,
        256,
        1024,
    )
    assert (objectives.hold_law, objectives.max_gap_s) == (HoldLaw.OFF, 0.7)
    assert (objectives.order_law, objectives.mode) == (OrderLaw.TRIAGE, Mode.ADVISORY)
    assert objectives.late_share_ratio == 0.2
    assert (objectives.lease_s, objectives.stale_s, objectives.window_s) == (7.0, 20.0, 60.0)


def test_a_resource_of_a_cluster_keeps_its_own_uid_and_generation() -> None:
    text = RESOURCE.replace("{name: demo}", "{name: demo, uid: abc, generation: 9}")
    objectives, _ = objectives_from_text(text, "file", generation=1)
    assert (objectives.resource_uid, objectives.generation) == ("abc", 9)


@pytest.mark.parametrize("names", [("resource_uid", "spec_json"), ("resourceUid", "specJson")])
def test_the_operators_objectives_are_read_in_either_spelling(names: tuple[str, str]) -> None:
    uid, spec = names
    text = json.dumps({uid: "abc", "generation": "12", spec: json.dumps(SLO)})
    objectives, _ = objectives_from_text(text, "file", generation=1)
    assert (objectives.resource_uid, objectives.generation) == ("abc", 12)
    assert objectives.ttft == LatencyGoal(90, 1.0)


def test_the_engines_ceiling_bounds_the_operators_objectives() -> None:
    objectives = objectives_from_message(
        message_of({**SLO, "engine": {"maxChunkTokens": 300}}), "it"
    )
    assert objectives.max_tokens == 300


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"slo": {"ttft": {"milliseconds": "fast"}}}, "spec.slo.ttft.milliseconds: expected"),
        ({"slo": {}}, "spec.slo"),
        ({**SLO, "chunking": {"minTokens": 512, "maxTokens": 128}}, "spec.chunking.minTokens"),
        ({**SLO, "model": {"uri": "x"}}, "spec.model: not a live section"),
        ({**SLO, "chunking": {"polcy": "Static"}}, "did you mean policy"),
    ],
)
def test_bad_objectives_are_refused_with_the_fields_path(
    spec: dict[str, object], problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        objectives_from_message(message_of(spec), "the operator")


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_what_is_no_object_is_refused(text: str) -> None:
    message = pb.Objectives(resource_uid="uid", generation=1, spec_json=text)
    with pytest.raises(InvalidInputError, match="spec_json: expected"):
        objectives_from_message(message, "the operator")


def test_text_that_is_no_message_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="expected Objectives"):
        objectives_from_text('{"spec_json": 4}', "file", generation=1)


def test_a_newer_generation_replaces_an_older_one_whatever_its_source() -> None:
    store = ObjectivesStore()
    assert store.offer(make_objectives(generation=2), Source.FILE)
    assert store.offer(make_objectives(generation=3), Source.OPERATOR)
    assert store.current == make_objectives(generation=3)
    assert store.source is Source.OPERATOR


@pytest.mark.parametrize("source", [Source.FILE, Source.OPERATOR])
def test_an_older_generation_of_the_same_resource_changes_nothing(source: Source) -> None:
    store = ObjectivesStore()
    store.offer(make_objectives(generation=3), Source.FILE)
    assert not store.offer(make_objectives(generation=2, ttft_s=9.0), source)
    assert store.current == make_objectives(generation=3)


def test_a_resource_that_was_made_anew_begins_to_count_again() -> None:
    store = ObjectivesStore()
    store.offer(make_objectives(uid="old", generation=9), Source.FILE)
    assert store.offer(make_objectives(uid="new", generation=1), Source.FILE)


def test_another_resource_is_refused_where_one_is_named() -> None:
    store = ObjectivesStore(resource_uid="mine")
    assert not store.offer(make_objectives(uid="other"), Source.OPERATOR)
    assert store.current is None
    assert store.refused_edit == "expected objectives of the resource mine, got other"


def test_the_file_is_followed_and_its_edits_are_counted(tmp_path: Path) -> None:
    path, store = tmp_path / "resource.yaml", ObjectivesStore()
    file = ObjectivesFile(path, store)
    path.write_text(RESOURCE)
    file.look()
    file.look()
    assert store.current is not None
    assert (store.current.generation, store.resource_name) == (1, "demo")
    path.write_text(RESOURCE.replace("1500", "900"))
    file.look()
    assert store.current.generation == 2
    assert store.current.ttft == LatencyGoal(95, 0.9)


def test_a_bad_edit_is_refused_with_its_path_and_the_old_targets_stay(tmp_path: Path) -> None:
    path, store = tmp_path / "resource.yaml", ObjectivesStore()
    file = ObjectivesFile(path, store)
    path.write_text(RESOURCE)
    file.look()
    before = store.current
    path.write_text(RESOURCE.replace("1500", "none"))
    file.look()
    assert store.current == before
    assert "spec.slo.ttft.milliseconds" in store.refused_edit
    path.write_text(RESOURCE.replace("1500", "800"))
    file.look()
    assert store.refused_edit == ""
    assert store.current is not None
    # Refused edits are not counted.
    assert store.current.generation == 2


def test_an_edit_that_is_taken_back_is_no_longer_refused(tmp_path: Path) -> None:
    path, store = tmp_path / "resource.yaml", ObjectivesStore()
    file = ObjectivesFile(path, store)
    for text in (RESOURCE, "nonsense", RESOURCE):
        path.write_text(text)
        file.look()
    assert store.refused_edit == ""


def test_a_file_that_is_gone_for_a_moment_changes_nothing(tmp_path: Path) -> None:
    path, store = tmp_path / "resource.yaml", ObjectivesStore()
    file = ObjectivesFile(path, store)
    path.write_text(RESOURCE)
    file.look()
    before = store.current
    path.unlink()
    file.look()
    assert store.current == before
    assert "cannot be read" in store.refused_edit


def test_a_mounted_folder_that_is_swapped_is_noticed(tmp_path: Path) -> None:
    """A ConfigMap's file is a link into a folder that is replaced as a whole."""
    store = ObjectivesStore()
    for number, text in enumerate((RESOURCE, RESOURCE.replace("1500", "700"))):
        folder = tmp_path / f"data-{number}"
        folder.mkdir()
        (folder / "resource.yaml").write_text(text)
    link = tmp_path / "data"
    link.symlink_to(tmp_path / "data-0")
    file = ObjectivesFile(link / "resource.yaml", store)
    file.look()
    staged = tmp_path / "staged"
    staged.symlink_to(tmp_path / "data-1")
    staged.rename(link)
    file.look()
    assert store.current is not None
    assert store.current.ttft == LatencyGoal(95, 0.7)
