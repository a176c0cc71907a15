"""What the add-on hooks in SGLang, in which versions, and the check that all of it is as expected.

SGLang itself only logs a target that is missing and serves on. Run as a program this prints what
is wrong, one line each.
"""

import pkgutil
import sys
from collections.abc import Callable, Sequence
from importlib import metadata

from pipelineserve_engine.addon.targets import Target, mismatched_targets

VERSIONS = ("0.5.22", "0.5.23")
_MODULE = "sglang.srt.managers.scheduler"
_SCHEDULER = f"{_MODULE}.Scheduler"
_RECEIVER = "sglang.srt.managers.scheduler_components.request_receiver.SchedulerRequestReceiver"


RUN_EVENT_LOOP = Target(f"{_SCHEDULER}.run_event_loop", ("self",))
PULL_REQUESTS = Target(f"{_RECEIVER}._pull_raw_reqs", ("self",))
PROCESS_REQUESTS = Target(f"{_SCHEDULER}.process_input_requests", ("self", "recv_reqs"))
ADD_REQUEST = Target(f"{_SCHEDULER}._add_request_to_queue", ("self", "req", "is_retracted"))
MAKE_ABORT = Target(f"{_MODULE}._make_abort_req", ("req", "finished_reason"))
NEXT_BATCH = Target(f"{_SCHEDULER}.get_next_batch_to_run", ("self", "running_batch", "last_batch"))
NEW_PREFILL = Target(f"{_SCHEDULER}.get_new_batch_prefill", ("self", "running_batch"))
RUN_BATCH = Target(f"{_SCHEDULER}.run_batch", ("self", "batch", "pp_proxy_tensors"))
PROCESS_RESULT = Target(f"{_SCHEDULER}.process_batch_result", ("self", "batch", "result"))
IS_DRAINED = Target(f"{_SCHEDULER}._pp_microbatches_drained", ("self",))
IN_FLIGHT = Target(f"{_SCHEDULER}._collect_inflight_batches", ("self",))

TARGETS = (
    RUN_EVENT_LOOP,
    PULL_REQUESTS,
    PROCESS_REQUESTS,
    ADD_REQUEST,
    MAKE_ABORT,
    NEXT_BATCH,
    NEW_PREFILL,
    RUN_BATCH,
    PROCESS_RESULT,
    IS_DRAINED,
    IN_FLIGHT,
)


def mismatches(
    version: str,
    targets: Sequence[Target] = TARGETS,
    resolve: Callable[[str], object] = pkgutil.resolve_name,
) -> list[str]:
    """What differs from what the add-on was made for; empty if all is as expected.

    Args:
        version: of the SGLang that is here.
        targets: to look for.
        resolve: finds an object by its path; raises AttributeError or ImportError if there is none.
    """
    expected = " or ".join(VERSIONS)
    found = [] if version in VERSIONS else [f"SGLang {version}: expected {expected}"]
    return found + mismatched_targets(targets, resolve)


def installed_version() -> str:
    """Of SGLang."""
    return metadata.version("sglang")


def main() -> None:
    """Check the SGLang of this environment."""
    found = mismatches(installed_version())
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
