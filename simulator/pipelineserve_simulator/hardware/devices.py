"""Devices and links by name, as their vendors write of them.

Peaks are dense, in 16 bits, without sparsity, from the vendors' datasheets. One is derated, after
measurements: the A100-PCIe sustains 0.78 of its peak at 250 W (`profiles/`). The others may sustain
less than they promise, most of all the small ones.
"""

from dataclasses import dataclass
from difflib import get_close_matches

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_simulator.hardware.datasheets import Datasheet
from pipelineserve_simulator.hardware.description import HardwareProfile, LinkCosts

_GB = 10**9
_GIB = 2**30
# What a driver leaves of the A100's 40 GiB, as the measured profile has it: 39.39.
_VISIBLE_RATIO = 0.985

# TFLOP/s, GB/s of memory, GiB, GB/s of the link in one direction.
_TABLE = {
    "a100-40gb-pcie": (243.8, 1555, 40, "pcie4"),
    "a100-80gb-pcie": (243.8, 1935, 80, "pcie4"),
    "a100-40gb-sxm": (312.0, 1555, 40, "nvlink3"),
    "a100-80gb-sxm": (312.0, 2039, 80, "nvlink3"),
    "h100-80gb-pcie": (756.0, 2000, 80, "pcie5"),
    "h100-80gb-sxm": (989.0, 3350, 80, "nvlink4"),
    "h200-141gb-sxm": (989.0, 4800, 141, "nvlink4"),
    "l40s-48gb": (362.0, 864, 48, "pcie4"),
    "l4-24gb": (121.0, 300, 24, "pcie4"),
    "a10-24gb": (125.0, 600, 24, "pcie4"),
    "v100-32gb-pcie": (112.0, 900, 32, "pcie3"),
    "rtx4090-24gb": (165.2, 1008, 24, "pcie4"),
}


@dataclass(frozen=True, slots=True)
class Link:
    """What lies between devices.

    Attributes:
        bytes_per_s: one direction, as the datasheet promises.
        hop_ratio: the share of it that a hand-off between stages reaches.
        all_reduce_ratio: the share of it that a ring of all-reduces reaches.
        latency_ratio: how long a message takes, over one on PCIe through host memory.
    """

    name: str
    bytes_per_s: float
    hop_ratio: float
    all_reduce_ratio: float
    latency_ratio: float


# PCIe x16 through host memory: 11 and 16.5 of 32 GB/s, as in the measured profile. NVLink: an
# assumption after NVIDIA's nccl-tests page, whose 8 A100 reach 230 of 300 GB/s. Ethernet: an
# assumption, RDMA without the host's memory between.
_PCIE_SHARES = (0.34, 0.52, 1.0)
_NVLINK_SHARES = (0.75, 0.75, 0.5)
_ETHERNET_SHARES = (0.8, 0.8, 1.5)
_LINKS = {
    "pcie3": Link("pcie3", 16.0 * _GB, *_PCIE_SHARES),
    "pcie4": Link("pcie4", 32.0 * _GB, *_PCIE_SHARES),
    "pcie5": Link("pcie5", 64.0 * _GB, *_PCIE_SHARES),
    "pcie6": Link("pcie6", 128.0 * _GB, *_PCIE_SHARES),
    "nvlink3": Link("nvlink3", 300.0 * _GB, *_NVLINK_SHARES),
    "nvlink4": Link("nvlink4", 450.0 * _GB, *_NVLINK_SHARES),
    "nvlink5": Link("nvlink5", 900.0 * _GB, *_NVLINK_SHARES),
}
_ETHERNET = "ethernet:"
_LINK_FORMS = f"{', '.join(_LINKS)}, or {_ETHERNET}GBITS like {_ETHERNET}100"


@dataclass(frozen=True, slots=True)
class Device:
    """A device, and how it is linked to its neighbours unless somebody says otherwise."""

    datasheet: Datasheet
    link: Link


def device_names() -> tuple[str, ...]:
    """Names that `find_device` knows."""
    return tuple(_TABLE)


def find_device(name: str) -> Device:
    """A device by its name.

    Raises:
        InvalidInputError: there is none of that name; says which come nearest.
    """
    row = _TABLE.get(name.lower())
    if row is None:
        raise InvalidInputError("the device", [Fault("gpu", _unknown(name))])
    tflops, memory_gb_per_s, memory_gib, link_name = row
    link = _LINKS[link_name]
    datasheet = Datasheet(
        name=name.lower(),
        peak_flops_per_s=tflops * 1e12,
        memory_bytes_per_s=memory_gb_per_s * 1e9,
        memory_bytes=int(memory_gib * _GIB * _VISIBLE_RATIO),
        link_bytes_per_s=link.bytes_per_s,
    )
    return Device(datasheet, link)


def find_link(text: str) -> Link:
    """A link by its name, or Ethernet by its rate.

    Raises:
        InvalidInputError: it is neither.
    """
    link = _LINKS.get(text.lower())
    if link is None and text.lower().startswith(_ETHERNET):
        link = _ethernet(text.lower())
    if link is None:
        fault = Fault("link", f'got "{text}", expected one of {_LINK_FORMS}')
        raise InvalidInputError("the link", [fault])
    return link


def with_link(profile: HardwareProfile, link: Link) -> HardwareProfile:
    """The same profile over another link; what is sent stays, rates and latencies change."""
    known = profile.link
    costs = LinkCosts(
        hop_s=known.hop_s * link.latency_ratio,
        hop_bytes_per_token=known.hop_bytes_per_token,
        hop_bytes_per_s=link.bytes_per_s * link.hop_ratio,
        all_reduce_s=known.all_reduce_s * link.latency_ratio,
        all_reduce_bytes_per_token=known.all_reduce_bytes_per_token,
        all_reduce_bytes_per_s=link.bytes_per_s * link.all_reduce_ratio,
    )
    return profile.model_copy(update={"link": costs})


def _ethernet(name: str) -> Link | None:
    try:
        gbits_per_s = float(name.removeprefix(_ETHERNET))
    except ValueError:
        return None
    if not 0 < gbits_per_s <= 10_000:
        return None
    return Link(name, gbits_per_s / 8 * _GB, *_ETHERNET_SHARES)


def _unknown(name: str) -> str:
    near = get_close_matches(name.lower(), _TABLE, n=3, cutoff=0.3)
    hint = f"; nearest: {', '.join(near)}" if near else ""
    return f'got "{name}", expected one of {", ".join(_TABLE)}{hint}'
