"""The check that what an add-on hooks in an engine is there, with the parameters that it expects.

Hook targets are an engine's private names, which move between versions. So an add-on looks for
itself, before it hooks anything, and hooks either all or none.
"""

import inspect
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A function of an engine's.

    Attributes:
        path: where it is found.
        parameters: names of its parameters, in order.
    """

    path: str
    parameters: tuple[str, ...]


def mismatched_targets(
    targets: Sequence[Target], resolve: Callable[[str], object] = pkgutil.resolve_name
) -> list[str]:
    """What differs from what is expected, one text for each; empty if all is as expected.

    Args:
        targets: to look for.
        resolve: finds an object by its path; raises AttributeError or ImportError if there is none.
    """
    return [text for target in targets if (text := _mismatch(target, resolve))]


def _mismatch(target: Target, resolve: Callable[[str], object]) -> str:
    try:
        function = resolve(target.path)
    except (AttributeError, ImportError):
        return f"{target.path} is missing"
    if not callable(function):
        return f"{target.path}: expected a function, got {type(function).__name__}"
    parameters = tuple(inspect.signature(function).parameters)
    if parameters != target.parameters:
        expected = ", ".join(target.parameters)
        return f"{target.path}: expected ({expected}), got ({', '.join(parameters)})"
    return ""
