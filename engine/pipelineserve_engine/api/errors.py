"""Every error answer of the API: one shape (OpenAI's), one mapping from what went wrong."""

import logging
import math
import traceback
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelineserve.errors import (
    EngineUnavailableError,
    InvalidInputError,
    PipelineServeError,
    QueueFullError,
)

logger = logging.getLogger(__name__)

ENGINE_RETRY_AFTER_S = 5
LONGEST_RETRY_AFTER_S = 3600
INVALID_REQUEST = "invalid_request_error"


class ApiError(PipelineServeError):
    """An answer other than 200: the status and the fields of OpenAI's error object."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type_: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type_
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        """The JSON of the answer, and of the event that ends a broken stream."""
        fields = {"type": self.type, "param": self.param, "code": self.code}
        return {"error": {"message": self.message, **fields}}

    def response(self) -> Response:
        """The whole answer, with Retry-After where trying again makes sense."""
        headers = {}
        if self.retry_after_s is not None:
            wait_s = min(max(self.retry_after_s, 1), LONGEST_RETRY_AFTER_S)
            headers["retry-after"] = str(math.ceil(wait_s))
        return JSONResponse(self.body(), self.status, headers)


class ClientGoneError(PipelineServeError):
    """The client closed its connection, so nobody is left to answer."""


def as_api_error(fault: Exception) -> ApiError:
    """What the client is told about any exception; one that nobody expected is also logged."""
    match fault:
        case ApiError():
            return fault
        case QueueFullError():
            return ApiError(
                429,
                str(fault),
                type_="rate_limit_exceeded",
                code="queue_full",
                retry_after_s=fault.retry_after_s,
            )
        case EngineUnavailableError():
            return ApiError(
                503,
                str(fault),
                type_="server_error",
                code="engine_unavailable",
                retry_after_s=ENGINE_RETRY_AFTER_S,
            )
        case InvalidInputError():
            first_field = fault.faults[0].field if fault.faults else ""
            return ApiError(400, str(fault), param=first_field or None)
        case HTTPException():
            return ApiError(fault.status_code, fault.detail)
        case _:
            return _internal_error(fault)


def install_error_handlers(app: FastAPI) -> None:
    """Give every error OpenAI's shape: those of routes, of routing, and those nobody expected."""
    app.add_exception_handler(PipelineServeError, _answer)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_middleware(_UnexpectedErrors)


class _UnexpectedErrors:
    """ASGI middleware for what no handler knows.

    The framework's own would let the server log the exception with its message.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def send_noticed(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_noticed)
        except Exception as fault:
            if has_begun:
                raise
            await as_api_error(fault).response()(scope, receive, send)


def _internal_error(fault: Exception) -> ApiError:
    # Only the place and the class: an exception's own message may quote a prompt.
    place = "".join(traceback.format_tb(fault.__traceback__))
    logger.error("request failed unexpectedly: %s\n%s", type(fault).__name__, place)
    return ApiError(
        500,
        f"The server failed on this request ({type(fault).__name__}) through no fault of yours; "
        "try again, and report it with the server's log if it happens again.",
        type_="server_error",
        code="internal_error",
    )


def _answer(_: Request, fault: Exception) -> Response:
    if isinstance(fault, ClientGoneError):
        return Response(status_code=499)
    return as_api_error(fault).response()


def _answer_http(request: Request, fault: Exception) -> Response:
    """No such route, or not with this method; the router's own words say too little."""
    if not isinstance(fault, HTTPException):
        raise TypeError("registered for HTTPException only") from fault
    asked = f"{request.method} {request.url.path}"
    known = "POST /v1/chat/completions, POST /v1/completions and GET /v1/models"
    match fault.status_code:
        case 404:
            message = f"There is no {asked}; this server has {known}."
        case 405:
            message = f"{asked} is not allowed; this server has {known}."
        case _:
            message = fault.detail
    response = ApiError(fault.status_code, message).response()
    response.headers.update(fault.headers or {})
    return response
