"""Every workload of the evaluation has a name, and is what its description says."""

from itertools import islice, pairwise
from statistics import fmean, pstdev

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve.load.arrivals import Poisson, arrival_times_s
from pipelineserve.load.row_files import Row, RowFile
from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.workloads.registry import (
    REPLAY_WINDOW_ROWS,
    REPLAY_WINDOWS,
    WorkloadName,
    WorkloadOptions,
    make_workload,
    target_scales,
)
from pipelineserve_simulator.workloads.requests import SimulatedRequest

HAS_OWN_RATE = (
    *REPLAY_WINDOWS, WorkloadName.AZURE_CODE, WorkloadName.PREFILL_HEAVY,
    WorkloadName.DECODE_HEAVY, WorkloadName.BURSTY_GAMMA, WorkloadName.BURSTY_ON_OFF,
)  # fmt: skip
TRACE = RowFile("trace.csv", tuple(Row(i, i * 0.25, 100 + i, 10) for i in range(5000)))


def options_of(name: WorkloadName) -> WorkloadOptions:
    return WorkloadOptions() if name in HAS_OWN_RATE else WorkloadOptions(rate_per_s=4.0)


def requests_of(name: WorkloadName, seed: int = 1) -> tuple[SimulatedRequest, ...]:
    return make_workload(name, options_of(name)).requests(Chance(seed))


def rate_per_s(requests: tuple[SimulatedRequest, ...]) -> float:
    return len(requests) / requests[-1].arrival_s


@pytest.mark.parametrize("name", WorkloadName)
def test_every_workload_is_a_valid_stream_that_follows_from_its_seed(name: WorkloadName) -> None:
    requests = requests_of(name)
    assert requests == requests_of(name)
    assert requests != requests_of(name, seed=2)
    assert [request.index for request in requests] == list(range(len(requests)))
    assert requests[0].arrival_s == 0.0
    assert all(one.arrival_s <= other.arrival_s for one, other in pairwise(requests))
    assert min(min(request.prompt_tokens, request.output_tokens) for request in requests) >= 1
    assert make_workload(name, options_of(name)).description


@pytest.mark.parametrize(
    ("name", "mean_prompt", "mean_output", "num_requests"),
    [
        (WorkloadName.AZURE_400, 928 * 1.052, 260, 400),
        (WorkloadName.AZURE_4000, 1155 * 1.052, 211, 4000),
        (WorkloadName.SHAREGPT, 219.6, 202.9, 4000),
        (WorkloadName.CNN, 888, 64.5, 1000),
        (WorkloadName.CNN_REVERSED, 64.5, 888, 1000),
        (WorkloadName.PREFILL_HEAVY, 768, 48, 1000),
        (WorkloadName.DECODE_HEAVY, 48, 768, 1000),
    ],
)
def test_lengths_and_counts_are_those_of_the_evaluation(
    name: WorkloadName, mean_prompt: float, mean_output: float, num_requests: int
) -> None:
    requests = requests_of(name)
    assert len(requests) == num_requests
    assert fmean(request.prompt_tokens for request in requests) == pytest.approx(
        mean_prompt, rel=0.1
    )
    assert fmean(request.output_tokens for request in requests) == pytest.approx(
        mean_output, rel=0.1
    )


def test_replay_stretches_15_min_by_a_ninth() -> None:
    requests = requests_of(WorkloadName.AZURE_REPLAY)
    assert requests[-1].arrival_s == pytest.approx(1000, abs=5)
    assert rate_per_s(requests) == pytest.approx(4.42, rel=0.05)


def test_every_window_of_the_replay_takes_its_own_rows_from_their_own_beginning() -> None:
    rows = tuple(Row(i, i * 0.125, 100 + i, 10) for i in range(20_000))
    trace = RowFile("trace.csv", rows)
    for name, (first_row, end_row) in zip(REPLAY_WINDOWS, REPLAY_WINDOW_ROWS, strict=True):
        requests = make_workload(name, WorkloadOptions(file=trace)).requests(Chance(1))
        assert len(requests) == end_row - first_row
        assert requests[0].prompt_tokens == round((100 + first_row) * 1.052)
        assert requests[1].arrival_s == pytest.approx(0.125 / 0.9)


def test_bursts_are_as_uneven_as_they_are_named() -> None:
    gamma = [request.arrival_s for request in requests_of(WorkloadName.BURSTY_GAMMA)]
    gaps_s = [later - earlier for earlier, later in pairwise(gamma)]
    assert pstdev(gaps_s) / fmean(gaps_s) == pytest.approx(4.0, rel=0.15)
    assert 1 / fmean(gaps_s) == pytest.approx(3.5, rel=0.15)
    on_off = requests_of(WorkloadName.BURSTY_ON_OFF)
    assert max(request.arrival_s % 20.0 for request in on_off) <= 10.0
    assert rate_per_s(on_off) == pytest.approx(4.5, rel=0.1)


def test_a_rate_changes_arrivals_and_not_lengths() -> None:
    slow, fast = (
        make_workload(WorkloadName.AZURE_4000, WorkloadOptions(rate_per_s=rate)).requests(Chance(1))
        for rate in (2.0, 4.0)
    )
    assert [one.prompt_tokens for one in slow] == [one.prompt_tokens for one in fast]
    assert fast[-1].arrival_s == pytest.approx(slow[-1].arrival_s / 2)


def test_arrivals_have_a_stream_of_their_own() -> None:
    times_s = arrival_times_s(Poisson(4.0), Chance(1).stream("arrivals"))
    requests = requests_of(WorkloadName.AZURE_400)
    assert [request.arrival_s for request in requests] == list(islice(times_s, 400))


def test_a_trace_takes_the_place_of_its_fit() -> None:
    first = make_workload(WorkloadName.AZURE_400, WorkloadOptions(rate_per_s=4.0, file=TRACE))
    requests = first.requests(Chance(1))
    expected = [max(1, round((100 + i) * 1.052)) for i in range(400)]
    assert [request.prompt_tokens for request in requests] == expected
    assert "400 of rows 0 to 399 of trace.csv, in x 1.052; Poisson, 4/s" in first.description
    replay = make_workload(WorkloadName.AZURE_REPLAY, WorkloadOptions(file=TRACE))
    assert len(replay.requests(Chance(1))) == 4424
    assert replay.requests(Chance(1))[1].arrival_s == pytest.approx(0.25 / 0.9)
    shuffled = make_workload(WorkloadName.AZURE_4000, WorkloadOptions(rate_per_s=4.0, file=TRACE))
    assert "4000 of rows 0 to 4999 of trace.csv, shuffled" in shuffled.description


@pytest.mark.parametrize(
    ("name", "options", "part"),
    [
        (WorkloadName.AZURE_400, WorkloadOptions(), "rate_per_s: got none"),
        (WorkloadName.AZURE_REPLAY, WorkloadOptions(rate_per_s=1.0), "use rate_scale"),
        (WorkloadName.CNN, WorkloadOptions(1.0, rate_scale=2.0), "expected rate_per_s"),
        (WorkloadName.CNN, WorkloadOptions(1.0, file=TRACE), "come from no trace"),
        (WorkloadName.CNN, WorkloadOptions(-1.0), "got -1.0, expected more than 0"),
        (WorkloadName.CNN, WorkloadOptions(1.0, num_requests=0), "num_requests: got 0"),
    ],
)
def test_options_that_a_workload_does_not_have_are_refused(
    name: WorkloadName, options: WorkloadOptions, part: str
) -> None:
    with pytest.raises(InvalidInputError, match=part):
        make_workload(name, options)


def test_strict_is_judged_by_scaled_targets_and_nothing_else_is() -> None:
    assert target_scales(WorkloadName.STRICT) == (0.8, 0.6, 0.4, 0.2)
    assert {target_scales(name) for name in WorkloadName if name is not WorkloadName.STRICT} == {
        (1.0,)
    }
