"""The API server: kinds, requests, and how they fail."""

from pipelineserve_operator.cluster.access import Cluster
from pipelineserve_operator.cluster.errors import ApiError, NameTakenError
from pipelineserve_operator.cluster.kinds import Kind, kind_of

__all__ = ["ApiError", "Cluster", "Kind", "NameTakenError", "kind_of"]
