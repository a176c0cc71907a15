"""The engine's Prometheus figures against what it tells in Watch; shown, never decided by.

Gauges may differ for a moment, since the two are read at different times, and counters by the
records that are on their way. So only what differs twice in a row is told, and for longer where an
engine writes its gauges now and then.
"""

import asyncio
import logging
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from prometheus_client.parser import text_string_to_metric_families

from pipelineserve import counterparts, metrics
from pipelineserve.policy.control.heard import Heard

logger = logging.getLogger(__name__)

PERIOD_S = 10.0
_TIMEOUT_S = 5.0
_MAX_BYTES = 1 << 24
_GAUGE_TOLERANCE = 2.0
_TOLERANCE_RATIO = 0.2
_COUNTED = ("stop", "length")
_FINISHED = metrics.REQUESTS.name
# What SGLang counts too: of those, the ones with a TPOT, so with two tokens or more.
_TIMED = f"{metrics.TPOT.name}_count"
_GAUGES = (metrics.REQUESTS_WAITING.name, metrics.REQUESTS_RUNNING.name, metrics.KV_USED.name)
_COMPARED = frozenset((*_GAUGES, _FINISHED, _TIMED))
_NUM_READINGS = 2


@dataclass(slots=True)
class Tally:
    """What Watch has told so far in this session.

    Attributes:
        counts: of requests that have finished.
        figures: how things stand.
    """

    counts: dict[str, int] = field(default_factory=lambda: {_FINISHED: 0, _TIMED: 0})
    figures: dict[str, float] = field(default_factory=dict)

    def add(self, heard: Heard) -> None:
        """Take in one turn."""
        finished = [r for r in heard.requests if r.ending.value in _COUNTED]
        self.counts[_FINISHED] += len(finished)
        self.counts[_TIMED] += sum(r.tpot_s is not None for r in finished)
        if heard.standing is not None:
            self.figures = {
                metrics.REQUESTS_WAITING.name: float(heard.standing.num_waiting),
                metrics.REQUESTS_RUNNING.name: float(heard.standing.num_running),
                metrics.KV_USED.name: 1.0 - heard.standing.kv_free_ratio,
            }


@dataclass(frozen=True, slots=True)
class Reading:
    """One page of metrics.

    Attributes:
        figures: those that are compared, by our names.
        age_s: how old its gauges may be.
    """

    figures: Mapping[str, float]
    age_s: float = 0.0


class CrossCheck:
    """Compares every few seconds.

    Args:
        url: of the engine's metrics; empty compares nothing.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = 0
        self._is_told = True
        self._tally = Tally()
        self._bases: dict[str, tuple[float, int]] = {}
        self._suspects: dict[str, int] = {}
        self.differences: tuple[str, ...] = ()

    def hear(self, heard: Heard) -> None:
        """Take in what Watch told in one turn; a new session counts anew."""
        epoch = heard.engine.epoch if heard.engine else 0
        if epoch != self._session:
            self._session, self._tally, self._bases = epoch, Tally(), {}
            self._suspects, self.differences = {}, ()
        # One that cannot be controlled tells nothing, which is no difference.
        self._is_told = heard.engine is None or not heard.engine.inactive_reason
        self._tally.add(heard)

    async def run(self) -> None:
        """Compare again and again, until cancelled."""
        while self._url:
            await asyncio.sleep(PERIOD_S)
            try:
                text = await asyncio.to_thread(_fetch, self._url)
                self.compare(reading_of(text))
            except (OSError, ValueError) as error:
                self.differences = (f"the engine's metrics cannot be read: {error}",)

    def compare(self, reading: Reading) -> None:
        """Compare with one reading."""
        found: dict[str, str] = {}
        if self._is_told:
            found |= self._gauge_differences(reading.figures)
            found |= self._count_differences(reading.figures)
        self._suspects = {name: self._suspects.get(name, 0) + 1 for name in found}
        num_needed = _NUM_READINGS + ceil(reading.age_s / PERIOD_S)
        told = tuple(
            text for name, text in sorted(found.items()) if self._suspects[name] >= num_needed
        )
        if told and told != self.differences:
            logger.warning("metrics differ from what watch tells: %s", "; ".join(told))
        self.differences = told

    def _gauge_differences(self, figures: Mapping[str, float]) -> dict[str, str]:
        found = {}
        for name, told in self._tally.figures.items():
            shown = figures.get(name)
            if shown is not None and not _is_near(told, shown, name):
                found[name] = f"{name}: watch tells {told:g}, metrics say {shown:g}"
        return found

    def _count_differences(self, figures: Mapping[str, float]) -> dict[str, str]:
        found = {}
        for name, told in self._tally.counts.items():
            shown = figures.get(name)
            if shown is not None and (text := self._count_difference(name, told, shown)):
                found[name] = text
        return found

    def _count_difference(self, name: str, told: int, shown: float) -> str:
        """Rises since the first reading of the session, which both counted from."""
        base = self._bases.get(name)
        if base is None or shown < base[0]:
            self._bases[name] = (shown, told)
            return ""
        rose_shown, rose_told = shown - base[0], told - base[1]
        if _is_near(rose_told, rose_shown, name):
            return ""
        return f"{name}: watch told of {rose_told} finished requests, metrics of {rose_shown:g}"


def reading_of(text: str) -> Reading:
    """What is compared of a page of metrics, ours or SGLang's.

    Raises:
        ValueError: the page is malformed.
    """
    figures: dict[str, float] = {}
    age_s = 0.0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            theirs = counterparts.our_series(sample.name, sample.labels)
            name = theirs or sample.name
            if name in _COMPARED and _counts(name, sample.labels):
                figures[name] = figures.get(name, 0.0) + sample.value
                age_s = max(age_s, counterparts.REFRESH_S if theirs else 0.0)
    return Reading(figures, age_s)


def _counts(name: str, labels: Mapping[str, str]) -> bool:
    return name != _FINISHED or labels["outcome"] in _COUNTED


def _is_near(told: float, shown: float, name: str) -> bool:
    tolerance = 0.1 if name.endswith("_ratio") else _GAUGE_TOLERANCE
    return abs(told - shown) <= max(tolerance, _TOLERANCE_RATIO * max(told, shown))


def _fetch(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=_TIMEOUT_S) as answer:
        content: bytes = answer.read(_MAX_BYTES)
    return content.decode()
