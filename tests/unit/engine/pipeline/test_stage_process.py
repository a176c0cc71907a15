"""How the end of a stage's process is told."""

import signal

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_engine.stage_process import end_of


@given(number=st.integers(1, 128))
def test_every_signal_is_a_cause_that_can_be_told(number: int) -> None:
    end = end_of(-number)
    assert end.text.startswith(f"ended with signal {number} (")
    assert (end.is_cause, end.code) == (True, -number)


def test_signals_that_have_a_name_are_told_by_it() -> None:
    assert end_of(-signal.SIGSEGV).text == "ended with signal 11 (SIGSEGV)"
    assert end_of(-signal.SIGKILL).text == (
        "ended with signal 9 (SIGKILL, perhaps for want of memory)"
    )


def test_an_exit_status_is_no_cause() -> None:
    end = end_of(3)
    assert (end.text, end.is_cause, end.code) == ("ended with exit status 3", False, 3)
