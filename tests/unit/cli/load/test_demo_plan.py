"""The demo's load is decided by its seed alone."""

from pipelineserve.load.prompts import ChatPrompt
from pipelineserve_cli.demo_plan import mixed_plan, one_question
from pipelineserve_cli.load.plan import PlannedRequest


def num_characters(request: PlannedRequest) -> int:
    assert isinstance(request.prompt, ChatPrompt)
    return len(str(request.prompt.messages[0]["content"]))


def test_the_same_seed_gives_the_same_load_and_another_gives_another() -> None:
    assert mixed_plan(1, 20, 1.0) == mixed_plan(1, 20, 1.0)
    assert mixed_plan(1, 20, 1.0).requests != mixed_plan(2, 20, 1.0).requests


def test_arrivals_keep_the_rate_and_short_and_long_prompts_are_mixed() -> None:
    requests = mixed_plan(3, 2000, 4.0).requests
    assert 450.0 < requests[-1].at_s < 550.0
    assert [request.at_s for request in requests] == sorted(request.at_s for request in requests)
    long_prompts = [request for request in requests if num_characters(request) > 400]
    assert len(long_prompts) == 2000 // 3


def test_a_single_question_is_sent_at_once() -> None:
    (request,) = one_question("Why?", max_tokens=8).requests
    assert (request.at_s, request.max_tokens) == (0.0, 8)
    assert request.prompt == ChatPrompt(({"role": "user", "content": "Why?"},))
