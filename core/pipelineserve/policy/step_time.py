"""How long one micro-batch takes on the slowest stage: a table over tokens plus attention.

    T = κ · (f · table(tokens) + β_dec · Σ L_dec + β_sq · Σ L_pre² + β_past · Σ L_past · L_pre
             + β_num · decodes)

after FastPP's latency predictor (OSDI 2026, section 4.2), with three changes. Its table has one
entry per candidate chunk; here it is interpolated between points where time was measured, since the
stairs of a GPU's kernels do not lie at multiples of 128 everywhere. Its constant term is the factor
f here, since a table that is wrong is so in proportion: another clock rate, a busy neighbour.
And a decode takes more than a token of a prompt: it has a row in the head, a sample, an attention
of its own. Without β_num that time is put down to the contexts, which are in proportion to decodes
at first, and contexts grow. κ is the feedback of measured ÷ predicted.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

from pipelineserve.policy.views import DecodeLoad, LoadView, PromptLoad

# A tenth of a microsecond: no step is faster, and less would leave the range of a fit's numbers.
LEAST_STEP_S = 1e-7


@dataclass(frozen=True, slots=True)
class StepFeatures:
    """Attention's work in one micro-batch; all sums are over its pieces and at least 0.

    Attributes:
        decode_context_tokens: Σ L_dec, contexts of its decodes.
        squared_prefill_tokens: Σ L_pre², lengths of its prefill pieces.
        past_prefill_product: Σ L_past · L_pre, with the tokens before each piece.
        num_decodes: how many decodes there are; the table counts them as tokens already.
    """

    decode_context_tokens: float = 0.0
    squared_prefill_tokens: float = 0.0
    past_prefill_product: float = 0.0
    num_decodes: float = 0.0


@dataclass(frozen=True, slots=True)
class StepTimeTable:
    """Time of a step by its tokens, without attention over earlier tokens.

    Linear between points; a stair is two points one token apart. Below the first point its time
    holds, above the last the mean slope goes on.

    Attributes:
        tokens: token counts, at least 1, ascending.
        times_s: seconds of one step with that many tokens; never falling.

    Raises:
        ValueError: the points are not such a table.
    """

    tokens: tuple[int, ...]
    times_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.times_s):
            raise ValueError(
                f"step-time table: expected one time for each of at least one token count, "
                f"got {len(self.tokens)} counts and {len(self.times_s)} times"
            )
        if self.tokens[0] < 1 or any(a >= b for a, b in pairwise(self.tokens)):
            raise ValueError(f"step-time table: expected ascending counts, got {self.tokens}")
        if not all(isfinite(time_s) and time_s > 0 for time_s in self.times_s):
            raise ValueError(f"step-time table: expected times above 0, got {self.times_s}")
        if any(a > b for a, b in pairwise(self.times_s)):
            raise ValueError(f"step-time table: expected times that never fall, got {self.times_s}")

    def at(self, num_tokens: int) -> float:
        """Seconds of a step with `num_tokens` tokens."""
        tokens, times_s = self.tokens, self.times_s
        index = bisect_left(tokens, num_tokens)
        if index == 0:
            return times_s[0]
        if index == len(tokens):
            return times_s[-1] + self._mean_slope_s() * (num_tokens - tokens[-1])
        left, right = tokens[index - 1], tokens[index]
        rise_s = times_s[index] - times_s[index - 1]
        return times_s[index - 1] + rise_s * (num_tokens - left) / (right - left)

    def _mean_slope_s(self) -> float:
        """Seconds per token over the whole table; the last stretch may be the flat of a stair."""
        first, last = self.tokens[0], self.tokens[-1]
        return (self.times_s[-1] - self.times_s[0]) / (last - first) if last > first else 0.0


@dataclass(frozen=True, slots=True)
class StepCoefficients:
    """The table's factor, and seconds per unit of each feature.

    Raises:
        ValueError: the factor is not above 0, or one of the others is below it.
    """

    table_ratio: float = 1.0
    decode_context_s: float = 0.0
    squared_prefill_s: float = 0.0
    past_prefill_s: float = 0.0
    decode_s: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.table_ratio) and self.table_ratio > 0):
            raise ValueError(f"table_ratio: expected above 0, got {self.table_ratio}")
        for value in (
            self.decode_context_s,
            self.squared_prefill_s,
            self.past_prefill_s,
            self.decode_s,
        ):
            if not isfinite(value) or value < 0:
                raise ValueError(f"step-time coefficients: expected at least 0 each, got {self}")

    def seconds(self, features: StepFeatures) -> float:
        """What the features add to a step of the table."""
        return (
            self.decode_context_s * features.decode_context_tokens
            + self.squared_prefill_s * features.squared_prefill_tokens
            + self.past_prefill_s * features.past_prefill_product
            + self.decode_s * features.num_decodes
        )


@dataclass(frozen=True, slots=True)
class StepTimeModel:
    """Everything needed to predict one step's time; never falls when tokens or features grow.

    Attributes:
        table: time by tokens.
        coefficients: time by features.
        feedback_ratio: κ, the recent measured ÷ predicted; above 0.
        spread_ratio: standard deviation of measured ÷ predicted around 1; at least 0.

    Raises:
        ValueError: κ or the spread is outside its range.
    """

    table: StepTimeTable
    coefficients: StepCoefficients = StepCoefficients()
    feedback_ratio: float = 1.0
    spread_ratio: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.feedback_ratio) and self.feedback_ratio > 0):
            raise ValueError(f"feedback_ratio: expected above 0, got {self.feedback_ratio}")
        if not (isfinite(self.spread_ratio) and self.spread_ratio >= 0):
            raise ValueError(f"spread_ratio: expected at least 0, got {self.spread_ratio}")

    def raw_s(self, num_tokens: int, features: StepFeatures) -> float:
        """The prediction before feedback."""
        fitted = self.coefficients
        return fitted.table_ratio * self.table.at(num_tokens) + fitted.seconds(features)

    def predict_s(self, num_tokens: int, features: StepFeatures) -> float:
        """Expected seconds of one step with `num_tokens` tokens, at least 1."""
        return self.feedback_ratio * self.raw_s(num_tokens, features)


def decode_features(num_decodes: float, context_tokens: float) -> StepFeatures:
    """Features of a micro-batch of decodes alone, with the sum of their contexts."""
    return StepFeatures(decode_context_tokens=context_tokens, num_decodes=num_decodes)


def attention_of(view: LoadView, coefficients: StepCoefficients) -> Callable[[int], float]:
    """Seconds beyond the table in the micro-batch being composed, as a function of prefill tokens.

    The function takes 0 to `view.prefill_tokens` tokens; it is asked for dozens of chunk sizes per
    micro-batch, so everything that does not depend on them is computed first.

    Exact while one started prompt is cut. Where several prompts are packed, each is taken to be as
    long as the mean weighted by tokens, Σ r² ÷ Σ r, which gives Σ r² exactly when all of them fit.
    """
    started_tokens = view.started.tokens
    started_length, started_past_s = _per_token(view.started, coefficients)
    waiting_length, waiting_past_s = _per_token(view.waiting, coefficients)
    decode_s = decodes_s(view.assigned, coefficients)
    squared_s = coefficients.squared_prefill_s
    started_squares = started_tokens * min(started_tokens, started_length)
    all_started_past_s = started_tokens * started_past_s

    def seconds(prefill_tokens: int) -> float:
        if prefill_tokens <= started_tokens:
            squares = prefill_tokens * min(prefill_tokens, started_length)
            return decode_s + squared_s * squares + started_past_s * prefill_tokens
        from_waiting = prefill_tokens - started_tokens
        squares = from_waiting * min(from_waiting, waiting_length) + started_squares
        return decode_s + squared_s * squares + waiting_past_s * from_waiting + all_started_past_s

    return seconds


def decodes_s(decodes: DecodeLoad, coefficients: StepCoefficients) -> float:
    """Seconds beyond the table that these decodes take."""
    contexts_s = coefficients.decode_context_s * decodes.context_tokens
    return contexts_s + coefficients.decode_s * decodes.num


def _per_token(prompts: PromptLoad, coefficients: StepCoefficients) -> tuple[float, float]:
    """Length of the prompt that a token of these is in, and what the past costs it, on average."""
    if prompts.tokens == 0:
        return 0.0, 0.0
    past_s = coefficients.past_prefill_s * prompts.past_product / prompts.tokens
    return prompts.squared_tokens / prompts.tokens, past_s
