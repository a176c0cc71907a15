"""The demo's load is decided by its seed alone."""

from pipelineserve_cli.demo_load import Outcome, plan_load


def an_outcome(*, num_output_tokens: int) -> Outcome:
    return Outcome(
        content="?", answer="!", num_prompt_tokens=3, num_output_tokens=num_output_tokens,
        ttft_s=1.0, e2e_s=3.0,
    )  # fmt: skip


def test_the_same_seed_gives_the_same_load_and_another_gives_another() -> None:
    assert plan_load(1, 20, 1.0) == plan_load(1, 20, 1.0)
    assert plan_load(1, 20, 1.0) != plan_load(2, 20, 1.0)


def test_arrivals_keep_the_rate_and_short_and_long_prompts_are_mixed() -> None:
    load = plan_load(3, 2000, 4.0)
    assert 450.0 < load[-1].at_s < 550.0
    assert [request.at_s for request in load] == sorted(request.at_s for request in load)
    long_prompts = [request for request in load if len(request.content) > 400]
    assert len(long_prompts) == 2000 // 3


def test_tpot_leaves_the_first_token_out_and_needs_two() -> None:
    assert an_outcome(num_output_tokens=5).tpot_s == 0.5
    assert an_outcome(num_output_tokens=1).tpot_s is None
