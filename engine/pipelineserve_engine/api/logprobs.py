r"""Log-probabilities in OpenAI's two shapes: a list of objects in chats, parallel lists elsewhere.

There is one entry per output token that the usage counts, so the tokens of a stop string are among
them, though the text does not show it. A token that is only part of a character is written with
its bytes as `\xNN`; in chats, `bytes` has the exact ones of every token.
"""

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pipelineserve_engine.generation import TokenLogprobs
from pipelineserve_engine.text.tokenizer import TextCodec

# OpenAI's value for "next to impossible"; JSON has no minus infinity.
LEAST_LOGPROB = -9999.0


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """One token of the output with its log-probabilities."""

    token_id: int
    logprobs: TokenLogprobs


def chat_logprobs(codec: TextCodec, tokens: Iterable[ScoredToken]) -> dict[str, Any]:
    """`logprobs` of a chat's choice, whole or of one chunk."""
    content = [
        {
            **_chat_entry(codec, token.token_id, token.logprobs.chosen),
            "top_logprobs": [_chat_entry(codec, *pair) for pair in _top(token.logprobs)],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


class CompletionLogprobs:
    """`logprobs` of a completion's choice; offsets go on from one chunk to the next."""

    def __init__(self, codec: TextCodec) -> None:
        self._codec = codec
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._num_characters = 0

    def take(self, tokens: Iterable[ScoredToken]) -> dict[str, Any]:
        """The entries of the tokens that come next; offsets count characters of the text."""
        entries = list(tokens)
        return {
            "tokens": [self._text(token.token_id) for token in entries],
            "token_logprobs": [_finite(token.logprobs.chosen) for token in entries],
            "top_logprobs": [self._top(token) for token in entries],
            "text_offset": [self._take_offset(token.token_id) for token in entries],
        }

    def _top(self, token: ScoredToken) -> dict[str, float]:
        """The likeliest tokens and, as in OpenAI's, the chosen one whether it is of them or not."""
        top: dict[str, float] = {}
        pairs = [*_top(token.logprobs), (token.token_id, token.logprobs.chosen)]
        for token_id, logprob in pairs:
            # Different tokens may look alike; the likelier one comes first.
            top.setdefault(self._text(token_id), _finite(logprob))
        return top

    def _text(self, token_id: int) -> str:
        return _as_text(self._codec.token_bytes(token_id))

    def _take_offset(self, token_id: int) -> int:
        offset = self._num_characters
        if self._codec.is_shown(token_id):
            text = self._characters.decode(self._codec.token_bytes(token_id))
            self._num_characters += len(text)
        return offset


def _chat_entry(codec: TextCodec, token_id: int, logprob: float) -> dict[str, Any]:
    content = codec.token_bytes(token_id)
    return {"token": _as_text(content), "logprob": _finite(logprob), "bytes": list(content)}


def _top(logprobs: TokenLogprobs) -> Iterator[tuple[int, float]]:
    return zip(logprobs.top_token_ids, logprobs.top, strict=True)


def _as_text(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
