"""What must hold of a scheduler after every call, counted anew from its own objects."""

from collections import Counter

from pipelineserve.policy.views import DecodeLoad
from pipelineserve.scheduler.messages import Census
from pipelineserve.scheduler.requests import FinishReason, Request, RequestState
from pipelineserve.scheduler.scheduler import Scheduler
from scheduling import Pipeline, Tracked, output_alone


def check_running(pipeline: Pipeline) -> None:
    """Check all that must hold between any two calls."""
    check_census(pipeline)
    check_states(pipeline)
    check_blocks(pipeline.scheduler)
    check_host_blocks(pipeline.scheduler)
    check_views(pipeline)


def check_drained(pipeline: Pipeline) -> None:
    """Check a pipeline in which nothing is live: all blocks are back, all requests ended right."""
    check_running(pipeline)
    pool = pipeline.scheduler.kv.pool
    assert pool.num_free == pool.num_blocks
    assert pipeline.scheduler.kv.host.num_taken == 0
    assert not pipeline.scheduler.has_work
    for tracked in pipeline.accepted:
        check_end(tracked)


def check_census(pipeline: Pipeline) -> None:
    ends = Counter(t.record.finish for t in pipeline.accepted if t.record is not None)
    census = pipeline.scheduler.census()
    assert census.is_conserved
    assert pipeline.scheduler.lost() == ()
    assert census == Census(
        arrived=len(pipeline.accepted) + len(pipeline.rejected),
        rejected=len(pipeline.rejected),
        waiting=census.waiting,
        running=len(pipeline.live) - census.waiting,
        finished=ends[FinishReason.STOP] + ends[FinishReason.LENGTH],
        cancelled=ends[FinishReason.CANCELLED],
        failed=ends[FinishReason.ERROR],
    )


def holders(scheduler: Scheduler) -> set[Request]:
    """Requests that may list blocks: live ones, and ended ones that a micro-batch still carries."""
    carried = {request for _, requests in scheduler._in_flight.values() for request in requests}
    return carried | set(scheduler._live.values())


def check_states(pipeline: Pipeline) -> None:
    """Every live request stands in exactly the one place that its state says."""
    scheduler = pipeline.scheduler
    carried = Counter(r for _, requests in scheduler._in_flight.values() for r in requests)
    waiting = list(scheduler._waiting)
    assert set(scheduler._live) == set(pipeline.live)
    assert len(waiting) == len(set(waiting)) == len(scheduler._waiting)
    for request in holders(scheduler):
        assert request.num_in_flight == carried[request]
        is_live = request.state is not RequestState.ENDED
        assert is_live == (scheduler._live.get(request.request_id) is request)
        is_waiting = request.state is RequestState.WAITING
        assert (request in waiting) == is_waiting
        assert not is_waiting or not (request.block_ids or request.num_in_flight)
        is_prefilling = request.state is RequestState.PREFILLING
        assert (scheduler._prefilling.get(request.request_id) is request) == is_prefilling
        is_ready = request.state is RequestState.DECODING and request.num_remaining == 1
        is_held = scheduler._decodes.is_held(request)
        assert ((request in scheduler._decodes) or is_held) == is_ready
        assert (request.held_since_s is not None) == is_held or not is_live
    running = [r for r in scheduler._live.values() if r.state is not RequestState.WAITING]
    assert len(running) <= pipeline.settings.max_running_requests


def check_blocks(scheduler: Scheduler) -> None:
    """Each block's references are those who list it; it is free or taken, never both."""
    pool = scheduler.kv.pool
    listed = Counter(block_id for r in holders(scheduler) for block_id in r.block_ids)
    for request in holders(scheduler):
        assert len(request.block_ids) == len(set(request.block_ids))
    for block_id in range(pool.num_blocks):
        assert pool.num_references(block_id) == listed[block_id]
        is_known = pool._digests[block_id] is not None
        assert (block_id in pool._blank) == (not listed[block_id] and not is_known)
        assert (block_id in pool._cached) == (not listed[block_id] and is_known)
    assert pool.num_free + len(listed) == pool.num_blocks
    for digest, block_id in pool._by_digest.items():
        assert pool._digests[block_id] == digest


def check_host_blocks(scheduler: Scheduler) -> None:
    """Each host block is free or owned by one waiting request, which then owns no others."""
    host = scheduler.kv.host
    owned = [block_id for r in holders(scheduler) for block_id in r.host_block_ids]
    assert sorted([*owned, *host._free]) == list(range(host.num_blocks))
    assert host.num_taken == len(owned)
    for request in holders(scheduler):
        if request.state is not RequestState.WAITING:
            assert request.host_block_ids == []
            continue
        assert request.block_ids == ()
        assert len(request.host_block_ids) == scheduler.kv.num_blocks_for(request.num_issued)
        assert request.num_issued < len(request.token_ids)


def check_views(pipeline: Pipeline) -> None:
    """The aggregates that policies see are what a count over all requests gives."""
    scheduler = pipeline.scheduler
    view = scheduler.view(0, pipeline.now_s)
    states = Counter(request.state for request in scheduler._live.values())
    assert view.num_waiting == states[RequestState.WAITING]
    assert view.num_prefilling == states[RequestState.PREFILLING]
    assert view.num_decoding == states[RequestState.DECODING]
    decoding = [r for r in scheduler._live.values() if r.state is RequestState.DECODING]
    held = [r for r in decoding if scheduler._decodes.is_held(r)]
    ready = [r for r in decoding if r in scheduler._decodes]
    pool = scheduler._decodes
    for index, of_slot in enumerate(pool._pools):
        members = [r for r in ready if r.pool_index == index]
        assert set(of_slot.requests) == set(members)
        assert of_slot.context_tokens == sum(len(r.token_ids) for r in members)
        assert scheduler.view(index, pipeline.now_s).num_ready_decodes == len(members)
    assert sum(len(of_slot.requests) for of_slot in pool._pools) == len(ready)
    assert pool.held == DecodeLoad(len(held), sum(len(r.token_ids) for r in held))
    not_held = [r for r in decoding if r not in held]
    assert pool.live == DecodeLoad(len(not_held), sum(len(r.token_ids) for r in not_held))
    waiting = [r.num_remaining for r in scheduler._waiting]
    assert scheduler._waiting.squared_tokens == sum(tokens * tokens for tokens in waiting)
    assert view.waiting_tokens == sum(
        len(request.token_ids) - request.num_issued for request in scheduler._waiting
    )


def check_end(tracked: Tracked) -> None:
    """One record, and the output that the request gives when it runs alone."""
    output, finish = output_alone(tracked.new, tracked.max_output_tokens)
    record = tracked.record
    assert record is not None
    assert record.num_output_tokens == len(tracked.output)
    assert record.num_prompt_tokens == len(tracked.new.prompt_token_ids)
    assert record.num_cached_tokens < record.num_prompt_tokens
    ended_by_itself = bool(tracked.emissions) and tracked.emissions[-1].record is record
    if ended_by_itself:
        assert (tracked.output, record.finish) == (output, finish)
    else:
        assert tracked.output == output[: len(tracked.output)]
    assert [e.ttft_s is not None for e in tracked.emissions] == [
        index == 0 for index in range(len(tracked.emissions))
    ]
