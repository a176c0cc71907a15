"""Errors by what the caller can do about them.

Every message says what was got, what was expected and what to do next.
"""

from collections.abc import Iterable
from dataclasses import dataclass


class PipelineServeError(Exception):
    """Base of every error that this product raises on purpose."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with an input: the path of the field, and what to do about it."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class InvalidInputError(PipelineServeError):
    """The caller must change its input; holds every fault found, not only the first."""

    def __init__(self, subject: str, faults: Iterable[Fault]) -> None:
        self.subject = subject
        self.faults = tuple(faults)
        lines = "\n".join(f"  {fault}" for fault in self.faults)
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        super().__init__(f"{subject} is not valid ({count}):\n{lines}")


class ModelUnavailableError(PipelineServeError):
    """The model's files cannot be had or used; the message says why and what to do."""


class EngineUnavailableError(PipelineServeError):
    """The engine cannot serve now; the same request may succeed later or elsewhere."""


class ControllerUnavailableError(PipelineServeError):
    """No controller answers, or it cannot run; an engine serves on without it."""


class StagesFailedError(EngineUnavailableError):
    """A stage has ended, stands still or is stuck; the group of stages can be started anew."""


class QueueFullError(PipelineServeError):
    """The waiting queue is at its bound; try again after `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
