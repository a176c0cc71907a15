"""Log lines on stderr: JSON for machines, words for people; the same fields in both."""

import json
import logging
import sys
from typing import Any

from pipelineserve_operator.moments import text_with_microseconds
from pipelineserve_operator.settings import LogFormat

# What every record has of its own; the rest was given with `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        line: dict[str, Any] = {
            "time": text_with_microseconds(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """Time, level, message, and the fields behind it."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line, and a trace if there is one."""
        line = super().format(record)
        told = " ".join(f"{name}={value}" for name, value in fields_of(record).items())
        head, newline, trace = line.partition("\n")
        return f"{head} {told}".rstrip() + newline + trace


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What was given beside the message."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def start_logging(log_format: LogFormat) -> None:
    """Write to stderr from now on; Kopf's own words only of errors."""
    match log_format:
        case LogFormat.JSON:
            formatter: logging.Formatter = JsonFormatter()
        case LogFormat.TEXT:
            formatter = TextFormatter("%(asctime)s %(levelname)s %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # Beneath that it says that it minds no signals, which is as it should be.
    logging.getLogger("kopf").setLevel(logging.ERROR)
