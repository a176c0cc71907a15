"""The JSON of answers and stream chunks, in OpenAI's shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.api.outputs import Output, TextDelta

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What an answer and all its chunks begin with."""

    id: str
    created_s: int
    model: str

    def fields(self, kind: str) -> Json:
        """As JSON; `kind` is OpenAI's `object`."""
        return {"id": self.id, "object": kind, "created": self.created_s, "model": self.model}


@dataclass(frozen=True, slots=True)
class ChunkShape:
    """How every chunk of one stream looks; with usage, all but the last say `usage: null`."""

    head: AnswerHead
    kind: str
    includes_usage: bool

    def chunk(self, choice: Json) -> Json:
        """A chunk with one choice."""
        rest: Json = {"usage": None} if self.includes_usage else {}
        return {**self.head.fields(self.kind), "choices": [choice], **rest}

    def usage_chunk(self, usage: Json) -> Json:
        """The last chunk, without choices."""
        return {**self.head.fields(self.kind), "choices": [], "usage": usage}


def usage_of(num_prompt_tokens: int, ends: Sequence[Output | TextDelta], num_samples: int) -> Json:
    """Token counts of one answer; several prompts are summed, each counted once.

    Args:
        num_prompt_tokens: of all prompts.
        ends: of all choices, in the order of their index.
        num_samples: choices per prompt.
    """
    # The sample that went first had the least in the cache; for the others it had filled it.
    num_cached_tokens = sum(
        min(end.cached_prompt_tokens for end in ends[start : start + num_samples])
        for start in range(0, len(ends), num_samples)
    )
    num_output_tokens = sum(end.output_tokens for end in ends)
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_output_tokens,
        "total_tokens": num_prompt_tokens + num_output_tokens,
        "prompt_tokens_details": {"cached_tokens": num_cached_tokens},
    }


def chat_choice(index: int, output: Output, logprobs: Json | None) -> Json:
    """The choice of a whole chat answer."""
    message = {"role": "assistant", "content": output.text, "refusal": None}
    return {
        "index": index,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": output.finish.value,
    }


def chat_chunk_choice(
    index: int, delta: Json, *, finish: FinishReason | None = None, logprobs: Json | None = None
) -> Json:
    """The choice of one chat chunk."""
    reason = None if finish is None else finish.value
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}


def completion_choice(
    index: int, text: str, finish: FinishReason | None, logprobs: Json | None
) -> Json:
    """The choice of a whole completion, or of one chunk of it."""
    reason = None if finish is None else finish.value
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
