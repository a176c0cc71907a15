"""Two servers' samples become one comparison."""

import pytest
from bench.peers import Figures, Load, Sample, compare, plan_of

from pipelineserve_cli.load.bodies import BodySettings, Endpoint, body_of

BODIES = BodySettings("m", Endpoint.COMPLETIONS, ignores_eos=True, vocabulary_size=50_000)
LOAD = Load(num_streams=8, prompt_tokens=64, output_tokens=4)


def sample(
    round_index: int = 0, num_streams: int = 1, figure: float = 1.0, texts: tuple[str, ...] = ("",)
) -> Sample:
    return Sample(round_index, num_streams, Figures(figure, figure, figure, figure), 0.0, texts)


def bodies(key: str) -> list[bytes]:
    return [body_of(request, BODIES) for request in plan_of(LOAD, key).requests]


def test_each_figure_is_the_median_of_its_rounds() -> None:
    ours = [sample(0, figure=1.0), sample(1, figure=9.0), sample(2, figure=2.0)]
    theirs = [sample(0, figure=4.0), sample(1, figure=4.0), sample(2, figure=4.0)]
    (comparison,) = compare(ours, theirs)
    assert comparison.ours == Figures(2.0, 2.0, 2.0, 2.0)
    assert comparison.ratios == Figures(0.5, 0.5, 0.5, 0.5)


def test_loads_are_compared_each_with_itself() -> None:
    ours = [sample(num_streams=1, figure=1.0), sample(num_streams=4, figure=3.0)]
    theirs = [sample(num_streams=1, figure=1.0), sample(num_streams=4, figure=1.0)]
    assert [c.ratios.tpot_s for c in compare(ours, theirs)] == [1.0, 3.0]


def test_texts_are_compared_within_a_round_whoever_came_first() -> None:
    ours = [sample(0, texts=("a", "b")), sample(1, texts=("c", "d"))]
    theirs = [sample(1, texts=("c", "other")), sample(0, texts=("a", "b"))]
    (comparison,) = compare(ours, theirs)
    assert comparison.equal_texts_ratio == 0.75


def test_both_servers_get_the_same_requests() -> None:
    assert bodies("round 1") == bodies("round 1")


@pytest.mark.parametrize("other", ["round 1", "round 2"])
def test_no_prompt_comes_twice(other: str) -> None:
    prompts = {*bodies("round 1"), *bodies(other)}
    assert len(prompts) == len({"round 1", other}) * LOAD.num_streams


def test_all_requests_start_together() -> None:
    assert {request.at_s for request in plan_of(LOAD, "").requests} == {0.0}
