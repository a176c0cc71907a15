"""Every reason can be said to a person."""

import pytest

from pipelineserve.policy.reason_texts import text_of
from pipelineserve.policy.reasons import Reason


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_words_that_fit_into_a_sentence(reason: Reason) -> None:
    text = text_of(reason)
    assert text
    assert not text.endswith(".")
    assert len(text) <= 60


def test_no_two_reasons_say_the_same() -> None:
    assert len({text_of(reason) for reason in Reason}) == len(Reason)
