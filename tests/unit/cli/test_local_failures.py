"""Why a container did not start, in words that say what to change."""

import pytest

from pipelineserve_cli.local_failures import failure_of
from pipelineserve_cli.pods.containers import ContainerEnd, ContainerId


def message_of(*last_lines: str) -> str:
    container = ContainerId("tiny-r0-e0-0", "engine")
    return str(failure_of(ContainerEnd(container, 2, "", last_lines, 0.0)))


@pytest.mark.parametrize("program", ["python -m pipelineserve_engine.server", "sglang serve"])
def test_a_flag_that_the_engine_refuses_is_one_of_the_resource_s_arguments(program: str) -> None:
    found = message_of("usage: ...", f"{program}: error: unrecognized arguments: --speed=9")
    assert found == "spec.engine.args: unrecognized arguments: --speed=9"


def test_an_end_that_nothing_is_known_of_is_told_with_the_last_lines() -> None:
    assert message_of("one", "two") == "tiny-r0-e0-0/engine ended with 2:\none\ntwo"
