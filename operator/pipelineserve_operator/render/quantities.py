"""Arithmetic on Kubernetes' quantities, as texts."""

import re
from decimal import Decimal, localcontext

_SHAPE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(.*)")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
_BINARY = "KMGTPE"
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
# More digits than a quantity can have; beyond the exponent no cluster has anything.
_DIGITS = 64
_MOST_EXPONENT = 1000


def times(quantity: str, factor: int) -> str:
    """`quantity` taken `factor` times, its unit kept."""
    number, unit = _parts(quantity)
    with localcontext(prec=_DIGITS):
        product = f"{Decimal(number) * factor:f}"
    whole, point, fraction = product.partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}{point if fraction else ''}{fraction}{unit}"


def smaller(one: str, other: str) -> str:
    """The one that is less; the first of equals."""
    return one if amount(one) <= amount(other) else other


def amount(quantity: str) -> Decimal:
    """How much it is, in its unit's base.

    Raises:
        ValueError: it is no quantity.
    """
    number, unit = _parts(quantity)
    with localcontext(prec=_DIGITS):
        if unit.endswith("i"):
            return Decimal(number) * Decimal(1024) ** (_BINARY.index(unit[0]) + 1)
        if exponent := _EXPONENT.fullmatch(unit):
            power = max(-_MOST_EXPONENT, min(_MOST_EXPONENT, int(exponent[1])))
        else:
            power = _DECIMAL[unit]
        return Decimal(number).scaleb(power)


def _parts(quantity: str) -> tuple[str, str]:
    match = _SHAPE.fullmatch(quantity)
    if match is None:
        raise ValueError(f"expected a quantity such as 500m or 16Gi, got {quantity!r}")
    return match[1], match[2]
