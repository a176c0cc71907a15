"""Why containers do not start, in the words of what they wrote last."""

import re

from pipelineserve.errors import (
    ControllerUnavailableError,
    EngineUnavailableError,
    PipelineServeError,
)
from pipelineserve_cli.pods.containers import ContainerEnd

_OWN_WORDS = re.compile(r"^error: (.*)", re.MULTILINE | re.DOTALL)
# argparse's last line, after the usage of every flag.
_REFUSED_FLAG = re.compile(
    r"^(?:python -m pipelineserve_engine\.server|sglang serve): error: (.*)", re.MULTILINE
)
_NOT_INSTALLED = re.compile(r"^ModuleNotFoundError: No module named '(.*)'", re.MULTILINE)
# Of the supervisor, which itself never ends.
_CONTROLLER_ENDED = re.compile(r"controller ended with (?!0;)")


def failure_of(end: ContainerEnd) -> PipelineServeError:
    """The error of a container that ended before its pods were ready."""
    tail = "\n".join(end.last_lines)
    if (missing := _NOT_INSTALLED.search(tail)) is not None:
        return EngineUnavailableError(
            f"local mode needs engine and controller, but {missing[1]} is not installed; "
            "pip install 'pipelineserve[engine,controller,cli]'"
        )
    if (refused := _REFUSED_FLAG.search(tail)) is not None:
        return EngineUnavailableError(f"spec.engine.args: {refused[1]}")
    if (own := _OWN_WORDS.search(tail)) is not None:
        return EngineUnavailableError(own[1])
    return EngineUnavailableError(f"{end.container} ended with {end.code}:\n{tail}")


def controller_failure(last_lines: tuple[str, ...]) -> ControllerUnavailableError | None:
    """The error of a controller that its supervisor had to start again; None if there is none."""
    tail = "\n".join(last_lines)
    if _CONTROLLER_ENDED.search(tail) is None:
        return None
    return ControllerUnavailableError(f"the controller does not start:\n{tail}")
