"""A server with real stages: what shapes, scores and multiplies answers, and who may ask."""

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
import torch

from api_server import RunningApi
from engine_server import NAME, EngineServer
from served_model import ServedModel
from small_tokenizers import LINES

pytestmark = pytest.mark.anyio

KEY = "a-key-of-this-server"
PROMPT = LINES[0] * 2
NUM_TOKENS = 24


@pytest.fixture(scope="module")
def key_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys"
    write_key(path, KEY)
    return path


def write_key(path: Path, key: str) -> None:
    path.write_text(f"{key}\n")


@pytest.fixture(scope="module")
def server(served_model: ServedModel, key_path: Path) -> Iterator[EngineServer]:
    """Two stages, small chunks, a key; nothing that is secret or somebody's may be in its log."""
    flags = ("--stages=2", "--static-chunk-tokens=24", f"--api-key-file={key_path}")
    with EngineServer(served_model.folder, *flags) as running:
        yield running.wait_serving()
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        assert "Traceback" not in running.log
        assert KEY not in running.log
        assert LINES[0] not in running.log


@asynccontextmanager
async def client_of(server: EngineServer) -> AsyncIterator[openai.AsyncOpenAI]:
    api = RunningApi(server.port)
    try:
        yield api.client.with_options(api_key=KEY)
    finally:
        await api.close()


async def completed(client: openai.AsyncOpenAI, **fields: Any) -> list[str]:
    """Texts of all choices."""
    extensions = {
        name: fields.pop(name) for name in ("repetition_penalty", "ignore_eos") if name in fields
    }
    whole = await client.completions.create(
        **{"model": NAME, "prompt": PROMPT, "max_tokens": NUM_TOKENS, **fields},
        extra_body=extensions,
    )
    return [choice.text for choice in whole.choices]


async def test_a_penalty_gives_the_text_that_transformers_generates(
    server: EngineServer, served_model: ServedModel
) -> None:
    prompt = list(served_model.codec.encode_prompt(PROMPT))
    output = served_model.model.reference.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64),
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
        repetition_penalty=3.0,
        pad_token_id=0,
        eos_token_id=None,
    )[0, len(prompt) :].tolist()
    async with client_of(server) as client:
        asked = {"temperature": 0, "repetition_penalty": 3.0, "ignore_eos": True}
        texts = await completed(client, **asked)
        plain = await completed(client, temperature=0, ignore_eos=True)
    # Incomplete characters look different in the middle of a text; its letters do not.
    assert letters(texts[0]) == letters(served_model.codec.decode(output))
    assert texts != plain


def letters(text: str) -> str:
    return "".join(character for character in text if character.isascii())


async def test_a_bias_forces_its_token_all_the_way(
    server: EngineServer, served_model: ServedModel
) -> None:
    (letter,) = served_model.codec.encode_prompt("q")
    async with client_of(server) as client:
        texts = await completed(client, temperature=1, logit_bias={str(letter): 100})
    assert texts == ["q" * NUM_TOKENS]


async def test_samples_are_what_their_seeds_give_alone(server: EngineServer) -> None:
    async with client_of(server) as client:
        together = await completed(client, n=3, seed=50, temperature=1.5, frequency_penalty=0.5)
        alone = [
            (await completed(client, seed=seed, temperature=1.5, frequency_penalty=0.5))[0]
            for seed in (50, 51, 52)
        ]
    assert together == alone
    assert len(set(together)) == 3


async def test_logprobs_are_transformers_own(
    server: EngineServer, served_model: ServedModel
) -> None:
    messages: Any = [{"role": "user", "content": PROMPT}]
    async with client_of(server) as client:
        whole = await client.chat.completions.create(
            model=NAME, messages=messages, max_tokens=8, temperature=0, logprobs=True,
            top_logprobs=3, extra_body={"ignore_eos": True},
        )  # fmt: skip
    prompt = served_model.chat_prompt(PROMPT)
    output = served_model.model.greedy(prompt, 8)
    with torch.no_grad():
        rows = served_model.model.reference(torch.tensor([[*prompt, *output]])).logits[0]
    reference = torch.log_softmax(rows, -1)[len(prompt) - 1 : -1]
    logprobs = whole.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    for entry, token_id, row in zip(logprobs.content, output, reference, strict=True):
        assert bytes(entry.bytes or ()) == served_model.codec.token_bytes(token_id)
        assert entry.logprob == pytest.approx(float(row[token_id]), abs=1e-4)
        top = [likely.logprob for likely in entry.top_logprobs]
        assert top == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)


async def test_only_bearers_of_a_key_are_served_and_a_rotated_key_counts_at_once(
    server: EngineServer, key_path: Path
) -> None:
    async with client_of(server) as client:
        await completed(client, max_tokens=1)
        write_key(key_path, "the-next-key-of-it")
        with pytest.raises(openai.AuthenticationError) as refused:
            await completed(client, max_tokens=1)
        assert refused.value.code == "invalid_api_key"
        await completed(client.with_options(api_key="the-next-key-of-it"), max_tokens=1)
        write_key(key_path, KEY)
        await completed(client, max_tokens=1)


def test_an_empty_key_file_stops_the_start(served_model: ServedModel, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.touch()
    with EngineServer(served_model.folder, f"--api-key-file={path}") as server:
        assert server.wait() == 1
        assert "api_key_file: the file holds no key; give the path of a readable" in server.log
        assert server.stage_pids == ()
