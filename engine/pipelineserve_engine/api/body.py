"""A request's body: bounded while it is read, then a type or one error that names the fields."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelineserve_engine.api.errors import ApiError, ClientGoneError

BodyT = TypeVar("BodyT", bound=BaseModel)
MOST_FAULTS_SHOWN = 5
LONGEST_VALUE_SHOWN = 40


class BodyLimit:
    """ASGI middleware: a body beyond the bound is refused before it is read to its end."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting what it carries."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = _announced_bytes(scope)
        if announced > self._max_body_bytes:
            await self._refusal(announced).response()(scope, receive, send)
            return
        received = 0

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_body_bytes:
                raise self._refusal(received)
            return message

        await self._app(scope, receive_counted, send)

    def _refusal(self, num_bytes: int) -> ApiError:
        return ApiError(
            413,
            f"The body has {num_bytes} bytes or more and at most {self._max_body_bytes} are "
            "accepted; send a shorter prompt or fewer prompts at once.",
            code="body_too_large",
        )


async def read_body(request: Request, body_type: type[BodyT]) -> BodyT:
    """Parse the body.

    Raises:
        ApiError: 400; it is no JSON, or does not fit the type. `param` is the first faulty field.
        ClientGoneError: the client left before it had sent all of it.
    """
    try:
        content = await request.body()
    except ClientDisconnect as gone:
        raise ClientGoneError("the client left while sending its request") from gone
    try:
        return body_type.model_validate_json(content)
    except ValidationError as invalid:
        raise _as_bad_request(invalid) from None


def _announced_bytes(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _as_bad_request(invalid: ValidationError) -> ApiError:
    faults = invalid.errors(include_url=False)
    lines = [_describe(fault) for fault in faults[:MOST_FAULTS_SHOWN]]
    if len(faults) > MOST_FAULTS_SHOWN:
        lines.append(f"and {len(faults) - MOST_FAULTS_SHOWN} more faults")
    return ApiError(400, "; ".join(lines), param=_path(faults[0]["loc"]) or None)


def _describe(fault: Mapping[str, Any]) -> str:
    path, expected = _path(fault["loc"]), fault["msg"]
    match fault["type"]:
        case "extra_forbidden":
            return f"Unrecognized request argument supplied: {path}"
        case "missing":
            return f"Missing required parameter: '{path}'"
        case "json_invalid":
            return f"The body is not valid JSON ({expected}); send one JSON object"
        case _:
            subject = f"'{path}'" if path else "The body"
            return f"{subject}: {expected}, got {_show(fault['input'])}"


def _path(loc: tuple[int | str, ...]) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return path.removeprefix(".")


def _show(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)[:LONGEST_VALUE_SHOWN]
        case str():
            rest = "..." if len(value) > LONGEST_VALUE_SHOWN else ""
            return f'the string "{value[:LONGEST_VALUE_SHOWN]}{rest}"'
        case list() | tuple():
            return f"a list of {len(value)}"
        case _:
            return "an object"
