"""The add-on steers a vLLM that has and reads all that it uses, or none."""

import pytest

from pipelineserve_engine.vllm.targets import SCHEDULE, TARGETS, VERSIONS, mismatches
from vllm_fakes import FakeScheduler


class Deaf:
    """A scheduler that composes without looking at what steers it."""

    def schedule(self, throttle_prefills: bool = False) -> bool:
        """Reads nothing."""
        return throttle_prefills


def of(scheduler: type) -> list[str]:
    return mismatches(VERSIONS[0], [SCHEDULE], lambda path: getattr(scheduler, path.split(".")[-1]))


def test_a_scheduler_that_reads_what_steers_it_is_fine() -> None:
    assert of(FakeScheduler) == []


def test_one_that_would_be_steered_without_effect_is_not() -> None:
    assert of(Deaf) == [
        f"{SCHEDULE.path} does not read max_num_scheduled_tokens",
        f"{SCHEDULE.path} does not read next_decode_eligible_step",
        f"{SCHEDULE.path} does not read current_step",
    ]


@pytest.mark.parametrize("version", ["0.31.1", "0.33.0", ""])
def test_another_version_is_one_that_nobody_has_tried(version: str) -> None:
    def resolve(path: str) -> object:
        found: object = getattr(FakeScheduler, path.rpartition(".")[2])
        return found

    assert mismatches(version, [SCHEDULE], resolve) == [f"vLLM {version}: expected 0.32.0"]


def test_every_target_is_one_function_of_vllm() -> None:
    paths = [target.path for target in TARGETS]
    assert len(set(paths)) == len(paths)
    assert all(path.startswith("vllm.v1.") for path in paths)
