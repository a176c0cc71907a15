"""Answers to yes-or-no questions that may have none yet."""

from enum import Enum


class Answer(Enum):
    """Yes, no, or too little is known: for example for want of traffic."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, is_so: bool | None) -> "Answer":
        """The answer to a condition; None is unknown."""
        if is_so is None:
            return cls.UNKNOWN
        return cls.YES if is_so else cls.NO
