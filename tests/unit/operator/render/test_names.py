"""Names fit, say what they are of, and never meet those of another resource."""

import re

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_operator.render import names
from pipelineserve_operator.render.names import Group

RESOURCE_NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True)
GROUPS = st.builds(Group, st.integers(0, 999), st.integers(0, 2**63 - 1))
ENDINGS = (names.members, names.api)


def test_the_names_of_a_group_say_replica_and_epoch() -> None:
    leader = names.leader_set("qwen-32b", Group(2, 7))
    assert leader == "qwen-32b-r2-e7"
    assert names.pod(names.worker_set(leader), 3) == "qwen-32b-r2-e7-w-3"
    assert names.group_key(leader) == "qwen-32b-r2-e7-key"


def test_a_long_name_keeps_its_beginning_and_stays_distinct() -> None:
    epochs = [names.leader_set("n" * 40, Group(999, epoch)) for epoch in (10**9, 10**9 + 1)]
    assert all(name.startswith("n" * 40) for name in epochs)
    assert len(set(epochs)) == 2


@given(RESOURCE_NAMES, GROUPS)
def test_every_set_leaves_room_for_the_label_of_its_pods(name: str, group: Group) -> None:
    leader = names.leader_set(name, group)
    for one in (leader, names.worker_set(leader)):
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?", one)


@given(RESOURCE_NAMES)
def test_services_start_with_a_letter(name: str) -> None:
    for ending in ENDINGS:
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", ending(name))


@given(RESOURCE_NAMES, RESOURCE_NAMES)
def test_no_name_is_anothers(one: str, other: str) -> None:
    neighbours = [one, other, f"{one}-pods", f"{one}-api", f"p-{one}", f"{one}-r0-e0"]
    made = [ending(name) for name in dict.fromkeys(neighbours) for ending in ENDINGS]
    assert len(set(made)) == len(made)


@given(RESOURCE_NAMES, GROUPS, RESOURCE_NAMES, GROUPS)
def test_no_group_is_anothers(one: str, group: Group, other: str, another: Group) -> None:
    is_same = (one, group) == (other, another)
    is_same_name = names.leader_set(one, group) == names.leader_set(other, another)
    assert is_same_name is is_same
