"""What the routes are given: the engine, the tokenizer, and time and chance as arguments."""

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from pipelineserve_engine.api.authorization import KeyFile
from pipelineserve_engine.generation import EngineClient
from pipelineserve_engine.text.tokenizer import TextCodec


@dataclass(frozen=True, slots=True)
class ApiContext:
    """Everything that the API uses from outside itself.

    Attributes:
        engine: where requests go.
        codec: text to token ids and back.
        served_model_name: the one name that requests must give as `model`.
        created_s: Unix time at which the model began to be served.
        max_context_tokens: prompt and output together.
        registry: what `/metrics` shows.
        new_id: a fresh opaque id, hexadecimal digits by custom.
        unix_time_s: the wall clock, for `created` in answers.
        max_body_bytes: larger request bodies are refused.
        keys: what clients must bring one of; None lets everybody in.
    """

    engine: EngineClient
    codec: TextCodec
    served_model_name: str
    created_s: int
    max_context_tokens: int
    registry: CollectorRegistry
    new_id: Callable[[], str]
    unix_time_s: Callable[[], float]
    max_body_bytes: int = 8 * 1024 * 1024
    keys: KeyFile | None = None
