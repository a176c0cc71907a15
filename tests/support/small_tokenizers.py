"""Small tokenizers of the two families, made in milliseconds and never downloaded."""

from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

LINES = [
    "The quick brown fox jumps over the lazy dog. It's 10 o'clock!",
    "素早い茶色の狐 と 怠け者の犬、你好世界。",
    "naïve café e\u0301 a\u0308 😀👩‍👩‍👧 ₂ Ελληνικά עברית",
]
CHAT_TEMPLATE = (
    "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role') }}{% endif %}"
    "<|turn|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


def a_byte_level_tokenizer(chat_template: str | None = CHAT_TEMPLATE) -> Any:
    """Byte-level BPE, as of Llama 3, Qwen and SmolLM2; every byte is a token."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|turn|>", "<|end|>", "<|reserved|>"],
        show_progress=False,
    )
    backend.train_from_iterator(LINES * 4, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.add_special_tokens({"eos_token": "<|end|>"})
    tokenizer.add_tokens([AddedToken("<think>", special=False)])
    tokenizer.chat_template = chat_template
    return tokenizer


def a_sentencepiece_tokenizer() -> Any:
    """Word starts marked with U+2581 and byte fallback, as of Llama 2."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["\u2581", *"abcdehlort.!", "he", "ll", "\u2581he", "llo", "\u2581hello", "你"]
    merges = [("h", "e"), ("l", "l"), ("\u2581", "he"), ("ll", "o"), ("\u2581he", "llo")]
    backend = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=merges,
            byte_fallback=True,
        )
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>"})
    return tokenizer
