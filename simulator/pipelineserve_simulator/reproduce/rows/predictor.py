"""Row 12: how well FastPP's step-time predictor predicts, with the profile's noise."""

from dataclasses import replace
from functools import partial

from pipelineserve_simulator.reproduce.figures import TrialFigures
from pipelineserve_simulator.reproduce.findings import Accept, Finding, RowResult, Unit
from pipelineserve_simulator.reproduce.rows.azure import azure_400
from pipelineserve_simulator.reproduce.rows.lines import label, of_runs
from pipelineserve_simulator.reproduce.study import Study, gather
from pipelineserve_simulator.reproduce.systems import PREDICTIVE, ModelName
from pipelineserve_simulator.reproduce.traces import Source
from pipelineserve_simulator.reproduce.trials import make_trial

# The paper does not tell at which load; that of its figure of steps.
_RATE_PER_S = 4.0
_REASON = (
    "The line is fitted to prompts of 128 to 2,048 tokens, and steps are no line at their lower "
    "end: up to 128 tokens they last as long as reading the weights. The fewer requests arrive, "
    "the more steps are there, so that the error falls with the rate, as the lines below show; the "
    "published one has no rate. Decodes' contexts, which the line does not know, add a few points."
)
_OTHER_RATES_PER_S = (3.0, 5.0, 6.0, 7.0)


def prediction_errors(study: Study) -> RowResult:
    """Row 12."""
    parts = gather(partial(_errors, study), study.sources)
    rates = (_RATE_PER_S, *_OTHER_RATES_PER_S)
    found = gather(partial(_runs, study, Source.FITTED), rates)
    supports = tuple(
        of_runs(f"{what} at {rate:g} /s", "", runs, value, Unit.PERCENT)
        for what, value in (
            ("tokens only", _tokens_only),
            ("tokens rounded up to a candidate", _candidate_only),
            ("table and attention", _full),
        )
        for rate, runs in zip(rates, found, strict=True)
    )
    return RowResult(
        "12",
        "Mean error of FastPP's predictor on azure-400, of the step that it predicts",
        tuple(line for lines in parts for line in lines),
        _REASON,
        supports=supports,
    )


def _runs(study: Study, source: Source, rate_per_s: float) -> tuple[TrialFigures, ...]:
    load = azure_400(study, source).at(rate_per_s)
    return study.figures(
        [
            replace(make_trial(ModelName.QWEN_32B, PREDICTIVE, load, seed), watches_predictor=True)
            for seed in study.effort.seeds
        ]
    )


def _errors(study: Study, source: Source) -> tuple[Finding, Finding]:
    runs = _runs(study, source, _RATE_PER_S)
    return (
        of_runs(
            f"tokens only{label(source)}",
            "15.9 %",
            runs,
            _tokens_only,
            Unit.PERCENT,
            accept=Accept(0.07, 0.20, "7 to 20 %"),
        ),
        of_runs(
            f"table and attention{label(source)}",
            "3.5 %",
            runs,
            _full,
            Unit.PERCENT,
            accept=Accept(0.0, 0.06, "< 6 %"),
        ),
    )


def _tokens_only(run: TrialFigures) -> float:
    return 0.0 if run.predictor is None else run.predictor.tokens_only_ratio


def _candidate_only(run: TrialFigures) -> float:
    return 0.0 if run.predictor is None else run.predictor.candidate_only_ratio


def _full(run: TrialFigures) -> float:
    return 0.0 if run.predictor is None else run.predictor.full_ratio
