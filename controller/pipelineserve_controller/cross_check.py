"""The engine's Prometheus figures against what it tells in Watch; shown, never decided by.

Gauges may differ for a moment, since the two are read at different times, and counters by the
records that are on their way. So only what differs twice in a row is told.
"""

import asyncio
import logging
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from pipelineserve import metrics
from pipelineserve.policy.control.heard import Heard

logger = logging.getLogger(__name__)

PERIOD_S = 10.0
_TIMEOUT_S = 5.0
_MAX_BYTES = 1 << 24
_GAUGE_TOLERANCE = 2.0
_TOLERANCE_RATIO = 0.2
_COUNTED = ("stop", "length")


@dataclass(slots=True)
class Tally:
    """What Watch has told so far in this session: finished requests, and how things stand."""

    num_finished: int = 0
    figures: dict[str, float] = field(default_factory=dict)

    def add(self, heard: Heard) -> None:
        """Take in one turn."""
        self.num_finished += sum(r.ending.value in _COUNTED for r in heard.requests)
        if heard.standing is not None:
            self.figures = {
                metrics.REQUESTS_WAITING.name: float(heard.standing.num_waiting),
                metrics.REQUESTS_RUNNING.name: float(heard.standing.num_running),
                metrics.KV_USED.name: 1.0 - heard.standing.kv_free_ratio,
            }


class CrossCheck:
    """Compares every few seconds.

    Args:
        url: of the engine's metrics; empty compares nothing.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = 0
        self._tally = Tally()
        self._base: tuple[float, int] | None = None
        self._suspects: frozenset[str] = frozenset()
        self.differences: tuple[str, ...] = ()

    def hear(self, heard: Heard) -> None:
        """Take in what Watch told in one turn; a new session counts anew."""
        epoch = heard.engine.epoch if heard.engine else 0
        if epoch != self._session:
            self._session, self._tally, self._base = epoch, Tally(), None
            self._suspects, self.differences = frozenset(), ()
        self._tally.add(heard)

    async def run(self) -> None:
        """Compare again and again, until cancelled."""
        while self._url:
            await asyncio.sleep(PERIOD_S)
            try:
                text = await asyncio.to_thread(_fetch, self._url)
                self.compare(figures_of(text))
            except (OSError, ValueError) as error:
                self.differences = (f"the engine's metrics cannot be read: {error}",)

    def compare(self, figures: Mapping[str, float]) -> None:
        """Compare with the figures of one reading."""
        found = dict(self._gauge_differences(figures))
        found |= self._counter_difference(figures)
        told = tuple(text for name, text in sorted(found.items()) if name in self._suspects)
        if told and told != self.differences:
            logger.warning("metrics differ from what watch tells: %s", "; ".join(told))
        self._suspects, self.differences = frozenset(found), told

    def _gauge_differences(self, figures: Mapping[str, float]) -> dict[str, str]:
        found = {}
        for name, told in self._tally.figures.items():
            shown = figures.get(name)
            if shown is not None and not _is_near(told, shown, name):
                found[name] = f"{name}: watch tells {told:g}, metrics say {shown:g}"
        return found

    def _counter_difference(self, figures: Mapping[str, float]) -> dict[str, str]:
        """Rises since the first reading of the session, which both counted from."""
        name = metrics.REQUESTS.name
        shown, told = figures.get(name), self._tally.num_finished
        if shown is None:
            return {}
        if self._base is None or shown < self._base[0]:
            self._base = (shown, told)
            return {}
        rose_shown, rose_told = shown - self._base[0], told - self._base[1]
        if _is_near(rose_told, rose_shown, name):
            return {}
        text = f"{name}: watch told of {rose_told} finished requests, metrics of {rose_shown:g}"
        return {name: text}


def figures_of(text: str) -> dict[str, float]:
    """The figures that are compared, from a page of metrics.

    Raises:
        ValueError: the page is malformed.
    """
    found: dict[str, float] = {}
    wanted = (metrics.REQUESTS_WAITING, metrics.REQUESTS_RUNNING, metrics.KV_USED)
    names = {metric.name for metric in wanted}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in names:
                found[sample.name] = sample.value
            elif sample.name == metrics.REQUESTS.name and sample.labels["outcome"] in _COUNTED:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def _is_near(told: float, shown: float, name: str) -> bool:
    tolerance = 0.1 if name.endswith("_ratio") else _GAUGE_TOLERANCE
    return abs(told - shown) <= max(tolerance, _TOLERANCE_RATIO * max(told, shown))


def _fetch(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=_TIMEOUT_S) as answer:
        content: bytes = answer.read(_MAX_BYTES)
    return content.decode()
