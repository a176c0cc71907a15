"""The operator's own certificate: made once, agreed on by all operators, renewed in time."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from pipelineserve_operator.attend import CertificateUnavailableError
from pipelineserve_operator.authorities import AUTHORITY_LIFE_S, INTRODUCTION_S, PAIR_LIFE_S
from pipelineserve_operator.certificate import CERTIFICATES, KEYS, OwnCertificate, Stored
from sidecar_parts import running

START_S = 1_800_000_000.0
DAY_S = 86_400.0


@dataclass
class Secret:
    """Holds what is written; a test may let another operator come first, or take it away."""

    stored: Stored | None = None
    num_writes: int = 0
    is_away: bool = False
    rivals: list[Mapping[str, str]] = field(default_factory=list)

    async def read(self) -> Stored | None:
        """What is there."""
        if self.is_away:
            raise ConnectionRefusedError("nobody listens")
        return self.stored

    async def write(self, data: Mapping[str, str], over: str | None) -> bool:
        """Put this there unless another came first."""
        if self.rivals:
            self.put(self.rivals.pop())
        if (self.stored.version if self.stored else None) != over:
            return False
        self.put(data)
        return True

    def put(self, data: Mapping[str, str]) -> None:
        """Write, as another operator would."""
        self.num_writes += 1
        self.stored = Stored(dict(data), str(self.num_writes))


class Clock:
    """Shows what a test sets."""

    now_s = START_S

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def renewed(secret: Secret, clock: Clock | None = None) -> OwnCertificate:
    own = OwnCertificate(secret, clock or Clock())
    asyncio.run(own.renew())
    return own


def test_the_first_operator_makes_a_ca_and_later_ones_use_it() -> None:
    secret = Secret()
    first, second = renewed(secret), renewed(secret)
    assert first.bundle() == second.bundle() != ""
    assert first.pair() != second.pair()
    assert secret.num_writes == 1


def test_of_two_operators_that_begin_together_one_writes_and_both_agree() -> None:
    other = Secret()
    renewed(other)
    assert other.stored is not None
    secret = Secret(rivals=[other.stored.data])
    assert renewed(secret).bundle() == other.stored.data[CERTIFICATES]


def test_looking_again_changes_nothing_while_nothing_is_due() -> None:
    secret, clock = Secret(), Clock()
    own = renewed(secret, clock)
    pair = own.pair()
    clock.now_s += 5 * DAY_S
    asyncio.run(own.renew())
    assert (own.pair(), secret.num_writes) == (pair, 1)


def test_a_certificate_is_renewed_before_it_ends_under_the_same_ca() -> None:
    secret, clock = Secret(), Clock()
    own = renewed(secret, clock)
    pair, bundle = own.pair(), own.bundle()
    clock.now_s += PAIR_LIFE_S - 9 * DAY_S
    asyncio.run(own.renew())
    assert own.pair() != pair
    assert (own.bundle(), secret.num_writes) == (bundle, 1)


def test_a_ca_is_replaced_in_three_steps() -> None:
    secret, clock = Secret(), Clock()
    own = renewed(secret, clock)
    old = own.bundle()
    clock.now_s += AUTHORITY_LIFE_S - 80 * DAY_S
    asyncio.run(own.renew())
    pair, both = own.pair(), own.bundle()
    assert both.startswith(old)
    assert both != old
    clock.now_s += INTRODUCTION_S
    asyncio.run(own.renew())
    assert own.pair() != pair, "signed by the new one"
    assert own.bundle() == both
    clock.now_s += PAIR_LIFE_S
    asyncio.run(own.renew())
    assert own.bundle() == both.removeprefix(old)


def test_whoever_keeps_the_bundle_is_told_when_it_changes_and_not_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret, clock = Secret(), Clock()
    own = OwnCertificate(secret, clock)
    seen: list[str] = []
    rounds: list[float] = []
    real_sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        rounds.append(seconds)
        secret.is_away = len(rounds) == 2
        clock.now_s += 700 * DAY_S if len(rounds) == 3 else 0.0
        await real_sleep(0.0)

    monkeypatch.setattr("pipelineserve_operator.certificate.asyncio.sleep", pause)

    async def scenario() -> None:
        async with running(own.run(lambda: seen.append(own.bundle()))):
            while len(rounds) < 5:
                await real_sleep(0.0)

    asyncio.run(scenario())
    assert len(seen) == 2, "at first, and when another CA was due"


def test_a_secret_that_is_of_no_use_is_named_with_what_to_do() -> None:
    secret = Secret()
    secret.put({CERTIFICATES: "x", KEYS: ""})
    assert renewed(secret).bundle(), "a text without a certificate holds none"
    assert secret.stored is not None
    secret.put({**secret.stored.data, KEYS: ""})
    with pytest.raises(CertificateUnavailableError, match="delete it"):
        renewed(secret)


def test_a_secret_that_others_change_all_the_time_is_given_up_on() -> None:
    secret = Secret(rivals=[{CERTIFICATES: "", KEYS: ""} for _ in range(9)])
    with pytest.raises(CertificateUnavailableError, match="in a row"):
        renewed(secret)


def test_before_it_is_made_there_is_no_certificate() -> None:
    with pytest.raises(CertificateUnavailableError, match="not made yet"):
        OwnCertificate(Secret(), Clock()).pair()
