"""Questions are answered in the thread that schedules, or refused once it has ended."""

import pytest

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_engine.control.questions import Questions


def test_a_question_is_answered_with_the_time_of_the_turn() -> None:
    questions = Questions()
    reply = questions.ask(lambda now_s: now_s * 2)
    assert not reply.done()
    questions.answer(21.0)
    assert reply.result(0) == 42.0


def test_what_a_question_raises_is_its_askers() -> None:
    questions = Questions()

    def fail(now_s: float) -> None:
        raise ValueError(now_s)

    failing, fine = questions.ask(fail), questions.ask(lambda now_s: now_s)
    questions.answer(1.0)
    assert isinstance(failing.exception(0), ValueError)
    assert fine.result(0) == 1.0


def test_who_has_gone_is_not_answered() -> None:
    questions = Questions()
    answered: list[float] = []
    questions.ask(answered.append).cancel()
    questions.answer(1.0)
    assert answered == []


def test_after_the_end_everybody_is_refused() -> None:
    questions = Questions()
    early = questions.ask(lambda now_s: now_s)
    questions.close()
    with pytest.raises(EngineUnavailableError, match="stopping"):
        early.result(0)
    with pytest.raises(EngineUnavailableError, match="stopping"):
        questions.ask(lambda now_s: now_s)
