"""One process in place of many sidecars: each has its own connection, stream and token.

    python -m bench.attend_sidecars < ROSTER

The first line of standard input is a `Company` as JSON. For each objectives that one is told, a
`Hearing` as a line of JSON goes to standard output; times are of the machine's monotonic clock,
which is the same in all its processes. It ends with its standard input.
"""

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass

import grpc

from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve.wire.v1.operator_pb2_grpc import OperatorLinkStub

_REPEAT_S = 5.0
# A hundred buckets each, as a minute of traffic has.
_BUCKETS = pb.LatencyHistogram(bucket_indices=range(100), counts=[3] * 100)


@dataclass(frozen=True)
class Company:
    """Sidecars of one operator; the uids are those of their resources, in the tokens' order."""

    address: str
    server_name: str
    bundle: str
    tokens: list[str]
    uids: list[str]


@dataclass(frozen=True)
class Hearing:
    """One sidecar was told one generation."""

    sidecar_index: int
    generation: int
    heard_at_s: float


async def attend_all(company: Company) -> None:
    """Attend until standard input ends."""
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    tasks = [asyncio.create_task(_attend(company, index)) for index in range(len(company.uids))]
    await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _attend(company: Company, index: int) -> None:
    credentials = grpc.ssl_channel_credentials(company.bundle.encode())
    options = [
        ("grpc.ssl_target_name_override", company.server_name),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    async with grpc.aio.secure_channel(company.address, credentials, options=options) as channel:
        call = OperatorLinkStub(channel).Attend(
            metadata=(("authorization", f"Bearer {company.tokens[index]}"),)
        )
        news: asyncio.Queue[pb.Objectives] = asyncio.Queue()
        telling = asyncio.create_task(_tell(call, news))
        try:
            while isinstance(message := await call.read(), pb.Objectives):
                hearing = Hearing(index, message.generation, time.monotonic())
                print(json.dumps(asdict(hearing)), flush=True)
                news.put_nowait(message)
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)


async def _tell(
    call: "grpc.aio.StreamStreamCall[pb.ControllerStatus, pb.Objectives]",
    news: asyncio.Queue[pb.Objectives],
) -> None:
    """Say something about what was told, at once and then again and again."""
    message, num_requests = await news.get(), 0
    while True:
        num_requests += 1
        await call.write(
            pb.ControllerStatus(
                resource_uid=message.resource_uid,
                received_generation=message.generation,
                applied_generation=message.generation,
                reason="demand_met",
                is_engine_connected=True,
                is_control_effective=True,
                are_metrics_fresh=True,
                slo_met=pb.VERDICT_TRUE,
                slo_feasible=pb.VERDICT_TRUE,
                ttft=_BUCKETS,
                tpot=_BUCKETS,
                num_requests=num_requests,
                num_attained=num_requests,
            )
        )
        try:
            async with asyncio.timeout(_REPEAT_S):
                message = await news.get()
        except TimeoutError:
            continue  # nothing new: the same again, with other figures


if __name__ == "__main__":
    asyncio.run(attend_all(Company(**json.loads(sys.stdin.readline()))))
