"""Kubernetes' texts for points in time, and seconds since 1970."""

import datetime as dt

from pipelineserve_operator.render import JsonObject


def text_of(unix_s: float) -> str:
    """To the second, as conditions have it."""
    moment = dt.datetime.fromtimestamp(int(unix_s), tz=dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def text_with_microseconds(unix_s: float) -> str:
    """As leases have it."""
    moment = dt.datetime.fromtimestamp(unix_s, tz=dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_of(text: str) -> float:
    """Seconds since 1970.

    Raises:
        ValueError: it is no time.
    """
    return dt.datetime.fromisoformat(text).timestamp()


def seconds_at(document: JsonObject, name: str) -> float | None:
    """The time in a field; None if it is not there."""
    text = document.get(name)
    return None if not text else seconds_of(text)
