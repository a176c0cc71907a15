"""What the API needs of a tokenizer, and the one made of a model's own files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from jinja2 import TemplateError

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_engine.text.token_bytes import byte_reader


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of a conversation, as chat templates know it."""

    role: str
    content: str
    name: str | None = None


class TokenDecoder(Protocol):
    """Token ids to text; all that incremental decoding needs."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of these ids on their own; bytes that are no UTF-8 become U+FFFD."""
        ...

    def is_shown(self, token_id: int) -> bool:
        """Whether the id has text: false for special tokens and ids outside the vocabulary."""
        ...


class TextCodec(TokenDecoder, Protocol):
    """The tokenizer as the API sees it. Safe to call from several threads at once."""

    @property
    def vocabulary_size(self) -> int:
        """Valid ids are 0 up to this, exclusive."""
        ...

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """Ids that end the model's turn."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """What one token stands for, often not whole characters; none outside the vocabulary.

        A special token, which has no text, is written as it is called.
        """
        ...

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        """Ids of a plain prompt, with the special tokens that the model expects around it."""
        ...

    def encode_chat(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        """Ids of a conversation, ending where the assistant's next turn begins.

        Raises:
            InvalidInputError: the model's chat template refuses the messages, or there is none.
        """
        ...


class HuggingFaceCodec:
    """A `TextCodec` over a tokenizer of the transformers library."""

    def __init__(self, tokenizer: Any, extra_stop_token_ids: frozenset[int] = frozenset()) -> None:
        self._tokenizer = tokenizer
        self._size = len(tokenizer)
        self._hidden_ids = _special_ids(tokenizer)
        self._added_ids = frozenset(tokenizer.added_tokens_decoder)
        self._read_bytes = byte_reader(tokenizer.backend_tokenizer)
        eos_id = tokenizer.eos_token_id
        own_stop_ids = frozenset() if eos_id is None else frozenset({eos_id})
        self._stop_token_ids = own_stop_ids | extra_stop_token_ids
        # Left set, the first encode would switch these off while another thread encodes.
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()

    @property
    def vocabulary_size(self) -> int:
        """Valid ids are 0 up to this, exclusive."""
        return self._size

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """The tokenizer's end-of-sequence id and those of the generation config."""
        return self._stop_token_ids

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        """Ids of a plain prompt, with the special tokens that the model expects around it."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=True))

    def encode_chat(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        """Ids of a conversation, ending where the assistant's next turn begins.

        Raises:
            InvalidInputError: the model's chat template refuses the messages, or there is none.
        """
        if self._tokenizer.chat_template is None:
            raise _refusal("got messages for a model without a chat template; use /v1/completions")
        turns = [_as_template_input(message) for message in messages]
        try:
            token_ids = self._tokenizer.apply_chat_template(
                turns, add_generation_prompt=True, return_dict=False
            )
        except (TemplateError, TypeError, ValueError) as refused:
            roles = ", ".join(message.role for message in messages[:8])
            raise _refusal(
                f"the model's chat template refused them (roles: {roles}): {refused}; "
                "send messages in an order and with roles that it accepts"
            ) from refused
        return tuple(token_ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of these ids on their own; bytes that are no UTF-8 become U+FFFD."""
        text: str = self._tokenizer.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def is_shown(self, token_id: int) -> bool:
        """Whether the id has text: false for special tokens and ids outside the vocabulary."""
        return token_id < self._size and token_id not in self._hidden_ids

    def token_bytes(self, token_id: int) -> bytes:
        """What one token stands for, often not whole characters; none outside the vocabulary.

        A special token, which has no text, is written as it is called.
        """
        name: str | None = self._tokenizer.convert_ids_to_tokens(token_id)
        if name is None:
            return b""
        return name.encode() if token_id in self._added_ids else self._read_bytes(name)


def load_codec(model_folder: Path) -> HuggingFaceCodec:
    """Read the tokenizer, chat template and stop ids of a model's folder; nothing is downloaded."""
    from transformers import AutoTokenizer, GenerationConfig  # noqa: PLC0415 (seconds to import)

    tokenizer = AutoTokenizer.from_pretrained(model_folder, local_files_only=True)
    if not (model_folder / "generation_config.json").is_file():
        return HuggingFaceCodec(tokenizer)
    eos_ids = GenerationConfig.from_pretrained(model_folder, local_files_only=True).eos_token_id
    return HuggingFaceCodec(tokenizer, _as_id_set(eos_ids))


def _as_id_set(eos_ids: int | list[int] | None) -> frozenset[int]:
    if eos_ids is None:
        return frozenset()
    return frozenset({eos_ids} if isinstance(eos_ids, int) else eos_ids)


def _special_ids(tokenizer: Any) -> frozenset[int]:
    """Every id that `skip_special_tokens` leaves out, the unnamed reserved ones included."""
    added = tokenizer.added_tokens_decoder.items()
    return frozenset(tokenizer.all_special_ids) | {
        token_id for token_id, token in added if token.special
    }


def _as_template_input(message: ChatMessage) -> dict[str, str]:
    turn = {"role": message.role, "content": message.content}
    return turn if message.name is None else {**turn, "name": message.name}


def _refusal(reason: str) -> InvalidInputError:
    return InvalidInputError("the conversation", [Fault("messages", reason)])
