"""Sidecars over TLS on the loopback address: who gets in, who hears what, what ends a stream."""

import asyncio
import time
from typing import Any

import grpc
import pytest

from attend_parts import (
    PATIENCE_S,
    TokenIssuer,
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
from pipelineserve.wire.v1.operator_pb2_grpc import OperatorLinkStub
from pipelineserve_operator.attend import AddressTakenError, Refusal, StreamBounds
from pipelineserve_operator.attend.service import code_of
from pipelineserve_operator.attend.tokens import LEEWAY_S
from sidecar_parts import until

CODE = grpc.StatusCode


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"aud": ["someone-else"]}, CODE.UNAUTHENTICATED, "audience"),
        ({"exp": 5}, CODE.UNAUTHENTICATED, "expired"),
        ({"kubernetes.io/pod": ...}, CODE.UNAUTHENTICATED, "kubernetes.io.pod"),
        (of_pod(7), CODE.PERMISSION_DENIED, "small-r7-e0-0"),
        (
            {
                "sub": "system:serviceaccount:models:default",
                "kubernetes.io/serviceaccount/name": "default",
            },
            CODE.PERMISSION_DENIED,
            "small-pods",
        ),
    ],
)
def test_a_token_that_is_not_good_is_turned_away_with_what_is_wrong(
    changes: dict[str, Any], code: grpc.StatusCode, named: str
) -> None:
    async def scenario() -> None:
        async with operator_running() as operator:
            operator.roster.offer(offered())
            token = operator.issuer.token(changes)
            async with attending(operator, token) as call:
                got, details = await refused(call)
            assert (got, named in details, token in details) == (code, True, False)
            assert operator.roster.num_streams == 0
            assert sum(operator.server.refusals.values()) == 1

    asyncio.run(scenario())


def test_a_call_without_a_token_is_turned_away() -> None:
    async def scenario() -> None:
        async with operator_running() as operator, channel_to(operator) as channel:
            code, details = await refused(OperatorLinkStub(channel).Attend())
            assert (code, "Bearer" in details) == (CODE.UNAUTHENTICATED, True)

    asyncio.run(scenario())


def test_another_cluster_s_token_is_turned_away() -> None:
    async def scenario() -> None:
        async with operator_running() as operator:
            operator.roster.offer(offered())
            async with attending(operator, TokenIssuer().token()) as call:
                assert (await refused(call))[0] is CODE.UNAUTHENTICATED
            assert operator.server.refusals == {Refusal.BAD_SIGNATURE: 1}

    asyncio.run(scenario())


def test_the_offer_is_told_and_what_is_said_is_reported() -> None:
    async def scenario() -> None:
        async with operator_running() as operator:
            operator.roster.offer(offered(3))
            async with attending(operator) as call:
                message = await told(call)
                assert (message.resource_uid, message.generation) == ("uid", 3)
                assert "1003" in message.spec_json
                await call.write(status(received_generation=3))
                await until(lambda: bool(operator.roster.reports("uid")), "a report")
            (report,) = operator.roster.reports("uid")
            assert (report.pod_uid, report.pod_name) == ("pod-0", "small-r0-e0-0")
            assert report.status.received_generation == 3
            await until(lambda: operator.roster.num_streams == 0, "the end of the stream")
            assert [one.is_connected for one in operator.roster.reports("uid")] == [False]
            assert operator.changed == ["uid", "uid"]

    asyncio.run(scenario())


def test_a_new_offer_reaches_all_streams() -> None:
    async def scenario() -> None:
        async with operator_running() as operator:
            operator.roster.offer(offered(1, num_pods=3))
            tokens = [operator.issuer.token(of_pod(index)) for index in range(3)]
            async with (
                attending(operator, tokens[0]) as a,
                attending(operator, tokens[1]) as b,
                attending(operator, tokens[2]) as c,
            ):
                assert [(await told(call)).generation for call in (a, b, c)] == [1, 1, 1]
                operator.roster.offer(offered(2, num_pods=3))
                assert [(await told(call)).generation for call in (a, b, c)] == [2, 2, 2]

    asyncio.run(scenario())


def test_of_two_streams_of_one_pod_the_newer_one_goes_on() -> None:
    async def scenario() -> None:
        async with operator_running() as operator:
            operator.roster.offer(offered(1))
            async with attending(operator) as first:
                assert (await told(first)).generation == 1
                async with attending(operator) as second:
                    assert (await told(second)).generation == 1
                    assert (await refused(first))[0] is CODE.ABORTED
                    operator.roster.offer(offered(2))
                    assert (await told(second)).generation == 2
                    assert operator.roster.num_streams == 1

    asyncio.run(scenario())


def test_a_status_about_another_resource_ends_the_stream() -> None:
    async def scenario() -> None:
        async with operator_running() as operator:
            operator.roster.offer(offered())
            async with attending(operator) as call:
                await call.write(pb.ControllerStatus(resource_uid="other"))
                assert (await refused(call))[0] is CODE.PERMISSION_DENIED
            assert operator.roster.reports("other") == ()

    asyncio.run(scenario())


def test_a_status_out_of_bounds_is_left_out_and_its_stream_goes_on() -> None:
    async def scenario() -> None:
        async with operator_running() as operator:
            operator.roster.offer(offered(1))
            async with attending(operator) as call:
                await call.write(status(num_requests=1, num_attained=2, applied_generation=8))
                await call.write(status(applied_generation=9))
                await until(lambda: bool(operator.roster.reports("uid")), "a report")
                (report,) = operator.roster.reports("uid")
                assert report.status.applied_generation == 9
                assert (await told(call)).generation == 1
            assert operator.server.refusals == {Refusal.MALFORMED_STATUS: 1}

    asyncio.run(scenario())


def test_what_is_no_status_at_all_is_left_out_and_its_stream_goes_on() -> None:
    async def scenario() -> None:
        async with operator_running() as operator, channel_to(operator) as channel:
            operator.roster.offer(offered(1))
            authorization = ("authorization", f"Bearer {operator.issuer.token()}")
            method = "/pipelineserve.wire.v1.OperatorLink/Attend"
            call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(method)(
                metadata=(authorization,)
            )
            await call.write(b"\xff\xff\xff")
            await call.write(status(applied_generation=9).SerializeToString())
            await until(lambda: bool(operator.roster.reports("uid")), "a report")
            assert operator.server.refusals == {Refusal.MALFORMED_STATUS: 1}

    asyncio.run(scenario())


def test_a_stream_ends_with_its_token_and_a_fresh_one_is_let_in() -> None:
    async def scenario() -> None:
        async with operator_running() as operator:
            operator.roster.offer(offered())
            dying = operator.issuer.token({"exp": time.time() - LEEWAY_S + 1.0})
            async with attending(operator, dying) as call:
                assert (await told(call)).generation == 1
                code, details = await refused(call)
                assert (code, "ended while its stream was open" in details) == (
                    CODE.UNAUTHENTICATED,
                    True,
                )
            async with attending(operator) as call:
                assert (await told(call)).generation == 1

    asyncio.run(scenario())


def test_a_sidecar_that_says_nothing_for_long_is_hung_up_on() -> None:
    async def scenario() -> None:
        bounds = StreamBounds(status_gap_s=0.0, silence_s=0.2)
        async with operator_running(bounds=bounds) as operator:
            operator.roster.offer(offered())
            async with attending(operator) as call:
                assert (await refused(call))[0] is CODE.DEADLINE_EXCEEDED

    asyncio.run(scenario())


def test_whoever_says_too_much_is_read_slowly_and_told_all_the_same() -> None:
    async def scenario() -> None:
        bounds = StreamBounds(status_gap_s=1000.0)
        async with operator_running(bounds=bounds) as operator:
            operator.roster.offer(offered(1))
            async with attending(operator) as call:
                for generation in range(10):
                    await call.write(status(received_generation=generation))
                assert (await told(call)).generation == 1
                await until(lambda: bool(operator.roster.reports("uid")), "a report")
                operator.roster.offer(offered(2))
                assert (await told(call)).generation == 2
                (report,) = operator.roster.reports("uid")
                assert report.status.received_generation == 0

    asyncio.run(scenario())


def test_beyond_the_bound_of_streams_nobody_is_let_in_until_one_leaves() -> None:
    async def scenario() -> None:
        async with operator_running(num_streams=2) as operator:
            operator.roster.offer(offered(num_pods=3))
            tokens = [operator.issuer.token(of_pod(index)) for index in range(3)]
            async with attending(operator, tokens[0]) as first:
                await told(first)
                async with attending(operator, tokens[1]) as second:
                    await told(second)
                    async with attending(operator, tokens[2]) as third:
                        assert (await refused(third))[0] is CODE.RESOURCE_EXHAUSTED
                await until(lambda: operator.roster.num_streams == 1, "the second to have left")
                async with asyncio.timeout(PATIENCE_S):
                    # The server counts a call until gRPC is done with it, a moment after its end.
                    while not await _is_let_in(operator, tokens[2]):
                        pass

    asyncio.run(scenario())


async def _is_let_in(operator: Any, token: str) -> bool:
    async with attending(operator, token) as call:
        try:
            await told(call)
        except grpc.aio.AioRpcError:
            return False
        return True


def test_an_address_that_is_taken_is_named() -> None:
    async def scenario() -> None:
        async with operator_running() as operator:
            with pytest.raises(AddressTakenError, match=str(operator.server.port)):
                async with operator_running(port=operator.server.port):
                    pass

    asyncio.run(scenario())


@pytest.mark.parametrize("refusal", list(Refusal))
def test_every_refusal_ends_a_call_with_a_fault(refusal: Refusal) -> None:
    assert code_of(refusal) is not CODE.OK
