"""A request's life in the scheduler."""

from collections.abc import Iterable
from enum import Enum


class FinishReason(Enum):
    """Why a request ended; every accepted request ends with exactly one."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"
