"""The custom resource `PipelineServe` v1alpha1 as types, and the parser in front of them."""

from pipelineserve.api.chunking import EffectiveChunking, effective_chunking
from pipelineserve.api.custom_resource import API_VERSION, KIND, Metadata, PipelineServe
from pipelineserve.api.engine import ApiSpec, EngineSpec, EngineType, EnvironmentVariable
from pipelineserve.api.lifecycle import (
    AutoscalingSpec,
    MonitoringSpec,
    NetworkPolicySpec,
    RecoverySpec,
    RolloutSpec,
)
from pipelineserve.api.model import DType, ModelCache, ModelSpec
from pipelineserve.api.model_uris import (
    ClaimUri,
    FileUri,
    HuggingFaceUri,
    ModelUri,
    PypiUri,
    parse_model_uri,
)
from pipelineserve.api.parallelism import LayersMode, LayersSpec, ParallelismSpec
from pipelineserve.api.parse import parse_resource, parse_resources, resource_from_document
from pipelineserve.api.placement import (
    ControllerResources,
    PlacementSpec,
    PodMetadataSpec,
    ResourcesSpec,
    StageResources,
)
from pipelineserve.api.rules import RULES, Rule
from pipelineserve.api.spec import PipelineServeSpec
from pipelineserve.api.targets import (
    ChunkingPolicy,
    ChunkingSpec,
    ControlMode,
    ControlSpec,
    LatencyTarget,
    QueueingSpec,
    QueueOrder,
    RebalancingMode,
    RebalancingSpec,
    SloSpec,
)
from pipelineserve.api.vocabulary import ObjectReference, SecretKeyReference

__all__ = [
    "API_VERSION",
    "KIND",
    "RULES",
    "ApiSpec",
    "AutoscalingSpec",
    "ChunkingPolicy",
    "ChunkingSpec",
    "ClaimUri",
    "ControlMode",
    "ControlSpec",
    "ControllerResources",
    "DType",
    "EffectiveChunking",
    "EngineSpec",
    "EngineType",
    "EnvironmentVariable",
    "FileUri",
    "HuggingFaceUri",
    "LatencyTarget",
    "LayersMode",
    "LayersSpec",
    "Metadata",
    "ModelCache",
    "ModelSpec",
    "ModelUri",
    "MonitoringSpec",
    "NetworkPolicySpec",
    "ObjectReference",
    "ParallelismSpec",
    "PipelineServe",
    "PipelineServeSpec",
    "PlacementSpec",
    "PodMetadataSpec",
    "PypiUri",
    "QueueOrder",
    "QueueingSpec",
    "RebalancingMode",
    "RebalancingSpec",
    "RecoverySpec",
    "ResourcesSpec",
    "RolloutSpec",
    "Rule",
    "SecretKeyReference",
    "SloSpec",
    "StageResources",
    "effective_chunking",
    "parse_model_uri",
    "parse_resource",
    "parse_resources",
    "resource_from_document",
]
