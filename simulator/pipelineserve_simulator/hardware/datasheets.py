"""A profile by formula, for devices that nobody has measured here.

Peaks of a datasheet times the shares of them that the measured A100 reaches; the overheads are that
machine's. No stairs: they belong to a kernel library on one device. Good for ranking layouts; a
measured profile is better for anything else.
"""

from dataclasses import dataclass

from pipelineserve_simulator.hardware.description import (
    AttentionCosts,
    ElementwiseCosts,
    HardwareProfile,
    LinearCosts,
    LinkCosts,
    MemoryCosts,
    ModelShape,
)

# What kernels reach of the peaks: 250 of 312 TFLOP/s and 1.58 of 2.039 TB/s in NVIDIA's tables of
# the A100-SXM4-80GB, attention 130 x 250 / 195 TFLOP/s and 1.05 / 1.22 of the weights' bandwidth.
_LINEAR_FLOPS_RATIO = 0.80
_WEIGHT_BANDWIDTH_RATIO = 0.775
_ATTENTION_FLOPS_RATIO = 0.53
_KV_BANDWIDTH_RATIO = 0.667
# Of what a link's datasheet promises per direction, through the host: 11 of 32 GB/s, and for a ring
# of all-reduces 16.5 of 32.
_HOP_RATIO = 0.34
_ALL_REDUCE_RATIO = 0.52
_USABLE_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class Datasheet:
    """What a vendor writes of a device.

    Attributes:
        peak_flops_per_s: dense, in the model's precision, at the power that the card sustains.
        memory_bytes_per_s: bandwidth of its memory.
        memory_bytes: its size.
        link_bytes_per_s: to its neighbours, one direction.
    """

    name: str
    peak_flops_per_s: float
    memory_bytes_per_s: float
    memory_bytes: int
    link_bytes_per_s: float


def profile_from_datasheet(
    datasheet: Datasheet, model: ModelShape, reference: HardwareProfile
) -> HardwareProfile:
    """Derive a profile.

    Args:
        datasheet: the device.
        model: what runs on it.
        reference: a measured profile, for overheads, element-wise work and noise. The latter is
            bound by memory, so it changes with the bandwidth of the two devices, and with the
            model's width.
    """
    bandwidth = datasheet.memory_bytes_per_s * _WEIGHT_BANDWIDTH_RATIO
    slower = reference.linear.weight_bytes_per_s / bandwidth
    activation_bytes = model.hidden_size * model.parameter_bytes
    wider = activation_bytes / (reference.model.hidden_size * reference.model.parameter_bytes)
    return HardwareProfile(
        name=f"{datasheet.name}/{model.name}",
        device=datasheet.name,
        model=model,
        layer_floor_s=reference.layer_floor_s,
        linear=LinearCosts(
            flops_per_s=datasheet.peak_flops_per_s * _LINEAR_FLOPS_RATIO,
            weight_bytes_per_s=bandwidth,
            tile_tokens=reference.linear.tile_tokens,
            stairs=(),
        ),
        elementwise=ElementwiseCosts(
            token_layer_s=reference.elementwise.token_layer_s * slower * wider,
            sharded_ratio=reference.elementwise.sharded_ratio,
        ),
        attention=AttentionCosts(
            prefill_flops_per_s=datasheet.peak_flops_per_s * _ATTENTION_FLOPS_RATIO,
            kv_bytes_per_s=datasheet.memory_bytes_per_s * _KV_BANDWIDTH_RATIO,
            launch_s=reference.attention.launch_s,
        ),
        head=reference.head,
        host=reference.host,
        link=LinkCosts(
            hop_s=reference.link.hop_s,
            hop_bytes_per_token=2 * activation_bytes,
            hop_bytes_per_s=datasheet.link_bytes_per_s * _HOP_RATIO,
            all_reduce_s=reference.link.all_reduce_s,
            all_reduce_bytes_per_token=2 * activation_bytes,
            all_reduce_bytes_per_s=datasheet.link_bytes_per_s * _ALL_REDUCE_RATIO,
        ),
        memory=MemoryCosts(usable_bytes=int(datasheet.memory_bytes * _USABLE_RATIO)),
        noise=reference.noise,
    )
