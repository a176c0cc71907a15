"""A controller's state over HTTP, as a type or as one error."""

import httpx
from pydantic import TypeAdapter, ValidationError

from pipelineserve.errors import ControllerUnavailableError, Fault, InvalidInputError
from pipelineserve_controller.state import SidecarState

_TIMEOUT_S = 5.0
_STATE: TypeAdapter[SidecarState] = TypeAdapter(SidecarState)


def fetch_state(url: str) -> bytes:
    """The state as JSON.

    Raises:
        ControllerUnavailableError: nothing answers there, or it is no controller.
    """
    address = f"{url.rstrip('/')}/api/state"
    try:
        answer = httpx.get(address, timeout=_TIMEOUT_S)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        fault = Fault("", f'expected an address like http://127.0.0.1:8090, got "{url}"')
        raise InvalidInputError("URL", [fault]) from error
    except httpx.HTTPError as error:
        raise ControllerUnavailableError(
            f"no controller answers at {url} ({error or type(error).__name__}); `pserve local up` "
            "prints the address of its page"
        ) from error
    if not answer.is_success:
        raise ControllerUnavailableError(
            f"{address} answered {answer.status_code}, expected 200; give the address of the live "
            "page, not that of the API"
        )
    return answer.content


def parse_state(content: bytes, url: str) -> SidecarState:
    """The state as a type; fields that only a newer controller has are left out.

    Raises:
        InvalidInputError: it is something else.
    """
    try:
        return _STATE.validate_json(content)
    except ValidationError as error:
        faults = [
            Fault(".".join(map(str, details["loc"])), details["msg"])
            for details in error.errors(include_url=False, include_input=False)
        ]
        raise InvalidInputError(f"the answer of {url} as a controller's state", faults) from error
