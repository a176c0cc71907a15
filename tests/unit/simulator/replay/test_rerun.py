"""A recorded run's requests are served again as they came, by the recorded or another scheduler."""

from dataclasses import replace

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.schedule import Continuous
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve_simulator.hardware.catalogue import load_profile
from pipelineserve_simulator.replay.recorded import Adopted, Ended, Queued, RecordedRun, Tried
from pipelineserve_simulator.replay.rerun import Rerun, changes_of, requests_of, simulate_again
from scheduling import make_settings

PROFILE = load_profile("a100-40gb-pcie/qwen2.5-14b")
SMALL = SchedulingPolicy(Static(8))


def queued(request_id: str, at_s: float, prompt_tokens: int = 20) -> Queued:
    return Queued(at_s, request_id, prompt_tokens, 100, "", 0)


def ended(request_id: str, at_s: float, tokens: int = 5, blocks: tuple[int, ...] = ()) -> Ended:
    return Ended(at_s, request_id, FinishReason.CANCELLED, True, tokens, blocks)


def a_run(*calls: Queued | Ended | Adopted | Tried) -> RecordedRun:
    return RecordedRun(
        layers_per_stage=(24, 24),
        sizes=make_settings(max_chunk_tokens=64),
        schedule=Continuous(),
        policy=SchedulingPolicy(Static(64)),
        calls=calls,
    )


TWO_ALIKE = a_run(
    queued("a", 50.0),
    queued("b", 51.0),
    queued("no token", 51.5),
    ended("a", 60.0, blocks=(0, 1, 2, 3, 4)),
    ended("b", 60.0, tokens=7, blocks=(0, 1, 2, 5, 6)),
    ended("no token", 60.0, tokens=0),
)


def test_requests_keep_their_gaps_lengths_and_common_prefixes() -> None:
    first, second = requests_of(TWO_ALIKE)
    assert (first.arrival_s, second.arrival_s) == (0.0, 1.0)
    assert (first.prompt_tokens, first.output_tokens) == (20, 5)
    assert second.output_tokens == 7
    assert first.prompt_token_ids is not None
    assert second.prompt_token_ids is not None
    assert first.prompt_token_ids[:12] == second.prompt_token_ids[:12]
    assert first.prompt_token_ids[12:] != second.prompt_token_ids[12:]


def test_every_request_is_served_with_as_many_tokens_as_it_had() -> None:
    outcome = simulate_again(Rerun(TWO_ALIKE, PROFILE))
    assert [request.output_tokens for request in outcome.requests] == [5, 7]
    assert all(request.is_success for request in outcome.requests)


def test_a_prefix_that_was_shared_is_computed_once() -> None:
    outcome = simulate_again(Rerun(TWO_ALIKE, PROFILE))
    unlike = replace(TWO_ALIKE, sizes=make_settings(max_chunk_tokens=64, shares_prefixes=False))
    alone = simulate_again(Rerun(unlike, PROFILE))
    computed, all_tokens = (sum(step.num_tokens for step in o.steps) for o in (outcome, alone))
    assert all_tokens - computed == 12


def test_policies_change_when_they_did() -> None:
    run = a_run(
        queued("a", 50.0),
        Tried(50.5, 0),
        Adopted(SMALL),
        queued("b", 52.0, prompt_tokens=60),
        ended("a", 60.0),
        ended("b", 60.0),
    )
    assert changes_of(run) == ((0.5, SMALL),)
    chunks = [step.chunk_tokens for step in simulate_again(Rerun(run, PROFILE)).steps]
    assert chunks[0] == 64
    assert chunks[-1] == 8


def test_another_scheduler_serves_the_same_requests() -> None:
    rerun = Rerun(TWO_ALIKE, PROFILE, lambda sizes, _: Scheduler(sizes, Static(4)))
    outcome = simulate_again(rerun)
    assert {step.chunk_tokens for step in outcome.steps} == {4}
    assert len(outcome.requests) == 2
