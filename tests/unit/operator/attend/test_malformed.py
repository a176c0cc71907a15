"""Whatever a sidecar with a good token sends, the operator serves the others as before."""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack

import grpc
from hypothesis import given, settings
from hypothesis import strategies as st

from attend_parts import (
    PATIENCE_S,
    RunningOperator,
    attending,
    channel_to,
    of_pod,
    offered,
    operator_running,
    refused,
    status,
    told,
)
from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve_operator.attend import StreamBounds
from sidecar_parts import until

_METHOD = "/pipelineserve.wire.v1.OperatorLink/Attend"
_WORDS = st.text(max_size=80)
_NUMBERS = st.integers(0, 2**64 - 1)
HISTOGRAMS = st.builds(
    pb.LatencyHistogram,
    bucket_indices=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=8),
    counts=st.lists(_NUMBERS, max_size=8),
)
STATUSES = st.builds(
    pb.ControllerStatus,
    resource_uid=st.just("uid") | _WORDS,
    replica_index=st.integers(0, 2**32 - 1),
    received_generation=st.integers(-(2**63), 2**63 - 1),
    applied_generation=st.integers(-(2**63), 2**63 - 1),
    reason=_WORDS,
    slo_met=st.integers(-5, 9),
    feasible_instead=_WORDS,
    ttft=HISTOGRAMS,
    tpot=HISTOGRAMS,
    num_requests=_NUMBERS,
    num_attained=_NUMBERS,
)
MESSAGES = st.one_of(
    st.binary(max_size=200),
    STATUSES.map(lambda message: message.SerializeToString()),
    st.tuples(STATUSES, st.binary(max_size=50)).map(
        lambda pair: pair[0].SerializeToString() + pair[1]
    ),
)


async def send(operator: RunningOperator, messages: Iterable[bytes]) -> None:
    """Send these bytes, whether the stream is ended in between or not."""
    authorization = ("authorization", f"Bearer {operator.issuer.token(of_pod(1))}")
    async with channel_to(operator) as channel:
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(_METHOD)(
            metadata=(authorization,)
        )
        try:
            for message in messages:
                await call.write(message)
            await call.done_writing()
            async with asyncio.timeout(PATIENCE_S):
                while await call.read() is not grpc.aio.EOF:
                    pass
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # refused, which is as good


def test_a_thousand_messages_of_any_kind_leave_the_operator_unharmed() -> None:
    num_sent = 0
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        patient = StreamBounds(status_gap_s=0.0, silence_s=600.0)
        operator = runner.run(stack.enter_async_context(operator_running(bounds=patient)))
        operator.roster.offer(offered(1, num_pods=2))
        good = runner.run(stack.enter_async_context(attending(operator)))
        assert runner.run(told(good)).generation == 1

        @settings(max_examples=200, deadline=None)
        @given(st.lists(MESSAGES, min_size=6, max_size=12))
        def try_messages(messages: list[bytes]) -> None:
            nonlocal num_sent
            num_sent += len(messages)
            runner.run(send(operator, messages))

        try_messages()
        runner.run(still_good(operator, good))
        runner.run(stack.aclose())
    assert num_sent >= 1000


async def still_good(operator: RunningOperator, call: object) -> None:
    assert isinstance(call, grpc.aio.StreamStreamCall)
    operator.roster.offer(offered(2, num_pods=2))
    assert (await told(call)).generation == 2
    await call.write(status(received_generation=2))
    await until(
        lambda: any(
            report.pod_uid == "pod-0" and report.status.received_generation == 2
            for report in operator.roster.reports("uid")
        ),
        "the good sidecar's report",
    )
    await until(lambda: operator.roster.num_streams == 1, "the other streams to have ended")


def test_a_message_that_is_too_large_ends_its_stream_only() -> None:
    async def scenario() -> None:
        async with operator_running() as operator:
            operator.roster.offer(offered(1, num_pods=2))
            async with attending(operator) as good:
                assert (await told(good)).generation == 1
                async with attending(operator, operator.issuer.token(of_pod(1))) as call:
                    await call.write(status(1, feasible_instead="x" * 70_000))
                    assert (await refused(call))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
                await still_good(operator, good)

    asyncio.run(scenario())
