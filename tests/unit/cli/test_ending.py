"""Requests to end are never lost, wherever the program happens to be when they come."""

import os
import signal
import weakref
from collections.abc import Callable, Iterator

import pytest

from pipelineserve_cli.ending import EndRequests

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The tests' own handlers are there again afterwards."""
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    assert [signal.getsignal(number) for number in SIGNALS] == before


def send(number: signal.Signals = signal.SIGINT) -> None:
    """To this process, whose handler has run when this returns."""
    os.kill(os.getpid(), number)


class Thing:
    """Something that a weak reference may lead to."""


def send_in_a_callback() -> None:
    """Where an exception is printed and lost: in the callback of a weak reference."""
    thing = Thing()
    reference = weakref.ref(thing, lambda _: send())
    del thing
    assert reference() is None


def test_a_request_waits_until_it_is_asked_for() -> None:
    with EndRequests() as requests:
        requests.check()
        send()
        assert requests.num_noted == 1
        with pytest.raises(KeyboardInterrupt):
            requests.check()


def test_sigterm_ends_with_the_status_that_shells_give_it() -> None:
    with EndRequests() as requests:
        send(signal.SIGTERM)
        with pytest.raises(SystemExit) as ended:
            requests.check()
    assert ended.value.code == 143


def test_code_that_does_not_ask_is_interrupted() -> None:
    went_on = []
    with EndRequests() as requests, pytest.raises(KeyboardInterrupt), requests.heeded_anywhere():
        went_on += _sent(send)
    assert went_on == []


def test_a_request_from_before_is_heeded_before_such_code_begins() -> None:
    begun = []
    with EndRequests() as requests:
        send()
        with pytest.raises(KeyboardInterrupt), requests.heeded_anywhere():
            begun += _sent(lambda: None)
    assert begun == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_is_lost_in_a_callback_is_raised_all_the_same() -> None:
    went_on = []
    with EndRequests() as requests, pytest.raises(KeyboardInterrupt), requests.heeded_anywhere():
        went_on += _sent(send_in_a_callback)
    assert went_on == ["on"]


def test_nothing_is_lost_where_nothing_is_raised() -> None:
    with EndRequests() as requests:
        send_in_a_callback()
        with pytest.raises(KeyboardInterrupt):
            requests.check()


def _sent(send_it: Callable[[], None]) -> list[str]:
    """What comes after the sending, unless it is interrupted there."""
    send_it()
    return ["on"]
