"""A stage's worker that stands still before it does anything."""

import os
import signal

from pipelineserve_engine.worker_settings import WorkerSettings

MODULE = "still_worker"


def main(settings: WorkerSettings, parent_pid: int) -> int:
    """Stop at once; only a kill ends it."""
    del settings, parent_pid
    os.kill(os.getpid(), signal.SIGSTOP)
    return 0
