"""Whoever is refused again and again fills counters, not the log."""

import logging

import pytest

from pipelineserve_operator.attend.refusals import Refusal, RefusalLedger, RefusedError

EXPIRED = RefusedError(Refusal.EXPIRED, "token: expired")


class Clock:
    """Shows what a test sets."""

    now_s = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def test_every_refusal_is_counted_and_a_peer_has_one_line_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    ledger = RefusalLedger(clock)
    for port in range(100):
        ledger.note(f"ipv4:10.0.0.1:{port}", EXPIRED)
    assert ledger.counts == {Refusal.EXPIRED: 100}
    assert len(caplog.records) == 1
    clock.now_s = 61.0
    ledger.note("ipv4:10.0.0.1:7", EXPIRED)
    assert [record.getMessage() for record in caplog.records[1:]] == [
        "sidecars refused without a line of their own: 99",
        "sidecar refused: expired (ipv4:10.0.0.1): token: expired",
    ]


def test_many_peers_have_few_lines_together(caplog: pytest.LogCaptureFixture) -> None:
    ledger = RefusalLedger(Clock())
    with caplog.at_level(logging.WARNING):
        for host in range(1000):
            ledger.note(f"ipv6:[fd00::{host:x}]:443", EXPIRED)
    assert len(caplog.records) == 30
    assert ledger.counts[Refusal.EXPIRED] == 1000


def test_ends_that_are_to_be_expected_are_counted_and_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ledger = RefusalLedger(Clock())
    for refusal in (Refusal.TOKEN_ENDED, Refusal.WITHDRAWN):
        ledger.note("ipv4:10.0.0.1:1", RefusedError(refusal, "ended"))
    assert sum(ledger.counts.values()) == 2
    assert caplog.records == []
