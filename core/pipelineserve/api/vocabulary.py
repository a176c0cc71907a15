"""What every part of the resource is made of: the base model, names, quantities, loose objects.

Every description starts with what an edit does: `Live` restarts nothing, `Rolls` replaces pods
group by group, `Immutable` is refused.
"""

import json
from typing import Annotated, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from pipelineserve.api.texts import DATA_KEY, LABEL_VALUE, OBJECT_NAME, QUALIFIED_NAME, QUANTITY

EXPECTATION = "expectation"
"""Type of this package's own field errors; their message is complete as it stands."""
MAX_JSON_OBJECT_CHARACTERS = 16384
_MAX_QUALIFIED_NAME_CHARACTERS = 317  # a domain of 253, a slash, a name of 63

ValueT = TypeVar("ValueT")


class ApiModel(BaseModel):
    """Base of the resource's types: frozen, strict, no unknown field, camelCase outside."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


def expectation(message: str) -> PydanticCustomError:
    """A field error that says what was expected; for a validator to raise."""
    return PydanticCustomError(EXPECTATION, "{message}", {"message": message})


def _whole_number_as_text(value: object) -> object:
    # YAML's `cpu: 4` is an integer; Kubernetes takes both and keeps the text.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _of_bounded_size(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    size = len(json.dumps(value))
    if size > MAX_JSON_OBJECT_CHARACTERS:
        raise expectation(
            f"expected at most {MAX_JSON_OBJECT_CHARACTERS} characters as JSON, got {size}; "
            "remove what is not needed"
        )
    return value


def _is_qualified_name(key: str) -> bool:
    return len(key) <= _MAX_QUALIFIED_NAME_CHARACTERS and QUALIFIED_NAME.matches(key)


def _with_qualified_keys(value: dict[str, ValueT]) -> dict[str, ValueT]:
    wrong = next((key for key in value if not _is_qualified_name(key)), None)
    if wrong is not None:
        shown = json.dumps(wrong[:60])
        raise expectation(f"expected every key to be {QUALIFIED_NAME.meaning}; got {shown}")
    return value


ObjectName: TypeAlias = Annotated[str, Field(max_length=253, pattern=OBJECT_NAME.regex)]
Quantity: TypeAlias = Annotated[
    str,
    BeforeValidator(_whole_number_as_text),
    Field(max_length=32, pattern=QUANTITY.regex),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
                {"type": "string", "maxLength": 32},
            ],
            "pattern": QUANTITY.regex,
            "maxLength": 32,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
QuantityMap: TypeAlias = Annotated[
    dict[str, Quantity], Field(max_length=16), AfterValidator(_with_qualified_keys)
]
LabelMap: TypeAlias = Annotated[
    dict[str, Annotated[str, Field(max_length=63, pattern=LABEL_VALUE.regex)]],
    Field(max_length=64),
    AfterValidator(_with_qualified_keys),
]
AnnotationMap: TypeAlias = Annotated[
    dict[str, Annotated[str, Field(max_length=4096)]],
    Field(max_length=64),
    AfterValidator(_with_qualified_keys),
]
JsonObject: TypeAlias = Annotated[
    dict[str, JsonValue],
    Field(max_length=64, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
    AfterValidator(_of_bounded_size),
]
"""A structure of Kubernetes that is passed on as it is; the API server checks it."""
ChunkSize: TypeAlias = Annotated[int, Field(ge=1, le=131072)]
"""Tokens of one micro-batch, decodes included."""


class SecretKeyReference(ApiModel):
    """One key of a Secret in the resource's namespace."""

    name: Annotated[
        ObjectName,
        Field(description="Rolls: the Secret's name.", examples=["hf-token"]),
    ]
    key: Annotated[
        str,
        Field(
            max_length=253,
            pattern=DATA_KEY.regex,
            description="Rolls: the key within the Secret.",
            examples=["token"],
        ),
    ]


class ObjectReference(ApiModel):
    """An object in the resource's namespace, by name."""

    name: Annotated[
        ObjectName, Field(description="Rolls: the object's name.", examples=["registry"])
    ]
