"""Rows of a file as a workload."""

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve.load.arrivals import Constant, Timestamps
from pipelineserve.load.prompts import TextPrompt
from pipelineserve.load.row_files import Row, RowFile
from pipelineserve.load.selection import RowChoice
from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.workloads.arriving import RandomArrivals
from pipelineserve_simulator.workloads.replay import RowWorkload
from pipelineserve_simulator.workloads.requests import SimulatedRequest

FILE = RowFile("trace.csv", tuple(Row(i, i * 0.9, 100 + i, 10 * i) for i in range(10)))
TWICE_A_SECOND = RandomArrivals(Constant(2.0))


def test_a_replay_keeps_times_and_lengths_and_scales_both() -> None:
    workload = RowWorkload(FILE, RowChoice(1, 4, input_scale=1.052), Timestamps(0.9), 100)
    requests = workload.requests(Chance(1))
    assert [request.arrival_s for request in requests] == pytest.approx([0.0, 1.0, 2.0])
    assert [request.prompt_tokens for request in requests] == [106, 107, 108]
    assert [request.output_tokens for request in requests] == [10, 20, 30]
    assert workload.description == (
        "3 of rows 1 to 3 of trace.csv, in x 1.052; the file's timestamps, rate x 0.9"
    )


def test_rows_with_other_arrivals_are_used_again_in_their_order() -> None:
    workload = RowWorkload(FILE, RowChoice(0, 2), TWICE_A_SECOND, 3)
    assert workload.requests(Chance(1)) == (
        SimulatedRequest(0, 0.0, 100, 1),  # an answer of no token still costs a prefill
        SimulatedRequest(1, 0.5, 101, 10),
        SimulatedRequest(2, 1.0, 100, 1),
    )
    assert "used 1.50 times; constant, 2/s" in workload.description


def test_shuffled_rows_follow_from_the_seed() -> None:
    workload = RowWorkload(FILE, RowChoice(is_shuffled=True), TWICE_A_SECOND, 10)
    one, same, other = (workload.requests(Chance(seed)) for seed in (1, 1, 2))
    assert one == same != other
    assert sorted(request.prompt_tokens for request in one) == list(range(100, 110))
    assert [request.arrival_s for request in one] == [request.arrival_s for request in other]
    order = list(range(100, 110))
    Chance(1).stream("rows").shuffle(order)
    assert [request.prompt_tokens for request in one] == order


@pytest.mark.parametrize(
    ("file", "choice", "part"),
    [
        (RowFile("x", (Row(0, prompt=TextPrompt("a")),)), RowChoice(), "without lengths"),
        (RowFile("x", (Row(0, None, 5, 5),)), RowChoice(), "without times"),
        (FILE, RowChoice(is_shuffled=True), "shuffled rows with timestamps"),
        (FILE, RowChoice(10), "none of the 10 rows"),
    ],
)
def test_rows_that_can_never_be_replayed_are_refused_at_once(
    file: RowFile, choice: RowChoice, part: str
) -> None:
    with pytest.raises(InvalidInputError, match=part):
        RowWorkload(file, choice, Timestamps(), 10)
