"""What a model's steps cost on a device: a shipped profile where there is one, else by formula."""

from dataclasses import dataclass

from pipelineserve_simulator.hardware.catalogue import load_profile, profile_names
from pipelineserve_simulator.hardware.datasheets import profile_from_datasheet
from pipelineserve_simulator.hardware.description import HardwareProfile, ModelShape
from pipelineserve_simulator.hardware.devices import Device, Link, with_link

# Overheads, element-wise work and noise of every machine that nobody has measured.
_REFERENCE = "a100-40gb-pcie/qwen2.5-32b"
# Two descriptions of one model may leave out other biases and norms.
_SAME_SIZE_RATIO = 0.01


@dataclass(frozen=True, slots=True)
class Machine:
    """A model on a kind of device.

    Attributes:
        profile: costs, over the link in question.
        source: where they come from, in words.
    """

    profile: HardwareProfile
    source: str


def machine_for(model: ModelShape, device: Device, link: Link) -> Machine:
    """The costs of a model on a device with this link to its neighbours."""
    shipped = _shipped_profile(model, device.datasheet.name)
    if shipped is not None:
        if link == device.link:
            return Machine(shipped, f"the shipped profile {shipped.name}")
        text = f"the shipped profile {shipped.name}, its link replaced by {link.name}"
        return Machine(with_link(shipped, link), text)
    derived = profile_from_datasheet(device.datasheet, model, load_profile(_REFERENCE))
    text = (
        f"by formula from the datasheet of {device.datasheet.name}, overheads of {_REFERENCE}; "
        "good for comparing layouts, not for absolute numbers"
    )
    return Machine(with_link(derived, link), text)


def _shipped_profile(model: ModelShape, device_name: str) -> HardwareProfile | None:
    for name in profile_names():
        profile = load_profile(name)
        if name.partition("/")[0] == device_name and _is_same_model(model, profile.model):
            return profile
    return None


def _is_same_model(one: ModelShape, other: ModelShape) -> bool:
    """By sizes: a file may call the model anything."""
    difference = abs(one.layer_parameters - other.layer_parameters)
    return difference <= _SAME_SIZE_RATIO * other.layer_parameters and all(
        getattr(one, name) == getattr(other, name)
        for name in (
            "num_layers",
            "hidden_size",
            "vocabulary_size",
            "parameter_bytes",
            "kv_bytes_per_layer_token",
        )
    )
