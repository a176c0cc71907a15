"""What is to be measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelineserve_cli.profiles.compositions import Extent


@dataclass(frozen=True, slots=True)
class Task:
    """One profile.

    Attributes:
        model: a folder, or a URI as in a manifest.
        flags: of the engine's server.
        extent: how far the profile reaches.
        num_rounds: how often everything is timed.
        device: in words.
    """

    model: str
    flags: Sequence[str]
    extent: Extent
    num_rounds: int
    device: str

    @property
    def model_name(self) -> str:
        """The last part of the model's name."""
        return self.model.rstrip("/").rpartition("/")[2]
