"""What one stage's process is started with."""

import msgspec

from pipelineserve_engine.transport.link_settings import LinkSettings


class StageEndpoints(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a stage reaches the server and its neighbours; other ones at every start.

    Attributes:
        command_address: ZeroMQ address to pull commands from.
        report_address: ZeroMQ address to push reports to.
        links: to the neighbours.
        shared_folder: holds the sockets of stages of one host; removed by those that outlive the
            server. None between hosts.
        generation: names this start of the group; between hosts its sockets' keys depend on it.
    """

    command_address: str
    report_address: str
    links: LinkSettings
    shared_folder: str | None = None
    generation: str = ""


class WorkerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one stage's process is started with.

    Attributes:
        model_folder: holds config.json and safetensors.
        stage_index: from 0.
        num_stages: of the pipeline.
        num_slots: micro-batches in flight at once.
        first_layer_index: of this stage.
        num_layers: of this stage.
        num_blocks: KV blocks, the same on every stage.
        num_host_blocks: host blocks for KV that is swapped out, the same on every stage.
        block_tokens: tokens of one block.
        dtype: torch's name of it, for example float32.
        device: torch's name of it, for example cpu or cuda:0.
        num_threads: torch's threads in this process.
        endpoints: its sockets and links.
        group_key_file: from which the keys of its sockets follow; None on the server's own host.
    """

    model_folder: str
    stage_index: int
    num_stages: int
    num_slots: int
    first_layer_index: int
    num_layers: int
    num_blocks: int
    num_host_blocks: int
    block_tokens: int
    dtype: str
    device: str
    num_threads: int
    endpoints: StageEndpoints
    group_key_file: str | None = None
