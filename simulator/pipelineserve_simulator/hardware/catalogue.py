"""The profiles that come with the product, and reading one from a text."""

from collections.abc import Iterable
from importlib.resources import files

from pydantic import ValidationError

from pipelineserve.api.documents import read_documents
from pipelineserve.api.faults import explain
from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_simulator.hardware.description import HardwareProfile

_FOLDER = files("pipelineserve_simulator.hardware") / "profiles"
_SUFFIX = ".yaml"


def profile_names() -> tuple[str, ...]:
    """Names that `load_profile` knows, as `device/model`."""
    names = (entry.name for entry in _FOLDER.iterdir())
    return tuple(
        sorted(
            name.removesuffix(_SUFFIX).replace(".", "/", 1)
            for name in names
            if name.endswith(_SUFFIX)
        )
    )


def load_profile(name: str) -> HardwareProfile:
    """Read a profile that comes with the product.

    Raises:
        InvalidInputError: there is none of that name; says which there are.
    """
    if name not in profile_names():
        known = ", ".join(profile_names())
        raise _invalid(name, [Fault("", f"expected one of {known}, got {name}")])
    entry = _FOLDER / f"{name.replace('/', '.', 1)}{_SUFFIX}"
    return profile_from_text(entry.read_text(encoding="utf-8"), name)


def profile_from_text(text: str, source: str) -> HardwareProfile:
    """Read a profile.

    Args:
        text: one YAML document; its fields are those of `HardwareProfile`.
        source: what errors call it.

    Raises:
        InvalidInputError: it is not a profile; holds every fault.
    """
    read = read_documents(text)
    faults = [*read.faults, *(fault for document in read.documents for fault in document.faults)]
    if not faults and len(read.documents) != 1:
        faults = [Fault("", f"expected one document, got {len(read.documents)}")]
    if faults:
        raise _invalid(source, faults)
    try:
        return HardwareProfile.model_validate(read.documents[0].value)
    except ValidationError as error:
        raise _invalid(source, explain(error, HardwareProfile, ignored="").faults) from error


def _invalid(source: str, faults: Iterable[Fault]) -> InvalidInputError:
    return InvalidInputError(f"the hardware profile {source}", faults)
