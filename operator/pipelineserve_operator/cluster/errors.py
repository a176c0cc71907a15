"""How requests to the API server fail, by what can be done about it."""

from pipelineserve.errors import PipelineServeError

_NO_ANSWER = 0


class ApiError(PipelineServeError):
    """The API server refused a request, or did not answer.

    Attributes:
        what: the request in words.
        status: HTTP's; 0 when no answer came.
        message: the server's own words.
        retry_after_s: what the server asked for, if it did.
    """

    def __init__(
        self, what: str, status: int, message: str, retry_after_s: float | None = None
    ) -> None:
        self.what = what
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s
        got = "no answer" if status == _NO_ANSWER else str(status)
        super().__init__(f"{what}: expected success, got {got}: {message}")

    @property
    def is_not_found(self) -> bool:
        """The object is not there."""
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        """The object is not as it was thought to be, or is there already."""
        return self.status == 409

    @property
    def is_busy(self) -> bool:
        """The same request may succeed in a moment."""
        return self.status in {429, 500, 502, 503, 504}

    @property
    def is_invalid(self) -> bool:
        """The object as it would become contradicts itself, or changes what cannot be changed."""
        return self.status == 422

    @property
    def is_refusal(self) -> bool:
        """The same request will fail again until a person changes something."""
        return self.status in {400, 403, 405, 413, 422}


def no_answer(what: str, message: str) -> ApiError:
    """The API server could not be reached, or took too long."""
    return ApiError(what, _NO_ANSWER, message)


class NameTakenError(PipelineServeError):
    """An object of the name that we need is there and belongs to somebody else.

    Attributes:
        what: kind and name of the object.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"{what} is there and does not belong to this resource; "
            "delete or rename it, or give the resource another name"
        )
