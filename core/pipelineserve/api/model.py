"""`spec.model`: which model, in which precision, from where."""

from enum import Enum
from typing import Annotated

from pydantic import AfterValidator, Field

from pipelineserve.api.model_uris import MODEL_URI_REGEX, ModelUri, parse_model_uri
from pipelineserve.api.texts import REVISION, SERVED_NAME
from pipelineserve.api.vocabulary import (
    ApiModel,
    ObjectName,
    Quantity,
    SecretKeyReference,
    expectation,
)
from pipelineserve.errors import InvalidInputError


class DType(Enum):
    """Numbers that weights and activations are computed in; Auto is what the checkpoint names."""

    AUTO = "Auto"
    FLOAT32 = "Float32"
    FLOAT16 = "Float16"
    BFLOAT16 = "BFloat16"


def _is_model_uri(text: str) -> str:
    try:
        parse_model_uri(text)
    except InvalidInputError as error:
        raise expectation(error.faults[0].message) from error
    return text


class ModelCache(ApiModel):
    """Where downloaded weights are kept; exactly one of the two."""

    claim_name: Annotated[
        ObjectName | None,
        Field(description="Rolls: a PersistentVolumeClaim that outlives the pods."),
    ] = None
    size_limit: Annotated[
        Quantity | None,
        Field(description="Rolls: the size of a volume that lives as long as its pod."),
    ] = None


class ModelSpec(ApiModel):
    """The model to serve."""

    uri: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1024,
            description=(
                "Rolls: where the model's files come from: hf://organisation/model, "
                "pvc://claim/path, file:///path or pypi://distribution/file.gguf."
            ),
            examples=["hf://Qwen/Qwen2.5-32B-Instruct"],
            json_schema_extra={"pattern": MODEL_URI_REGEX},
        ),
        AfterValidator(_is_model_uri),
    ]
    revision: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=255,
            pattern=REVISION.regex,
            description=(
                "Rolls: the commit, branch or tag of an hf:// model, or the version of a pypi:// "
                "distribution; the newest when not given."
            ),
        ),
    ] = None
    served_name: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=128,
            pattern=SERVED_NAME.regex,
            description="Rolls: the model's name in the API; metadata.name when not given.",
        ),
    ] = None
    max_context_tokens: Annotated[
        int | None,
        Field(
            ge=1,
            le=16_777_216,
            description=(
                "Rolls: the longest prompt and output together; the model's own when not given."
            ),
        ),
    ] = None
    dtype: Annotated[
        DType,
        Field(description="Rolls: numbers to compute in; Auto is what the checkpoint names."),
    ] = DType.AUTO
    token_secret_ref: Annotated[
        SecretKeyReference | None,
        Field(description="Rolls: the access token for a model that is not public."),
    ] = None
    cache: Annotated[
        ModelCache | None,
        Field(description="Rolls: where weights are kept; a volume of the pod when not given."),
    ] = None

    @property
    def source(self) -> ModelUri:
        """The parsed `uri`."""
        return parse_model_uri(self.uri)
