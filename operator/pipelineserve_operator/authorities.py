"""The operator's own CAs: which are kept, when another is made, which one signs. Pure.

Sidecars trust the bundle that their ConfigMap holds, which reaches them minutes after it changed.
So a CA is published a while before it signs, and the one before it stays until all that it signed
has ended.
"""

from dataclasses import dataclass
from itertools import pairwise

_HOUR_S = 3600.0
_DAY_S = 24 * _HOUR_S

AUTHORITY_LIFE_S = 730 * _DAY_S
PAIR_LIFE_S = 30 * _DAY_S
# What is made now is valid from a while ago, since clocks of nodes differ.
BACKDATED_S = _HOUR_S
INTRODUCTION_S = _DAY_S
_AUTHORITY_LEFT_S = 90 * _DAY_S
_PAIR_LEFT_S = 10 * _DAY_S


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA, PEM texts; times are seconds since 1970."""

    certificate: str
    key: str
    made_at_s: float
    ends_at_s: float


@dataclass(frozen=True, slots=True)
class AuthorityPlan:
    """What is to be done now.

    Attributes:
        kept: of the CAs that there are, oldest first.
        makes_one: whether another CA is to be made and put after them.
    """

    kept: tuple[Authority, ...]
    makes_one: bool


def plan_authorities(known: tuple[Authority, ...], now_s: float) -> AuthorityPlan:
    """Keep what sidecars may still meet; make another in time."""
    living = sorted(
        (authority for authority in known if authority.ends_at_s > now_s),
        key=lambda authority: authority.made_at_s,
    )
    kept = [
        authority
        for authority, after in pairwise(living)
        if now_s < after.made_at_s + INTRODUCTION_S + PAIR_LIFE_S
    ] + living[-1:]
    makes_one = not kept or kept[-1].ends_at_s - now_s < _AUTHORITY_LEFT_S
    return AuthorityPlan(tuple(kept), makes_one)


def signer(authorities: tuple[Authority, ...], now_s: float) -> Authority:
    """The newest one that has been published for long enough, or else the oldest.

    Args:
        authorities: at least one, oldest first.
        now_s: seconds since 1970.
    """
    introduced = [one for one in authorities if one.made_at_s + INTRODUCTION_S <= now_s]
    return introduced[-1] if introduced else authorities[0]


def bundle(authorities: tuple[Authority, ...]) -> str:
    """PEM text of all certificates, for sidecars to trust."""
    return "".join(authority.certificate for authority in authorities)


def is_pair_due(ends_at_s: float, now_s: float) -> bool:
    """Whether a certificate of the server's is to be replaced."""
    return ends_at_s - now_s < _PAIR_LEFT_S
