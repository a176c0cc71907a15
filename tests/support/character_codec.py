"""A codec whose tokens are characters: the id is the code point, 0 ends the model's turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_engine.text.tokenizer import ChatMessage


def _do_nothing() -> None:
    pass


@dataclass(frozen=True)
class CharacterCodec:
    """A `TextCodec`; `before_encode` runs first in every encode."""

    before_encode: Callable[[], None] = _do_nothing
    vocabulary_size: int = 0x110000
    stop_token_ids: frozenset[int] = frozenset({0})

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        """One id per character."""
        self.before_encode()
        return tuple(map(ord, text))

    def encode_chat(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        """`role:content;` per message; refuses a first message of the assistant."""
        if messages[0].role == "assistant":
            raise InvalidInputError("the conversation", [Fault("messages", "start as the user")])
        return self.encode_prompt("".join(f"{m.role}:{m.content};" for m in messages))

    def decode(self, token_ids: Sequence[int]) -> str:
        """One character per id."""
        return "".join(map(chr, token_ids))

    def token_bytes(self, token_id: int) -> bytes:
        """The character in UTF-8; the end of the turn has a name."""
        return chr(token_id).encode() if token_id else b"<end>"

    def is_shown(self, token_id: int) -> bool:
        """All but the end of the turn."""
        return token_id != 0
