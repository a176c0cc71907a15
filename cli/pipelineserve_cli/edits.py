"""What an edit of a running manifest comes to: taken at once, at the next start, or refused."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelineserve.api import PipelineServe, resource_from_document
from pipelineserve.errors import InvalidInputError
from pipelineserve_cli.manifests import read_resource

# What a controller follows while the engine runs.
LIVE_SECTIONS = ("slo", "chunking", "rebalancing", "queueing", "control")
_ABSENT = "nothing"


@dataclass(frozen=True, slots=True)
class Change:
    """One field before and after; objects are compared field by field, lists as a whole."""

    path: str
    old: object
    new: object

    def __str__(self) -> str:
        return f"{self.path} {self.old} → {self.new}"


@dataclass(frozen=True, slots=True)
class Edit:
    """What is different now.

    Attributes:
        live: since the last edit that was taken; in force at once.
        waiting: since the start; in force after the next one.
    """

    live: tuple[Change, ...]
    waiting: tuple[Change, ...]


def changes(old: PipelineServe, new: PipelineServe) -> tuple[Change, ...]:
    """Every field that differs, defaults filled in."""
    documents = (resource.model_dump(mode="json", by_alias=True) for resource in (old, new))
    return tuple(_changes("", *documents))


def edit_of(
    started: PipelineServe, taken: PipelineServe, new: PipelineServe, *, has_control: bool
) -> Edit:
    """Sort the changes of an edit; without a controller every field waits for the next start."""
    live = [change for change in changes(taken, new) if has_control and _is_live(change)]
    since_start = changes(started, new)
    waiting = [change for change in since_start if not (has_control and _is_live(change))]
    return Edit(tuple(live), tuple(waiting))


def with_live_fields(started: PipelineServe, new: PipelineServe) -> PipelineServe:
    """What runs once the live fields of an edit hold, and all others as they were at the start.

    Raises:
        InvalidInputError: the live fields need others of the same edit.
    """
    document = _document(started)
    fresh = _document(new)["spec"]
    kept = {name: part for name, part in document["spec"].items() if name not in LIVE_SECTIONS}
    live = {name: part for name, part in fresh.items() if name in LIVE_SECTIONS}
    return resource_from_document({**document, "spec": {**kept, **live}}, "the edit")


class ManifestWatch:
    """Looks at the manifest again and again and says what became of each edit.

    Args:
        path: the manifest.
        started: what the engine was started with.
        take: called with what is to run when live fields were edited; None where no controller
            would obey them.
    """

    def __init__(
        self,
        path: Path,
        started: PipelineServe,
        take: Callable[[PipelineServe], None] | None,
    ) -> None:
        self._path = path
        self._started = self._taken = started
        self._take_live = take
        self._handled = self._seen = _text_of(path)
        self._waiting: tuple[Change, ...] = ()

    def look(self) -> list[str]:
        """Messages about an edit since the last look.

        An edit counts once the file has been the same at two looks, since editors write in steps.
        """
        before, self._seen = self._seen, _text_of(self._path)
        if self._seen == self._handled or self._seen != before:
            return []
        self._handled = self._seen
        try:
            new = read_resource(self._path)
        except InvalidInputError as error:
            return [f"edit refused, the earlier targets stay: {error}"]
        return self._take(new)

    def _take(self, new: PipelineServe) -> list[str]:
        has_control = self._take_live is not None
        edit = edit_of(self._started, self._taken, new, has_control=has_control)
        if edit.live and self._take_live is not None:
            try:
                self._take_live(with_live_fields(self._started, new))
            except InvalidInputError as error:
                return [f"edit needs a restart of `pserve local up`: {error}"]
        messages = [f"edit in force: {change}" for change in edit.live]
        messages += [
            f"edit needs a restart of `pserve local up`: {change}"
            for change in edit.waiting
            if change not in self._waiting
        ]
        self._taken, self._waiting = new, edit.waiting
        return messages


def _document(resource: PipelineServe) -> dict[str, Any]:
    return resource.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _is_live(change: Change) -> bool:
    return change.path.startswith(tuple(f"spec.{section}." for section in LIVE_SECTIONS))


def _changes(path: str, old: object, new: object) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            inner = f"{path}.{key}" if path else str(key)
            yield from _changes(inner, old.get(key, _ABSENT), new.get(key, _ABSENT))
    elif old != new:
        yield Change(path, _ABSENT if old is None else old, _ABSENT if new is None else new)


def _text_of(path: Path) -> bytes | None:
    """None while it cannot be read, as in the middle of being replaced."""
    try:
        return path.read_bytes()
    except OSError:
        return None
