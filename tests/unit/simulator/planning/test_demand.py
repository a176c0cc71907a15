"""Figures of a workload, and a replica's share of it."""

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.planning.demand import ReplicaShare, demand_of
from pipelineserve_simulator.workloads.registry import (
    WorkloadName,
    WorkloadOptions,
    make_workload,
)
from plan_questions import steady_workload
from simulated_pipelines import FixedWorkload

AZURE = make_workload(WorkloadName.AZURE_4000, WorkloadOptions(rate_per_s=5.0, num_requests=100))


def test_equal_requests_have_the_figures_of_each() -> None:
    demand = demand_of(steady_workload(4.0), 90, None)
    assert demand.rate_per_s == pytest.approx(4.0)
    assert (demand.prompt_tokens, demand.output_tokens) == (1000, 200)
    assert demand.squared_prompt_tokens == 1000**2
    assert demand.long_prompt_tokens == 1000
    assert demand.decode_context_tokens == 1100
    assert demand.longest_tokens == 1200


def test_a_known_rate_is_not_counted() -> None:
    assert demand_of(AZURE, 90, 5.0).rate_per_s == 5.0


def test_long_prompts_are_those_at_the_percentile() -> None:
    assert demand_of(AZURE, 50, None).long_prompt_tokens < (
        demand_of(AZURE, 90, None).long_prompt_tokens
    )


def test_a_load_is_tokens_at_a_rate() -> None:
    load = demand_of(steady_workload(4.0), 90, None).load_at(3.0)
    assert (load.prefill_tokens_per_s, load.decode_tokens_per_s) == (3000, 600)


def test_a_single_request_has_no_rate() -> None:
    with pytest.raises(InvalidInputError, match="got 1 requests at one time"):
        demand_of(steady_workload(4.0, num_requests=1), 90, None)


def test_replicas_share_the_requests_out_and_lose_none() -> None:
    whole = AZURE.requests(Chance(7))
    shares = [ReplicaShare(AZURE, 7, 3, index).requests(Chance(index)) for index in range(3)]
    arrivals = sorted(request.arrival_s for share in shares for request in share)
    assert arrivals == [request.arrival_s for request in whole]
    assert sum(request.prompt_tokens for share in shares for request in share) == sum(
        request.prompt_tokens for request in whole
    )


def test_a_share_is_numbered_from_zero() -> None:
    share = ReplicaShare(AZURE, 7, 3, 1)
    assert [request.index for request in share.requests(Chance(0))] == list(range(33))
    assert "every 3. request" in share.description


def test_the_only_replica_gets_everything() -> None:
    requests = AZURE.requests(Chance(7))
    assert ReplicaShare(FixedWorkload(requests), 7, 1, 0).requests(Chance(9)) == requests
