"""Numbers of tokens: fixed, uniform or log-normal, as the command line writes them."""

import math
import random
from dataclasses import dataclass

LARGEST_TOKENS = 10_000_000
FORMS = (
    '"512", "uniform:32,64", "lognormal:mean=880,cv=0.5" or "lognormal:median=814,sigma=0.5", '
    'each log-normal with ",max=2048" if wanted'
)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same."""

    tokens: int

    def __str__(self) -> str:
        return f"{self.tokens}"


@dataclass(frozen=True, slots=True)
class Uniform:
    """Each whole number from `low` to `high`, both included."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"uniform {self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class LogNormal:
    """exp(N(mu, sigma²)), rounded, at least 1 and at most `most` (longer ones become `most`)."""

    mu: float
    sigma: float
    most: int = LARGEST_TOKENS

    def __str__(self) -> str:
        limit = "" if self.most == LARGEST_TOKENS else f", at most {self.most}"
        return f"log-normal, median {math.exp(self.mu):.1f}, sigma {self.sigma:.3f}{limit}"


Lengths = Fixed | Uniform | LogNormal


def draw(lengths: Lengths, chance: random.Random) -> int:
    """One length, at least 1."""
    match lengths:
        case Fixed(tokens):
            return tokens
        case Uniform(low, high):
            return chance.randint(low, high)
        case LogNormal(mu, sigma, most):
            return max(1, min(most, round(chance.lognormvariate(mu, sigma))))


def parse_lengths(text: str) -> Lengths:
    """Parse one of `FORMS`.

    Raises:
        ValueError: it is none of them; the message says what was expected.
    """
    kind, _, rest = text.partition(":")
    try:
        match kind:
            case "uniform":
                return _uniform(*rest.split(","))
            case "lognormal":
                return _log_normal(dict(part.split("=", 1) for part in rest.split(",")))
            case _:
                return Fixed(_tokens(text))
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f'got "{text}", expected {FORMS}; tokens are whole numbers from 1'
        ) from None


def _uniform(low: str, high: str) -> Uniform:
    uniform = Uniform(_tokens(low), _tokens(high))
    if uniform.low > uniform.high:
        raise ValueError
    return uniform


def _log_normal(parts: dict[str, str]) -> LogNormal:
    most = _tokens(parts.pop("max", str(LARGEST_TOKENS)))
    values = {name: float(value) for name, value in parts.items()}
    if not all(math.isfinite(value) and value >= 0 for value in values.values()):
        raise ValueError
    match values:
        case {"mean": mean, "cv": cv, **others} if not others and mean >= 1:
            variance = math.log1p(cv**2)
            return LogNormal(math.log(mean) - variance / 2, math.sqrt(variance), most)
        case {"median": median, "sigma": sigma, **others} if not others and median >= 1:
            return LogNormal(math.log(median), sigma, most)
        case _:
            raise ValueError


def _tokens(text: str) -> int:
    tokens = int(text)
    if not 1 <= tokens <= LARGEST_TOKENS:
        raise ValueError
    return tokens
