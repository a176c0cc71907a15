"""What policies see, decide and remember can be written down and read back without loss."""

import importlib
import math
import pkgutil
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import pytest
from pydantic import TypeAdapter

import pipelineserve.policy
from pipelineserve.policy.admission import AdmissionView, Counted, KnownLengths
from pipelineserve.policy.assignment import OnePool, SlotBound
from pipelineserve.policy.candidates import candidate_sizes
from pipelineserve.policy.control.feasibility import Load, Pipeline, Targets, judge
from pipelineserve.policy.control.guards import GuardMemory, NumberGuard
from pipelineserve.policy.control.histograms import Histogram
from pipelineserve.policy.fastpp.delay import FastppDelay, FastppDelayView
from pipelineserve.policy.fastpp.greedy import FastppGreedy
from pipelineserve.policy.fastpp.latency_model import FastppBatch, FastppStep
from pipelineserve.policy.fastpp.predictive import FastppPredictive
from pipelineserve.policy.fastpp.views import ChunkedPrompt, LatencyTotals
from pipelineserve.policy.fitting import StepSample, start_fit, update
from pipelineserve.policy.greedy import Greedy, LatencyView
from pipelineserve.policy.holding import HoldView
from pipelineserve.policy.ordering import Ageing
from pipelineserve.policy.peers.gllm import GllmThrottling
from pipelineserve.policy.peers.sglang import PromptTime, SglangDynamic
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.rebalancing import HoldMemory, HoldMode, Rebalance
from pipelineserve.policy.step_time import StepFeatures
from pipelineserve.policy.triage import Triage, TriageMemory, TriageView
from pipelineserve.policy.views import DecodeLoad, WaitingRequestView
from policy_views import make_fastpp_view, make_load_view, make_model, make_slot, prompts_of


def policy_dataclasses() -> list[type]:
    """Every dataclass that a policy module defines."""
    package = pipelineserve.policy
    names = [info.name for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    found = []
    for module in map(importlib.import_module, names):
        members = vars(module).values()
        found += [m for m in members if isinstance(m, type) and m.__module__ == module.__name__]
    return [member for member in found if is_dataclass(member)]


def is_plain(hint: Any) -> bool:
    """Numbers, texts, enums, None, and tuples, unions or frozen dataclasses of such."""
    if isinstance(hint, TypeVar):
        return is_plain(hint.__bound__)
    origin = get_origin(hint)
    if origin in {Union, UnionType, tuple}:
        return all(argument is Ellipsis or is_plain(argument) for argument in get_args(hint))
    if origin is not None:
        # A generic one, as ModeMemory[HoldMode].
        return is_dataclass(origin) and is_plain(origin) and all(map(is_plain, get_args(hint)))
    if is_dataclass(hint):
        return bool(getattr(hint, "__dataclass_params__").frozen)  # noqa: B009 - not in the stubs
    return hint in {int, float, bool, str, NoneType} or issubclass(hint, Enum)


@pytest.mark.parametrize("kind", policy_dataclasses(), ids=lambda kind: kind.__qualname__)
def test_everything_is_made_of_plain_values(kind: type) -> None:
    hints = get_type_hints(kind)
    assert is_dataclass(kind)
    assert [field.name for field in fields(kind) if not is_plain(hints[field.name])] == []


@pytest.mark.parametrize("hint", [list[int], dict[str, int], object, tuple[list[int], ...], bytes])
def test_what_is_not_plain_is_noticed(hint: object) -> None:
    assert not is_plain(hint)


def chunk_values() -> Iterator[object]:
    view = make_load_view(decodes=7, waiting=prompts_of(300, 41), kv_free_ratio=1 / 3)
    yield view
    yield Predictive(make_model(), candidate_sizes(128, 1024, 128), 0.2).decide(view)
    greedy = Greedy(128, 2048, 128, ttft_target_s=2.0, tpot_target_s=0.2)
    latency = LatencyView(None, 0.1, 0.7, 3, 0.05, 4096)
    yield latency
    yield from greedy.decide(greedy.start(), latency)


def fit_values() -> Iterator[object]:
    state = start_fit(make_model())
    for index in range(50):
        features = StepFeatures(1000.0 * index, 7.0 * index, 3.0 * index)
        sample = StepSample(1 + index, features, 0.02 + index / 7000)
        yield sample
        state = update(state, sample)
    yield update(state, StepSample(1, StepFeatures(), -1.0))


def holding_values() -> Iterator[object]:
    view = HoldView(
        num_slots=4,
        due=DecodeLoad(130, 130_001),
        live=DecodeLoad(520, 520_000),
        held=DecodeLoad(3, 999),
        num_holdable=20,
        num_overdue=1,
        prefill_tokens=0,
        kv_free_ratio=0.7,
    )
    yield view
    yield from Rebalance(HoldMode.TPOT_FIRST, make_model(), (128, 256)).decide(HoldMemory(), view)


def queue_values() -> Iterator[object]:
    request = WaitingRequestView(1 / 3, 700)
    yield Ageing().decide(request)
    view = TriageView(2.0, (request, WaitingRequestView(1.0, 5000)), 10, 1000.0, 0.2)
    triage, memory = Triage(2.0), TriageMemory(0.1)
    yield from (view, memory, triage.decide(request), triage.sort_out(view))
    yield triage.turn(memory, num_in_time=1, num_late=1)
    yield triage.charge(memory, in_time_tokens=10, late_tokens=7)


def admission_values() -> Iterator[object]:
    view = AdmissionView(100, 5, 6, ((7, 8), (9, 1)))
    yield from (view, KnownLengths().decide(view))


def fastpp_values() -> Iterator[object]:
    slots = [make_slot(140, chunked=ChunkedPrompt(5, 6))] * 4
    totals = LatencyTotals(3, 1.1, 2, 0.3)
    view = make_fastpp_view(slots=slots, waiting_prompts=[9, 8], totals=totals)
    yield view
    greedy = FastppGreedy(2.0, 0.2)
    yield from greedy.decide(greedy.start(), view)
    predictive = FastppPredictive(2.0, 0.2, (128, 256), (0.02, 0.03), first_tokens=128)
    batch = FastppBatch(100, StepFeatures(1e5, 7.0, 3.0), has_prefill=True)
    step = FastppStep(0.031, batch, (batch, batch))
    yield step
    yield from predictive.decide(predictive.observe(predictive.start(), step), view)
    delay_view = FastppDelayView(0, tuple(slots), 140, 0, 0.19, 0, 1.0)
    yield delay_view
    yield FastppDelay(0.2).decide(delay_view)


def control_values() -> Iterator[object]:
    yield from NumberGuard(0, 9, largest_step=2).decide(GuardMemory(1.0), 5.0, 1.0)
    yield Histogram().plus([0.1, 0.2, 5.0, 0.0, -1.0, math.nan])
    pipeline = Pipeline(make_model(), (128, 256), num_slots=4, kv_tokens=10**5)
    for rate in (0.0, 1.0, 1e6):
        load = Load(1000 * rate, 100 * rate, 1000.0, 2e6, 2000.0, 1000.0)
        yield load
        yield judge(pipeline, load, Targets(2.0, None))


def policies() -> Iterator[object]:
    """The policies themselves, which travel from a controller to a scheduler."""
    yield Predictive(make_model(), candidate_sizes(128, 1024, 128), None)
    yield Greedy(128, 2048, 128, ttft_target_s=None, tpot_target_s=0.2)
    yield Rebalance(HoldMode.E2E_FIRST, make_model(), (128, 256))
    yield Triage(2.0, 0.2)
    yield from (OnePool(0.2), SlotBound(), KnownLengths(Counted.SLOT))
    yield GllmThrottling(1000)
    yield SglangDynamic(512, PromptTime(1e-9, 1e-6), 4096)
    yield Ageing()
    yield FastppGreedy(2.0, 0.2).as_in_the_paper()
    yield FastppPredictive(2.0, 0.2, (128, 256), (0.02, 0.03), 128).as_in_the_paper()
    yield FastppDelay(0.2).as_in_the_paper()


@pytest.mark.parametrize(
    "values",
    [
        policies,
        chunk_values,
        fit_values,
        holding_values,
        queue_values,
        admission_values,
        fastpp_values,
        control_values,
    ],
    ids=lambda values: values.__name__,
)
def test_json_brings_every_value_back_unchanged(values: Any) -> None:
    for value in values():
        adapter = TypeAdapter(type(value))
        assert adapter.validate_json(adapter.dump_json(value)) == value
