"""What the requirement lines in pyproject.toml bring in, by the metadata of what is installed."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OWN_NAME = "pipelineserve"


def declared(pyproject: dict[str, Any], extra: str | None) -> tuple[Requirement, ...]:
    """The third-party requirements of one extra, or the base ones; own extras left out."""
    project = pyproject["project"]
    lines = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    requirements = (Requirement(line) for line in lines)
    return tuple(wanted for wanted in requirements if wanted.name != OWN_NAME)


def needed_by(pyproject: dict[str, Any], extra: str) -> tuple[Requirement, ...]:
    """The third-party requirements of the base and of one extra, own extras followed."""
    optional = pyproject["project"]["optional-dependencies"]
    pending, seen = [extra], set[str]()
    while pending:
        name = pending.pop()
        seen.add(name)
        lines = (Requirement(line) for line in optional[name])
        pending += [more for line in lines if line.name == OWN_NAME for more in line.extras - seen]
    found = [
        *declared(pyproject, None),
        *(one for name in seen for one in declared(pyproject, name)),
    ]
    return tuple(sorted(found, key=str))


def names(requirements: Iterable[Requirement]) -> frozenset[str]:
    """The distributions' names in their one canonical spelling."""
    return frozenset(canonicalize_name(wanted.name) for wanted in requirements)


def closure(requirements: Sequence[Requirement]) -> frozenset[str]:
    """Canonical names of these distributions and of all that they need here, at any depth.

    Raises:
        PackageNotFoundError: one of them is not installed.
    """
    seen: set[tuple[str, frozenset[str]]] = set()
    pending = [(wanted.name, frozenset(wanted.extras)) for wanted in requirements]
    while pending:
        name, extras = pending.pop()
        key = (canonicalize_name(name), extras)
        if key in seen:
            continue  # already followed; requirements may form cycles
        seen.add(key)
        for line in metadata.requires(name) or ():
            needed = Requirement(line)
            if applies(needed, extras):
                pending.append((needed.name, frozenset(needed.extras)))
    return frozenset(name for name, _ in seen)


def applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    """Whether a distribution asked for with `extras` needs `requirement` on this machine."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


@cache
def installed_imports() -> Mapping[str, list[str]]:
    """Each top-level import and what brings it; kept, because it reads every file list."""
    return metadata.packages_distributions()


def providers(import_name: str) -> frozenset[str]:
    """Canonical names of the installed distributions that bring the top-level `import_name`."""
    return frozenset(map(canonicalize_name, installed_imports().get(import_name, ())))


def is_third_party(import_name: str, own_names: Iterable[str]) -> bool:
    """Whether a top-level import is neither the language's nor the project's."""
    return import_name not in sys.stdlib_module_names and import_name not in set(own_names)
