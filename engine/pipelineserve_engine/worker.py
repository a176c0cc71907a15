"""The process of one stage: takes commands in order, computes, hands on.

A nursery imports this module once and runs `main` in a process of its own for every stage.
"""

import faulthandler
import os
import select
import shutil
import signal
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

import zmq

from pipelineserve.errors import PipelineServeError
from pipelineserve_engine import stage_model
from pipelineserve_engine.server_link import ServerLink
from pipelineserve_engine.stage_work import run_stage
from pipelineserve_engine.worker_settings import WorkerSettings


def preload() -> None:
    """Import what `main` would import only once it builds a model."""
    stage_model.preload()


def follow_parent(parent_pid: int, on_gone: Callable[[], None]) -> None:
    """Call `on_gone`, from a thread, once `parent_pid` is no longer the parent.

    A thread, because the stage may be waiting for a neighbour that is gone as well.
    """

    def watch() -> None:
        try:
            parent = os.pidfd_open(parent_pid)
        except ProcessLookupError:
            on_gone()
            return
        # Had it ended before, another process could have its number by now.
        if os.getppid() == parent_pid:
            poller = select.poll()
            poller.register(parent, select.POLLIN)
            poller.poll()
        on_gone()

    threading.Thread(target=watch, name="follow-parent", daemon=True).start()


def _end_as_orphan(shared_folder: str | None) -> NoReturn:
    """End at once: nobody is left to report to, or to clean up."""
    if shared_folder is not None:
        shutil.rmtree(shared_folder, ignore_errors=True)
    os._exit(1)


def main(settings: WorkerSettings, parent_pid: int) -> int:
    """Run one stage's worker, which ends with its parent; 0 after an orderly end."""
    follow_parent(parent_pid, lambda: _end_as_orphan(settings.endpoints.shared_folder))
    # The server asks for all stacks when the stages are stuck.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    link = ServerLink(settings, context)
    try:
        link.start_heartbeats()
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
