"""An OpenAI endpoint whose latencies are known: what a load generator reports can be checked.

Token number i of an answer is written `ttft + i * gap` after its request's head was read. A piece
of text is one token of the byte-level tokenizer in `bench/load_generators.py`.

    python bench/fixed_endpoint.py --port 8100 --ttft-ms 50 --gap-ms 10
"""

import argparse
import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

MODEL = "fixed"
_PIECE = "a"
_HEAD = "HTTP/1.1 {status} OK\r\ncontent-type: {kind}\r\n{framing}\r\n\r\n"
# Of the event loop's timers, which wake up to a millisecond late.
_LOOKING_S = 0.0015


@dataclass(frozen=True)
class Latencies:
    """What every answer takes."""

    ttft_s: float
    gap_s: float


async def serve(port: int, latencies: Latencies) -> asyncio.Server:
    """Start listening on loopback; port 0 takes a free one."""

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _answer_all(reader, writer, latencies)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed the connection, as it may
        finally:
            writer.close()

    return await asyncio.start_server(on_connection, "127.0.0.1", port, limit=2**24)


async def _answer_all(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, latencies: Latencies
) -> None:
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        begin_s = time.monotonic()
        request_line, *lines = head.split("\r\n")
        fields = {
            name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
        }
        content = await reader.readexactly(int(fields.get("content-length", "0")))
        method, path, _ = request_line.split(" ")
        if method == "POST" and "completions" in path:
            await _generate(json.loads(content), "chat" in path, writer, begin_s, latencies)
        else:
            models = {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
            _write_whole(writer, models, 200 if path in {"/v1/models", "/health"} else 404)
        await writer.drain()


async def _generate(
    body: Any, is_chat: bool, writer: asyncio.StreamWriter, begin_s: float, latencies: Latencies
) -> None:
    num_tokens = body.get("max_completion_tokens") or body.get("max_tokens") or 16
    usage = _usage(body, num_tokens)
    is_stream = bool(body.get("stream"))
    if is_stream:
        writer.write(_head(200, "text/event-stream", "transfer-encoding: chunked"))
    for index in range(num_tokens):
        await _sleep_until(begin_s + latencies.ttft_s + index * latencies.gap_s)
        if is_stream:
            finish = "length" if index == num_tokens - 1 else None
            _write_event(writer, json.dumps(_fields(is_chat, [_choice(is_chat, _PIECE, finish)])))
    if not is_stream:
        choice = _choice(is_chat, _PIECE * num_tokens, "length", is_whole=True)
        _write_whole(writer, {**_fields(is_chat, [choice]), "usage": usage}, 200)
        return
    if (body.get("stream_options") or {}).get("include_usage"):
        _write_event(writer, json.dumps({**_fields(is_chat, []), "usage": usage}))
    _write_event(writer, "[DONE]")
    writer.write(b"0\r\n\r\n")


def _usage(body: Any, num_tokens: int) -> dict[str, int]:
    prompt = body.get("prompt")
    if prompt is None:
        prompt = "".join(str(message.get("content")) for message in body.get("messages", []))
    return {
        "prompt_tokens": len(prompt),
        "completion_tokens": num_tokens,
        "total_tokens": len(prompt) + num_tokens,
    }


def _fields(is_chat: bool, choices: list[Any]) -> dict[str, Any]:
    kind = "chat.completion.chunk" if is_chat else "text_completion"
    return {"id": "fixed", "object": kind, "created": 0, "model": MODEL, "choices": choices}


def _choice(is_chat: bool, text: str, finish: str | None, is_whole: bool = False) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if is_chat:
        choice["message" if is_whole else "delta"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    return choice


def _head(status: int, kind: str, framing: str) -> bytes:
    return _HEAD.format(status=status, kind=kind, framing=framing).encode()


def _write_whole(writer: asyncio.StreamWriter, content: Any, status: int) -> None:
    data = json.dumps(content).encode()
    writer.write(_head(status, "application/json", f"content-length: {len(data)}") + data)


def _write_event(writer: asyncio.StreamWriter, data: str) -> None:
    event = f"data: {data}\n\n".encode()
    writer.write(b"%x\r\n%s\r\n" % (len(event), event))


async def _sleep_until(due_s: float) -> None:
    await asyncio.sleep(max(0.0, due_s - time.monotonic() - _LOOKING_S))
    while time.monotonic() < due_s:  # noqa: ASYNC110 - no event happens at a time
        await asyncio.sleep(0)


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-ms", type=float, default=50.0)
    parser.add_argument("--gap-ms", type=float, default=10.0)
    options = parser.parse_args()
    server = await serve(options.port, Latencies(options.ttft_ms / 1000, options.gap_ms / 1000))
    print(f"serving {MODEL} on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
