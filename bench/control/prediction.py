"""How well a step's time is predicted: by tokens alone, with attention, and with feedback."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from bench.control.watching import SeenStep

from pipelineserve.policy.control.heard import StepSeen
from pipelineserve.policy.control.learning import Learning, learn
from pipelineserve.policy.fitting import StepSample, update
from pipelineserve.policy.step_time import StepTimeModel
from pipelineserve.wire.events import decode_records
from pipelineserve.wire.v1 import scheduler_pb2 as pb

_LEARN_BATCH = 8


@dataclass(frozen=True)
class PredictionErrors:
    """Mean absolute error ÷ measured, of steps that were not learned from before.

    Attributes:
        linear: a line over tokens, fitted by least squares.
        table: the learned table over tokens alone.
        full: with attention's terms, then fixed.
        following: full, and updated after each prediction, as the controller does.
        following_median: the median of the same, which stalls of the machine do not touch.
        num_learned: steps learned from.
        num_judged: steps predicted.
    """

    linear: float
    table: float
    full: float
    following: float
    following_median: float
    num_learned: int
    num_judged: int


def prediction_errors(
    learned_from: Iterable[SeenStep], judged: Iterable[SeenStep]
) -> PredictionErrors:
    """Learn from some runs, predict others.

    Raises:
        ValueError: there was too little to learn from.
    """
    train, test = _decoded(learned_from), _decoded(judged)
    learning = Learning()
    for begin in range(0, len(train), _LEARN_BATCH):
        learning = learn(learning, train[begin : begin + _LEARN_BATCH], now_s=begin * 0.1)
    model = learning.model
    if model is None:
        raise ValueError(f"{len(train)} steps are too few to learn from")
    samples = [_sample(step) for step in test]
    slope_s, base_s = _line([_sample(step) for step in train])
    following = _following_errors(learning, samples)
    return PredictionErrors(
        linear=fmean(_error(base_s + slope_s * s.num_tokens, s) for s in samples),
        table=fmean(_error(_table_s(model, s), s) for s in samples),
        full=fmean(_error(model.predict_s(s.num_tokens, s.features), s) for s in samples),
        following=fmean(following),
        following_median=median(following),
        num_learned=len(train),
        num_judged=len(test),
    )


def _following_errors(learning: Learning, samples: Iterable[StepSample]) -> list[float]:
    errors = []
    state = learning.fit
    for sample in samples:
        if state is None:
            break
        errors.append(_error(state.model.predict_s(sample.num_tokens, sample.features), sample))
        state = update(state, sample)
    return errors


def _decoded(steps: Iterable[SeenStep]) -> tuple[StepSeen, ...]:
    return decode_records(pb.Records(steps=[step.record for step in steps])).steps


def _sample(step: StepSeen) -> StepSample:
    return StepSample(step.num_tokens, step.features, max(step.step_time_s))


def _table_s(model: StepTimeModel, sample: StepSample) -> float:
    return model.feedback_ratio * model.coefficients.table_ratio * model.table.at(sample.num_tokens)


def _error(predicted_s: float, sample: StepSample) -> float:
    return abs(predicted_s - sample.step_time_s) / sample.step_time_s


def _line(samples: Sequence[StepSample]) -> tuple[float, float]:
    mean_tokens = fmean(sample.num_tokens for sample in samples)
    mean_s = fmean(sample.step_time_s for sample in samples)
    spread = sum((sample.num_tokens - mean_tokens) ** 2 for sample in samples)
    joint = sum((s.num_tokens - mean_tokens) * (s.step_time_s - mean_s) for s in samples)
    slope_s = joint / spread if spread else 0.0
    return slope_s, mean_s - slope_s * mean_tokens
