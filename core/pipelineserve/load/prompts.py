"""Prompts before they are sent: made-up blocks, texts, conversations."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SyntheticBlock:
    """Made-up tokens; the same key gives the same tokens, so blocks can be shared by prompts."""

    key: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class SyntheticPrompt:
    """Blocks one after the other: random token ids, or for chats about as many words."""

    blocks: tuple[SyntheticBlock, ...]

    @property
    def num_tokens(self) -> int:
        """Exact for token ids, approximate for words."""
        return sum(block.num_tokens for block in self.blocks)


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A text as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """OpenAI messages as they are."""

    messages: tuple[Mapping[str, object], ...]


Prompt = SyntheticPrompt | TextPrompt | ChatPrompt
