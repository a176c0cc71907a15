"""What an edit of a running manifest comes to."""

from pathlib import Path

import pytest

from pipelineserve.api import PipelineServe
from pipelineserve_cli.edits import ManifestWatch
from pipelineserve_cli.manifests import read_resource

MANIFEST = """
apiVersion: pipelineserve.dev/v1alpha1
kind: PipelineServe
metadata: {name: tiny}
spec:
  model: {uri: file:///models/tiny}
  engine: {type: Torch}
  parallelism: {stages: 2}
  slo: {ttft: {milliseconds: 1000}}
"""


class Edited:
    """A manifest that is edited while it is watched."""

    def __init__(self, path: Path, *, has_control: bool = True) -> None:
        self.path = path
        path.write_text(MANIFEST)
        self.taken: list[PipelineServe] = []
        take = self.taken.append if has_control else None
        self.watch = ManifestWatch(path, read_resource(path), take)

    def edit(self, old: str, new: str) -> list[str]:
        """Replace a part of what stands there; the messages once the file has settled."""
        text = self.path.read_text()
        assert old in text
        return self.write(text.replace(old, new))

    def write(self, text: str) -> list[str]:
        """Write all anew; the messages once the file has settled."""
        self.path.write_text(text)
        return self.settled()

    def settled(self) -> list[str]:
        """The messages of two looks; the first sees the file still moving."""
        assert self.watch.look() == []
        return self.watch.look()


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    return Edited(tmp_path / "tiny.yaml")


def test_an_unchanged_file_says_nothing(edited: Edited) -> None:
    assert [edited.watch.look() for _ in range(3)] == [[], [], []]


def test_a_live_field_is_in_force_at_once(edited: Edited) -> None:
    assert edited.edit("milliseconds: 1000", "milliseconds: 900") == [
        "edit in force: spec.slo.ttft.milliseconds 1000 → 900"
    ]
    assert edited.edit("milliseconds: 900", "milliseconds: 800") == [
        "edit in force: spec.slo.ttft.milliseconds 900 → 800"
    ]


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ("chunking: {policy: Static}", "spec.chunking.policy"),
        ("rebalancing: {mode: TpotFirst}", "spec.rebalancing.mode"),
        ("queueing: {order: Arrival}", "spec.queueing.order"),
        ("control: {mode: Paused}", "spec.control.mode"),
    ],
)
def test_every_live_section_is_followed(edited: Edited, section: str, path: str) -> None:
    messages = edited.write(f"{MANIFEST}  {section}\n")
    assert [message.split()[3] for message in messages] == [path]
    assert messages[0].startswith("edit in force: ")


def test_what_is_taken_has_the_live_fields_of_the_edit_and_all_others_of_the_start(
    edited: Edited,
) -> None:
    text = MANIFEST.replace("1000", "900").replace("stages: 2", "stages: 3")
    assert len(edited.write(f"{text}  control: {{mode: Paused}}\n")) == 3
    (taken,) = edited.taken
    assert taken.spec.slo.ttft is not None
    assert taken.spec.slo.ttft.milliseconds == 900
    assert taken.spec.control.mode.value == "Paused"
    assert taken.spec.parallelism.stages == 2
    edited.edit("stages: 3", "stages: 4")
    edited.edit("milliseconds: 900", "milliseconds: fast")
    assert len(edited.taken) == 1
    edited.write(MANIFEST)
    assert edited.taken[1].spec.control.mode.value == "Active"


def test_live_fields_that_need_another_one_wait_with_it(edited: Edited) -> None:
    edited.path.write_text(MANIFEST.replace("type: Torch", "type: Torch, maxChunkTokens: 512"))
    started = read_resource(edited.path)
    taken: list[PipelineServe] = []
    edited.watch = ManifestWatch(edited.path, started, taken.append)
    [message] = edited.write(
        MANIFEST.replace("type: Torch", "type: Torch, maxChunkTokens: 4096")
        + "  chunking: {maxTokens: 4096}\n"
    )
    assert message.startswith("edit needs a restart of `pserve local up`: ")
    assert "spec.chunking.maxTokens" in message
    assert taken == []


def test_any_other_field_needs_a_restart_and_is_said_once(edited: Edited) -> None:
    assert edited.edit("stages: 2", "stages: 3") == [
        "edit needs a restart of `pserve local up`: spec.parallelism.stages 2 → 3"
    ]
    assert edited.edit("milliseconds: 1000", "milliseconds: 900") == [
        "edit in force: spec.slo.ttft.milliseconds 1000 → 900"
    ]


def test_a_field_that_is_set_back_waits_for_nothing(edited: Edited) -> None:
    edited.edit("stages: 2", "stages: 3")
    assert edited.edit("stages: 3", "stages: 2") == []
    assert edited.edit("stages: 2", "stages: 3") != []


def test_a_target_that_is_added_or_taken_away_is_live(edited: Edited) -> None:
    messages = edited.edit("slo: {", "slo: {tpot: {milliseconds: 50}, ")
    assert messages[0].startswith("edit in force: spec.slo.tpot nothing → {")


def test_a_bad_edit_is_refused_with_the_fields_path(edited: Edited) -> None:
    [message] = edited.edit("milliseconds: 1000", "milliseconds: fast")
    assert message.startswith("edit refused, the earlier targets stay: ")
    assert "spec.slo.ttft.milliseconds: expected an integer, got the string" in message


def test_after_a_bad_edit_the_next_good_one_is_compared_with_the_last_good_one(
    edited: Edited,
) -> None:
    edited.edit("milliseconds: 1000", "milliseconds: fast")
    assert edited.edit("milliseconds: fast", "milliseconds: 900") == [
        "edit in force: spec.slo.ttft.milliseconds 1000 → 900"
    ]


def test_a_comment_changes_nothing(edited: Edited) -> None:
    assert edited.write(f"# nothing\n{MANIFEST}") == []


def test_a_file_that_is_half_written_is_not_judged(edited: Edited) -> None:
    edited.path.write_text("")
    assert edited.watch.look() == []
    assert edited.write(MANIFEST.replace("1000", "700")) == [
        "edit in force: spec.slo.ttft.milliseconds 1000 → 700"
    ]


def test_a_file_that_is_gone_is_said_and_may_come_back(edited: Edited) -> None:
    edited.path.unlink()
    [message] = edited.settled()
    assert "cannot be read" in message
    assert edited.write(MANIFEST) == []


def test_without_a_controller_every_edit_needs_a_restart(tmp_path: Path) -> None:
    edited = Edited(tmp_path / "tiny.yaml", has_control=False)
    assert edited.edit("milliseconds: 1000", "milliseconds: 900") == [
        "edit needs a restart of `pserve local up`: spec.slo.ttft.milliseconds 1000 → 900"
    ]
