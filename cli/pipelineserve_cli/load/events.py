"""An answer's stream: bytes to server-sent events to what each of them tells."""

import json
from dataclasses import dataclass
from typing import Any

_MOST_BUFFERED_BYTES = 8 * 1024 * 1024
_DONE = "[DONE]"


class MalformedStreamError(ValueError):
    """The server sent what is no OpenAI stream."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts by the server."""

    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event adds; `text` is empty in events that only frame the answer."""

    text: str = ""
    finish_reason: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class StreamFault:
    """The server's own report that the answer breaks off."""

    message: str


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The server says that nothing follows."""


Event = Piece | StreamFault | StreamEnd


class EventDecoder:
    """Bytes, cut anywhere, to the data of whole events; an event cut off by the end is dropped."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, received: bytes) -> list[str]:
        """The events that these bytes complete.

        Raises:
            MalformedStreamError: an event without end, or no UTF-8.
        """
        *lines, self._rest = (self._rest + received).split(b"\n")
        if len(self._rest) > _MOST_BUFFERED_BYTES:
            raise MalformedStreamError("one line of the stream is longer than 8 MiB")
        complete = []
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                complete.append(_text_of(b"\n".join(self._data)))
                self._data = []
            # Comments and other fields carry nothing of an answer.
        return complete


def _text_of(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedStreamError(f"an event is not UTF-8: {error}") from None


def read_event(data: str) -> Event:
    """What one event says.

    Raises:
        MalformedStreamError: it is neither `[DONE]` nor a JSON object of OpenAI's shape.
    """
    if data.strip() == _DONE:
        return StreamEnd()
    try:
        fields = json.loads(data)
    except ValueError:
        raise MalformedStreamError(f"an event is not JSON: {data[:80]!r}") from None
    match fields:
        case {"error": {"message": message}} | {"error": str(message)}:
            return StreamFault(str(message))
        case {"choices": list(choices)}:
            return Piece(
                "".join(_text_in(choice) for choice in choices),
                next((reason for reason in map(_finish_reason, choices) if reason), None),
                _usage(fields.get("usage")),
            )
        case _:
            raise MalformedStreamError(f'an event has no "choices": {data[:80]!r}')


def _text_in(choice: Any) -> str:
    """Of a completion or chat chunk; a reasoning model's thoughts are tokens as well."""
    match choice:
        case {"delta": {**delta}}:
            texts = (delta.get("reasoning_content"), delta.get("content"))
            return "".join(text for text in texts if isinstance(text, str))
        case {"text": str(text)}:
            return text
        case _:
            return ""


def _finish_reason(choice: Any) -> str | None:
    match choice:
        case {"finish_reason": str(reason)}:
            return reason
        case _:
            return None


def _usage(fields: Any) -> Usage | None:
    match fields:
        case {"prompt_tokens": int(prompt_tokens), "completion_tokens": int(output_tokens)}:
            return Usage(prompt_tokens, output_tokens)
        case _:
            return None
