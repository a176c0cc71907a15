"""What cannot be rendered although the resource is valid."""

from pipelineserve.api import EngineType
from pipelineserve.errors import PipelineServeError


class EngineNotBuiltError(PipelineServeError):
    """The resource asks for an engine that this version cannot run.

    Attributes:
        engine: that was asked for.
    """

    def __init__(self, engine: EngineType) -> None:
        self.engine = engine
        super().__init__(
            f"spec.engine.type: expected {EngineType.TORCH.value}, got {engine.value}, which this "
            f"version of the operator cannot run yet; set it to {EngineType.TORCH.value}"
        )
