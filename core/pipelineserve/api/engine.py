"""`spec.engine` and `spec.api`: what runs the model, and who may call it."""

from enum import Enum
from typing import Annotated

from pydantic import Field

from pipelineserve.api.texts import IMAGE, VARIABLE_NAME
from pipelineserve.api.vocabulary import ApiModel, ChunkSize, JsonObject, SecretKeyReference


class EngineType(Enum):
    """SGLang needs a supported GPU; Torch is this product's own engine and runs anywhere."""

    SGLANG = "SGLang"
    TORCH = "Torch"


class EnvironmentVariable(ApiModel):
    """One variable of the engine's container; exactly one of `value` and `valueFrom`."""

    name: Annotated[
        str,
        Field(
            max_length=256,
            pattern=VARIABLE_NAME.regex,
            description="Rolls: the variable's name.",
            examples=["NCCL_DEBUG"],
        ),
    ]
    value: Annotated[
        str | None, Field(max_length=4096, description="Rolls: the value as text.")
    ] = None
    value_from: Annotated[
        JsonObject | None,
        Field(
            min_length=1,
            max_length=1,
            description=(
                "Rolls: where the value comes from, as in a pod: secretKeyRef, configMapKeyRef, "
                "fieldRef or resourceFieldRef."
            ),
        ),
    ] = None


class EngineSpec(ApiModel):
    """The engine's container."""

    type: Annotated[
        EngineType,
        Field(description="Rolls: SGLang on supported GPUs, Torch everywhere else."),
    ] = EngineType.SGLANG
    image: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=512,
            pattern=IMAGE.regex,
            description="Rolls: the container image; the operator's own when not given.",
        ),
    ] = None
    args: Annotated[
        tuple[Annotated[str, Field(max_length=1024)], ...],
        Field(max_length=64, description="Rolls: further arguments of the engine, after our own."),
    ] = ()
    env: Annotated[
        tuple[EnvironmentVariable, ...],
        Field(max_length=64, description="Rolls: environment variables of the engine."),
    ] = ()
    max_chunk_tokens: Annotated[
        ChunkSize | None,
        Field(
            description=(
                "Rolls: the largest micro-batch that buffers are made for, decodes included: the "
                "ceiling of every chunk size under spec.chunking. When not given, 2048 or the "
                "largest of those, whichever is more."
            )
        ),
    ] = None


class ApiSpec(ApiModel):
    """The OpenAI API in front of the model."""

    key_secret_ref: Annotated[
        SecretKeyReference | None,
        Field(description="Rolls: the key that clients must send; open to all when not given."),
    ] = None
