"""One streamed request at a time over kept connections, and every way in which it can fail."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_cli.load.events import (
    EventDecoder,
    MalformedStreamError,
    Piece,
    StreamEnd,
    StreamFault,
    Usage,
    read_event,
)
from pipelineserve_cli.load.plan import PlannedRequest
from pipelineserve_cli.load.records import Failure, FailureKind, RequestRecord

MODELS_PATH = "/v1/models"
# Below the 5 s after which common servers close an idle connection, so that none is used just then.
_KEEP_ALIVE_S = 4.0
_CHECK_TIMEOUT_S = 10.0
_LONGEST_RETRY_AFTER_S = 60.0
_LONGEST_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How requests are sent.

    Attributes:
        url: of the server, without a path.
        timeout_s: the most that one request may take, retries included.
        num_retries: how often an answer of 429 is followed by another try after its Retry-After.
        keeps_text: whether records hold the answers.
    """

    url: str
    path: str
    api_key: str | None = None
    timeout_s: float = 300.0
    max_connections: int = 512
    num_retries: int = 0
    keeps_text: bool = False


class Answer:
    """What has come of one request so far; times are of the client's clock."""

    def __init__(self) -> None:
        self.sent_s: float | None = None
        self.chunk_times_s: list[float] = []
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.has_end = False
        self.num_retries = 0
        self.texts: list[str] = []

    def record(
        self, planned: PlannedRequest, failure: Failure | None, begin_s: float, now_s: float
    ) -> RequestRecord:
        """What became of it, in times since `begin_s`."""
        usage = self.usage
        return RequestRecord(
            index=planned.index,
            is_warm_up=planned.is_warm_up,
            planned_s=planned.at_s,
            sent_s=(now_s if self.sent_s is None else self.sent_s) - begin_s,
            ended_s=now_s - begin_s,
            chunk_times_s=tuple(time_s - begin_s for time_s in self.chunk_times_s),
            prompt_tokens=usage.prompt_tokens if usage else planned.prompt_tokens or 0,
            output_tokens=usage.output_tokens if usage else len(self.chunk_times_s),
            has_usage=usage is not None,
            finish_reason=self.finish_reason,
            failure=failure,
            num_retries=self.num_retries,
            text="".join(self.texts),
        )


class LoadClient:
    """Sends bodies and reads their streams; use it as an async context."""

    def __init__(self, settings: ClientSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        limit = settings.max_connections
        # The transport alone: redirects, cookies and authentication of a whole httpx client take a
        # third of a millisecond per request, which would be measured as the server's.
        self._http = httpx.AsyncHTTPTransport(
            limits=httpx.Limits(
                max_connections=limit,
                max_keepalive_connections=limit,
                keepalive_expiry=_KEEP_ALIVE_S,
            ),
            trust_env=False,
        )
        # Waiting for a connection must count as the generator's lag, not as the server's time, so
        # it happens here and not in httpx.
        self._connections = asyncio.Semaphore(limit)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def warm_up(self) -> None:
        """Load what the first connection loads, so that the first request does not pay for it."""
        # Whatever is wrong with the server becomes the record of a request.
        with suppress(httpx.HTTPError, TimeoutError):
            async with asyncio.timeout(_CHECK_TIMEOUT_S):
                request = self._request("GET", MODELS_PATH)
                await (await self._http.handle_async_request(request)).aread()

    def prepare(self, body: bytes) -> httpx.Request:
        """A request to send later; made before its time, it costs nothing at it."""
        return self._request("POST", self._settings.path, body)

    async def send(self, request: httpx.Request, answer: Answer) -> Failure | None:
        """Send one request and read its stream into `answer`; None if the answer is whole."""
        async with self._connections:
            answer.sent_s = self._clock()
            try:
                async with asyncio.timeout(self._settings.timeout_s):
                    return await self._try_until_accepted(request, answer)
            except TimeoutError:
                text = f"no whole answer within {self._settings.timeout_s:g} s"
                return Failure(FailureKind.TIMEOUT, text)
            except MalformedStreamError as error:
                return Failure(FailureKind.MALFORMED, str(error))
            except httpx.HTTPError as error:
                return _transport_failure(error, answer)

    async def _try_until_accepted(self, request: httpx.Request, answer: Answer) -> Failure | None:
        while True:
            failure = await self._try_once(request, answer)
            if failure is None or failure.kind is not FailureKind.THROTTLED:
                return failure
            if answer.num_retries == self._settings.num_retries:
                return failure
            answer.num_retries += 1
            await asyncio.sleep(min(failure.retry_after_s or 1.0, _LONGEST_RETRY_AFTER_S))

    async def _try_once(self, request: httpx.Request, answer: Answer) -> Failure | None:
        response = await self._http.handle_async_request(request)
        async with aclosing(response):
            if response.status_code != httpx.codes.OK:
                await response.aread()
                return _status_failure(response)
            decoder = EventDecoder()
            async for received in response.aiter_raw():
                now_s = self._clock()
                for data in decoder.feed(received):
                    fault = self._take(data, now_s, answer)
                    if fault is not None:
                        return fault
        return _missing_part(answer)

    def _take(self, data: str, now_s: float, answer: Answer) -> Failure | None:
        match read_event(data):
            case StreamFault(message):
                return Failure(FailureKind.STREAM_ERROR, message[:_LONGEST_MESSAGE])
            case StreamEnd():
                answer.has_end = True
            case Piece(text, finish_reason, usage):
                if text:
                    answer.chunk_times_s.append(now_s)
                if self._settings.keeps_text:
                    answer.texts.append(text)
                answer.finish_reason = finish_reason or answer.finish_reason
                answer.usage = usage or answer.usage
        return None

    def _request(self, method: str, path: str, body: bytes | None = None) -> httpx.Request:
        headers = _headers(self._settings.api_key)
        return httpx.Request(method, self._settings.url + path, headers=headers, content=body)


def find_models(url: str, api_key: str | None) -> tuple[str, ...]:
    """Names of the models that the server offers; none if it does not list them.

    Raises:
        EngineUnavailableError: nothing answers there, or not to this key.
    """
    try:
        response = httpx.get(
            url + MODELS_PATH,
            headers=_headers(api_key),
            timeout=_CHECK_TIMEOUT_S,
            trust_env=False,
        )
    except httpx.HTTPError as error:
        raise EngineUnavailableError(
            f"nothing answers at {url} ({str(error) or type(error).__name__}); start the server, "
            "e.g. with pserve local up, or name another with --url"
        ) from error
    if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise EngineUnavailableError(
            f"{url} answers {response.status_code}; give the right key in OPENAI_API_KEY or "
            "with --api-key-file"
        )
    return _model_names(response)


def _model_names(response: httpx.Response) -> tuple[str, ...]:
    try:
        fields = response.json()
    except ValueError:
        return ()  # a server without a list; the caller asks the user for the name
    match fields:
        case {"data": list(models)}:
            return tuple(str(model["id"]) for model in models if _has_id(model))
        case _:
            return ()


def _has_id(model: Any) -> bool:
    return isinstance(model, dict) and "id" in model


def _headers(api_key: str | None) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept-encoding": "identity"}
    return headers if api_key is None else {**headers, "authorization": f"Bearer {api_key}"}


def _missing_part(answer: Answer) -> Failure | None:
    if not answer.has_end and answer.finish_reason is None:
        num_chunks = len(answer.chunk_times_s)
        text = f"the stream ended after {num_chunks} chunks without a reason or [DONE]"
        return Failure(FailureKind.TRUNCATED, text)
    if not answer.chunk_times_s and (answer.usage is None or answer.usage.output_tokens == 0):
        return Failure(FailureKind.EMPTY, "the answer has no token")
    return None


def _status_failure(response: httpx.Response) -> Failure:
    status = response.status_code
    if status == httpx.codes.TOO_MANY_REQUESTS:
        kind = FailureKind.THROTTLED
    elif response.is_client_error:
        kind = FailureKind.REFUSED
    elif response.is_server_error:
        kind = FailureKind.SERVER_ERROR
    else:
        kind = FailureKind.MALFORMED
    return Failure(kind, _message_of(response), status, _retry_after_s(response))


def _message_of(response: httpx.Response) -> str:
    try:
        match response.json():
            case {"error": {"message": str(message)}} | {"message": str(message)}:
                return message[:_LONGEST_MESSAGE]
            case _:
                pass  # not OpenAI's shape: its text says more than nothing
    except ValueError:
        pass  # not JSON: the same
    return response.text[:_LONGEST_MESSAGE]


def _retry_after_s(response: httpx.Response) -> float | None:
    try:
        return max(0.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):
        return None  # absent, or a date, which only matters to clients that try again much later


def _transport_failure(error: httpx.HTTPError, answer: Answer) -> Failure:
    message = f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE]
    if isinstance(error, httpx.ConnectError):
        return Failure(FailureKind.CONNECT, message)
    if answer.chunk_times_s:
        return Failure(FailureKind.TRUNCATED, message)
    return Failure(FailureKind.LOST, message)
