"""Sets of a group from a kept template."""

import json

from pipelineserve_operator.render import (
    Group,
    controller_revision,
    group_objects,
    group_template,
    template_from_data,
)
from rendering import SETTINGS, a_subject, pods_of

SUBJECT = a_subject({"parallelism": {"stages": 6, "stagesPerPod": 2}})
TEMPLATE = group_template(SUBJECT, SETTINGS)


def test_a_set_starts_all_pods_at_once_and_replaces_none_by_itself() -> None:
    for one in group_objects(SUBJECT, TEMPLATE, [Group(0)]):
        assert one["spec"]["podManagementPolicy"] == "Parallel"
        assert one["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_a_set_selects_its_own_pods_and_no_other_groups() -> None:
    groups = [Group(0, 1), Group(0, 2), Group(1, 1)]
    sets = group_objects(SUBJECT, TEMPLATE, groups)
    assert len(sets) == 6
    for one in sets:
        selector = one["spec"]["selector"]["matchLabels"].items()
        selected = [
            other["metadata"]["name"]
            for other in sets
            if selector <= other["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert selected == [one["metadata"]["name"]]


def test_a_pods_ordinal_is_its_place_in_the_group() -> None:
    pods = pods_of(group_objects(SUBJECT, TEMPLATE, [Group(3, 2)]))
    assert [pod.name for pod in pods] == [
        "small-r3-e2-0",
        "small-r3-e2-w-1",
        "small-r3-e2-w-2",
    ]


def test_a_template_that_was_kept_gives_the_same_sets() -> None:
    kept = controller_revision(SUBJECT, SETTINGS, TEMPLATE)
    read = template_from_data(json.loads(json.dumps(kept["data"])))
    assert read == TEMPLATE
    assert kept["metadata"]["name"] == f"small-{TEMPLATE.revision}"
    groups = [Group(0, 1)]
    assert group_objects(SUBJECT, read, groups) == group_objects(SUBJECT, TEMPLATE, groups)


def test_making_sets_leaves_the_template_as_it_is() -> None:
    before = json.dumps(TEMPLATE.to_data())
    group_objects(SUBJECT, TEMPLATE, [Group(7, 7)])
    assert json.dumps(TEMPLATE.to_data()) == before


def test_only_a_group_of_several_pods_has_a_key() -> None:
    assert TEMPLATE.is_spread
    assert not group_template(a_subject(), SETTINGS).is_spread
