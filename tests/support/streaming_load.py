"""Streams over HTTP that run as long as a test needs them, each of which must come out whole."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx

from engine_server import NAME, PATIENCE_S, EngineServer


@contextmanager
def streaming_load(
    server: EngineServer, num_streams: int = 2, num_tokens: int = 60
) -> Iterator[None]:
    """Keep so many streams open during the block; afterwards every answer must have been whole."""
    is_over = threading.Event()

    def keep_asking(stream: int) -> int:
        number = 0
        with httpx.Client(base_url=server.url, timeout=PATIENCE_S, trust_env=False) as client:
            while not is_over.is_set():
                number += 1
                stream_text(client, f"Stream {stream}, story {number}.", num_tokens)
        return number

    with ThreadPoolExecutor(num_streams) as threads:
        asking = [threads.submit(keep_asking, index) for index in range(num_streams)]
        try:
            yield
        finally:
            is_over.set()
        assert all(stream.result() > 0 for stream in asking)


def stream_text(client: httpx.Client, prompt: str, num_tokens: int) -> str:
    """Exactly so many tokens, greedy; fails if the answer is not whole."""
    body = {
        "model": NAME,
        "prompt": prompt,
        "max_tokens": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with client.stream("POST", "/v1/completions", json=body) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
        assert answer.status_code == httpx.codes.OK, lines
    assert lines[-1] == "[DONE]", lines[-1]
    events: list[dict[str, Any]] = [json.loads(line) for line in lines[:-1]]
    assert events[-1]["usage"]["completion_tokens"] == num_tokens
    return "".join(event["choices"][0]["text"] for event in events[:-1])
