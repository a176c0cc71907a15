"""Looks on at an engine: every step record of a run, without taking control over."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc

from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve.wire.v1.scheduler_pb2_grpc import SchedulerControlStub


@dataclass(frozen=True)
class SeenStep:
    """A step record, and when it was composed: by this process's monotonic clock, nearly."""

    at_s: float
    record: pb.StepRecord


@contextmanager
def steps_of(address: str) -> Iterator[list[SeenStep]]:
    """Collect until the block ends."""
    steps: list[SeenStep] = []
    with grpc.insecure_channel(address) as channel:
        call = SchedulerControlStub(channel).Watch(
            pb.WatchRequest(controller_name="bench", observe_only=True)
        )
        next(call)  # Hello: from here on nothing is missed
        thread = threading.Thread(target=_read, args=(call, steps))
        thread.start()
        try:
            yield steps
        finally:
            call.cancel()
            thread.join()


def _read(call: "Iterator[pb.WatchEvent]", steps: list[SeenStep]) -> None:
    try:
        for event in call:
            now_s = time.monotonic()
            steps += [SeenStep(now_s - step.span_s, step) for step in event.records.steps]
    except grpc.RpcError:
        return  # cancelled above, or the engine has ended, which the load will tell
