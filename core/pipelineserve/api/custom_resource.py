"""The custom resource `PipelineServe`, version v1alpha1."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from pipelineserve.api.spec import PipelineServeSpec
from pipelineserve.api.texts import DNS_LABEL
from pipelineserve.api.vocabulary import ApiModel, LabelMap

API_VERSION: Literal["pipelineserve.dev/v1alpha1"] = "pipelineserve.dev/v1alpha1"
KIND: Literal["PipelineServe"] = "PipelineServe"


class Metadata(ApiModel):
    """The part of an object's metadata that is ours to read."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=40,
            pattern=DNS_LABEL.regex,
            description="Immutable: the resource's name, the stem of every name made from it.",
            examples=["qwen-32b"],
        ),
    ]
    namespace: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=63,
            pattern=DNS_LABEL.regex,
            description="Immutable: the namespace; the caller's when not given.",
        ),
    ] = None
    labels: Annotated[LabelMap, Field(description="Live: labels of the resource itself.")] = Field(
        default_factory=dict
    )
    # Other tools write here, kubectl up to a copy of the whole resource.
    annotations: Annotated[
        dict[str, Annotated[str, Field(max_length=262_144)]],
        Field(max_length=1024, description="Live: annotations of the resource itself."),
    ] = Field(default_factory=dict)
    uid: Annotated[
        str | None,
        Field(max_length=64, description="Immutable: given by the API server."),
    ] = None
    generation: Annotated[
        int | None,
        Field(
            ge=0,
            le=2**63 - 1,
            description="Live: given by the API server, higher after each edit of the spec.",
        ),
    ] = None


class PipelineServe(ApiModel):
    """One model served by pipelines under latency targets; without the status."""

    api_version: Annotated[
        Literal["pipelineserve.dev/v1alpha1"],
        Field(description="Immutable: the version of this schema."),
    ] = API_VERSION
    kind: Annotated[
        Literal["PipelineServe"], Field(description="Immutable: the kind of the resource.")
    ] = KIND
    metadata: Annotated[
        Metadata,
        Field(
            description="Immutable: name and namespace; labels and annotations are Live.",
            examples=[{"name": "qwen-32b"}],
        ),
    ]
    spec: Annotated[
        PipelineServeSpec,
        Field(
            description="Live or Rolls: what the user wants; each field says which.",
            examples=[{"model": {"uri": "hf://Qwen/Qwen2.5-32B-Instruct"}}],
        ),
    ]

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.metadata.name

    @property
    def served_name(self) -> str:
        """The model's name in the API: as given, else the resource's name."""
        return self.spec.model.served_name or self.metadata.name

    def to_document(self) -> dict[str, JsonValue]:
        """The resource as a JSON document, defaults written out; it parses to the same resource.

        Write it as JSON: some YAML writers leave texts bare that others read as numbers (1e3).
        """
        document: dict[str, JsonValue] = self.model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        return document
