"""A tiny random model with a tokenizer, as a folder that the server can serve."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from pipelineserve_engine.text.assembly import TextAssembler
from pipelineserve_engine.text.tokenizer import ChatMessage, HuggingFaceCodec, load_codec
from small_tokenizers import CHAT_TEMPLATE, LINES
from tiny_models import VOCABULARY_SIZE, TinyModel, save_tiny_model

CONTEXT_TOKENS = 2048
END_OF_TURN = "<|end|>"


@dataclass(frozen=True)
class ExpectedAnswer:
    """What greedy decoding gives: the text that a client sees, and how it ends."""

    text: str
    output_tokens: int
    finish_reason: str


@dataclass(frozen=True)
class ServedModel:
    """A folder to serve, and transformers' own run of it as the reference."""

    model: TinyModel

    @property
    def folder(self) -> Path:
        """Holds config.json, weights, tokenizer and chat template."""
        return self.model.folder

    @cached_property
    def codec(self) -> HuggingFaceCodec:
        """The tokenizer as the server loads it."""
        return load_codec(self.folder)

    def chat_prompt(self, content: str) -> tuple[int, ...]:
        """Token ids of a conversation with one turn."""
        return self.codec.encode_chat([ChatMessage("user", content)])

    def greedy(
        self, prompt: Sequence[int], num_tokens: int, *, continues_text: bool = False
    ) -> ExpectedAnswer:
        """The reference's answer; a completion's text continues that of its prompt."""
        output = self.model.greedy(prompt, num_tokens)
        assembler = TextAssembler(self.codec, (), prompt if continues_text else ())
        text = ""
        for index, token_id in enumerate(output):
            if token_id in self.codec.stop_token_ids:
                return ExpectedAnswer(text + assembler.flush(), index, "stop")
            text += assembler.push(token_id)
        return ExpectedAnswer(text + assembler.flush(), num_tokens, "length")


def save_served_model(
    folder: Path, *, is_tied: bool = True, head_size: int | None = None
) -> ServedModel:
    """Make model and tokenizer; its context is long enough for answers that last seconds."""
    model = save_tiny_model(folder, is_tied=is_tied, head_size=head_size)
    config_path = folder / "config.json"
    config = json.loads(config_path.read_text())
    config_path.write_text(json.dumps({**config, "max_position_embeddings": CONTEXT_TOKENS}))
    a_small_tokenizer().save_pretrained(folder)
    return ServedModel(model)


def a_small_tokenizer() -> Any:
    """Byte-level BPE with exactly the tiny models' vocabulary."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|turn|>", END_OF_TURN],
        show_progress=False,
    )
    backend.train_from_iterator(LINES * 4, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.add_special_tokens({"eos_token": END_OF_TURN})
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
