"""`spec.parallelism`: how one replica of the model is cut into stages and pods."""

from enum import Enum
from typing import Annotated

from pydantic import Field

from pipelineserve.api.vocabulary import ApiModel

MAX_STAGES = 64


class LayersMode(Enum):
    """Who decides how many layers each stage holds."""

    AUTO = "Auto"
    MANUAL = "Manual"


class LayersSpec(ApiModel):
    """The partition of layers to stages; `perStage` with Manual, and only then."""

    mode: Annotated[
        LayersMode,
        Field(description="Rolls: Auto balances the stages; Manual takes perStage as it is."),
    ] = LayersMode.AUTO
    per_stage: Annotated[
        tuple[Annotated[int, Field(ge=1, le=1024)], ...] | None,
        Field(
            min_length=1,
            max_length=MAX_STAGES,
            description="Rolls: the number of layers of each stage, first stage first.",
        ),
    ] = None


class ParallelismSpec(ApiModel):
    """The shape of one replica."""

    stages: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_STAGES,
            description="Rolls: pipeline stages of one replica; 1 is no pipeline.",
            examples=[4],
        ),
    ]
    tensor_parallel: Annotated[
        int,
        Field(ge=1, le=64, description="Rolls: devices that share each stage's tensors."),
    ] = 1
    stages_per_pod: Annotated[
        int | None,
        Field(
            ge=1,
            le=MAX_STAGES,
            description="Rolls: stages in one pod, a divisor of stages; all when not given.",
        ),
    ] = None
    layers: Annotated[
        LayersSpec, Field(description="Rolls: the partition of layers to stages.")
    ] = LayersSpec()

    @property
    def effective_stages_per_pod(self) -> int:
        """Stages in one pod: as given, else all."""
        return self.stages if self.stages_per_pod is None else self.stages_per_pod

    @property
    def pods_per_replica(self) -> int:
        """Pods of one group."""
        return self.stages // self.effective_stages_per_pod
