"""What came from the engine, bounded, until a turn takes it."""

from itertools import pairwise

from control_turns import make_request, make_step
from pipelineserve.policy.control.heard import Told
from pipelineserve.scheduler.telling.inbox import MAX_REQUESTS_PER_TURN, MAX_STEPS_PER_TURN, Inbox


def test_the_inbox_thins_steps_evenly_and_keeps_the_last() -> None:
    inbox = Inbox()
    steps = tuple(make_step(k) for k in range(1, 161))
    inbox.put(Told(steps, (), None, 0, 0))
    heard = inbox.take(0.0, None)
    sequences = [step.sequence for step in heard.steps]
    assert len(sequences) == MAX_STEPS_PER_TURN
    assert sequences[-1] == 160
    assert {b - a for a, b in pairwise(sequences)} == {10}
    assert heard.num_steps == 160
    assert inbox.take(0.0, None).steps == ()


def test_the_inbox_bounds_requests_and_counts_what_it_drops() -> None:
    inbox = Inbox()
    inbox.put(Told((), (make_request(),) * (MAX_REQUESTS_PER_TURN + 5), None, 2, 0))
    heard = inbox.take(0.0, None)
    assert (len(heard.requests), heard.num_lost) == (MAX_REQUESTS_PER_TURN, 7)
