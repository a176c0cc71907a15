"""What is known of one model on one kind of machine: sizes, rates and overheads, as data.

All times are seconds, all rates per second. "Layer" is one layer of the whole model; sharding over
`tensor_parallel` devices is the cost model's. Frozen; unknown fields are refused.
"""

from itertools import pairwise
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
AtLeastZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class ModelShape(_Part):
    """Sizes of a model.

    Attributes:
        layer_parameters: weights of one layer.
        vocabulary_size: rows of the embedding and of the head, each `hidden_size` wide.
        parameter_bytes: of one weight and one activation.
        kv_bytes_per_layer_token: keys and values of one token in one layer.
    """

    name: str
    num_layers: Count
    hidden_size: Count
    layer_parameters: Count
    vocabulary_size: Count
    parameter_bytes: Count
    kv_bytes_per_layer_token: Count

    @property
    def layer_bytes(self) -> int:
        """Weights of one layer."""
        return self.layer_parameters * self.parameter_bytes

    @property
    def embedding_bytes(self) -> int:
        """Weights of the embedding, and as many of the head."""
        return self.vocabulary_size * self.hidden_size * self.parameter_bytes


class Stair(_Part):
    """Linear layers of up to so many tokens, and more than the stair below has."""

    tokens: Count
    layer_s: Positive


class LinearCosts(_Part):
    """Matrix multiplications: a roofline in tiles, with measured stairs at its lower end.

    Attributes:
        flops_per_s: what large multiplications reach.
        weight_bytes_per_s: at which weights are read.
        tile_tokens: a kernel computes whole tiles of so many tokens.
        stairs: one layer by tokens, ascending; above the last one the roofline holds.
        has_lines: between two stairs the time lies on the line between them, as it was measured on
            both sides of each jump, rather than on the upper stair.
    """

    flops_per_s: Positive
    weight_bytes_per_s: Positive
    tile_tokens: Count
    # A list in a file becomes a tuple here; its entries stay strict.
    stairs: Annotated[tuple[Stair, ...], Field(strict=False)]
    has_lines: bool = False

    @model_validator(mode="after")
    def _ascends(self) -> Self:
        if any(a.tokens >= b.tokens or a.layer_s > b.layer_s for a, b in pairwise(self.stairs)):
            raise ValueError("stairs: expected ascending tokens and times that never fall")
        return self


class ElementwiseCosts(_Part):
    """Norms, rotary embedding, activation, residual, writes of KV.

    Attributes:
        token_layer_s: of one token in one layer.
        sharded_ratio: the part of it that tensor parallelism divides.
    """

    token_layer_s: AtLeastZero
    sharded_ratio: Ratio


class AttentionCosts(_Part):
    """Attention of one layer; prefill computes, decoding reads.

    Attributes:
        prefill_flops_per_s: what prefill attention reaches.
        kv_bytes_per_s: at which decode attention reads keys and values.
        launch_s: of each of the two kinds that a micro-batch has.
        piece_s: of each decode, where a kernel runs for each one; prefill's is in the stairs.
    """

    prefill_flops_per_s: Positive
    kv_bytes_per_s: Positive
    launch_s: AtLeastZero
    piece_s: AtLeastZero = 0.0


class HeadRows(_Part):
    """Head and sampling of so many tokens, as measured."""

    rows: Count
    head_s: AtLeastZero


class HeadCosts(_Part):
    """The head and sampling, on the last stage.

    Attributes:
        fixed_s: of each micro-batch that samples.
        output_s: of each sampled token.
        measured: ascending; where there are any, lines through them take the place of `fixed_s` and
            of reading the weights, and `output_s` holds beyond the last.
    """

    fixed_s: AtLeastZero
    output_s: AtLeastZero
    measured: Annotated[tuple[HeadRows, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _ascends(self) -> Self:
        if any(a.rows >= b.rows or a.head_s > b.head_s for a, b in pairwise(self.measured)):
            raise ValueError("measured: expected ascending rows and times that never fall")
        return self


class HostCosts(_Part):
    """What the processor does between a result and the next micro-batch.

    Attributes:
        step_s: of each micro-batch.
        request_s: of each request in it.
    """

    step_s: AtLeastZero
    request_s: AtLeastZero


class LinkCosts(_Part):
    """Between stages, and between the shards of one stage.

    Attributes:
        hop_s: latency of a message from stage to stage.
        hop_bytes_per_token: what a stage sends on.
        hop_bytes_per_s: at which it does.
        all_reduce_s: latency of an all-reduce.
        all_reduce_bytes_per_token: what each device sends in a ring over infinitely many; of N
            devices each sends (N-1) ÷ N of it.
        all_reduce_bytes_per_s: at which it does.
    """

    hop_s: AtLeastZero
    hop_bytes_per_token: Count
    hop_bytes_per_s: Positive
    all_reduce_s: AtLeastZero
    all_reduce_bytes_per_token: Count
    all_reduce_bytes_per_s: Positive


class MemoryCosts(_Part):
    """Device memory: `usable_bytes` is what weights and KV may take of one device."""

    usable_bytes: Count


class NoiseCosts(_Part):
    """What no predictor can know.

    Attributes:
        sigma_ratio: log-normal spread of a micro-batch's times around their mean.
        stall_ratio: share of micro-batches that stall on one of the stages.
        stall_s: mean length of a stall.
    """

    sigma_ratio: Ratio
    stall_ratio: Ratio
    stall_s: AtLeastZero


class HardwareProfile(_Part):
    """One model on one kind of machine.

    Attributes:
        device: what one device is.
        layer_floor_s: launching the kernels of one layer; it takes at least as long.
        sharing_ratio: how much longer a step takes while all stages compute, which all times here
            are, than alone; above 1 where stages share cores or memory. See `PipelineCosts`.
    """

    name: str
    device: str
    model: ModelShape
    layer_floor_s: AtLeastZero
    sharing_ratio: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    linear: LinearCosts
    elementwise: ElementwiseCosts
    attention: AttentionCosts
    head: HeadCosts
    host: HostCosts
    link: LinkCosts
    memory: MemoryCosts
    noise: NoiseCosts
