"""What leader and stage host say to each other, valid by default."""

from pathlib import Path

import msgspec

from pipelineserve_engine.remote.messages import MemberStatus
from pipelineserve_engine.transport.link_settings import LinkSettings, TransportKind
from pipelineserve_engine.worker_settings import StageEndpoints, WorkerSettings


def an_order(generation: str = "g1") -> WorkerSettings:
    """The second of two stages."""
    return WorkerSettings(
        model_folder=str(Path("model")),
        stage_index=1,
        num_stages=2,
        num_slots=2,
        first_layer_index=3,
        num_layers=3,
        num_blocks=8,
        num_host_blocks=0,
        block_tokens=8,
        dtype="float32",
        device="cpu",
        num_threads=1,
        endpoints=StageEndpoints(
            "tcp://h:1", "tcp://h:2", LinkSettings(TransportKind.GLOO), generation=generation
        ),
    )


def a_status(**changes: object) -> MemberStatus:
    """Of a stage host for the second stage, at address b, that runs nothing."""
    status = MemberStatus(
        stage_index=1,
        group_epoch=0,
        instance_id="i1",
        address="b",
        generation="",
        pid=None,
        exit_code=None,
        clock_s=0.0,
        echo_s=None,
        held_s=0.0,
    )
    return msgspec.structs.replace(status, **changes)
