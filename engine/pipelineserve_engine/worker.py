"""The process of one stage: takes commands in order, computes, hands on.

Run as `python -m pipelineserve_engine.worker SETTINGS`, SETTINGS being JSON of `WorkerSettings`.
"""

import faulthandler
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

import msgspec
import zmq

from pipelineserve.errors import PipelineServeError
from pipelineserve_engine.server_link import ServerLink
from pipelineserve_engine.worker_settings import WorkerSettings

_ORPHAN_CHECK_PERIOD_S = 1.0


def follow_parent(parent_pid: int, on_gone: Callable[[], None]) -> None:
    """Call `on_gone`, from a thread, once `parent_pid` is no longer the parent.

    A thread, because the stage may be waiting for a neighbour that is gone as well.
    """

    def watch() -> None:
        while os.getppid() == parent_pid:
            time.sleep(_ORPHAN_CHECK_PERIOD_S)
        on_gone()

    threading.Thread(target=watch, name="follow-parent", daemon=True).start()


def _end_as_orphan(shared_folder: str | None) -> NoReturn:
    """End at once: nobody is left to report to, or to clean up."""
    if shared_folder is not None:
        shutil.rmtree(shared_folder, ignore_errors=True)
    os._exit(1)


def main() -> int:
    """Run the worker of the settings in the first argument; 0 after an orderly end."""
    # The server decides when its stages end, so a signal to all processes of a container or a user
    # must not. A terminal's Ctrl-C does not come here: a stage has a process group of its own.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    settings = msgspec.json.decode(sys.argv[1], type=WorkerSettings)
    follow_parent(settings.parent_pid, lambda: _end_as_orphan(settings.endpoints.shared_folder))
    # The server asks for all stacks when the stages are stuck.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    link = ServerLink(settings, context)
    try:
        link.start_heartbeats()
        # Only now: importing torch takes seconds, and the server should hear from the stage before.
        from pipelineserve_engine.stage_work import run_stage  # noqa: PLC0415

        run_stage(settings, link)
    except PipelineServeError as error:
        link.report_failure(str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - the server must learn of every end of a stage
        # The trace is for the log; clients are told the rest.
        traceback.print_exc()
        link.report_failure(f"{type(error).__name__}: {error}")
        return 1
    finally:
        link.end()
        context.destroy(linger=1000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
