"""What an earlier run had learned, taken from its journal when this one starts."""

import logging
from pathlib import Path

from pipelineserve.policy.control.turns import ControlMemory, remembered, take_turn
from pipelineserve_controller.journal import Entry, Start, journal_files, read_latest

logger = logging.getLogger(__name__)

# A run that ended sooner may have ended of what it had restored itself: the next one begins anew.
LEAST_TURNS = 25
# What was measured longer ago tells little of a machine that others use too.
MOST_AGE_S = 3600.0


def restored_memory(folder: Path, now_s: float, unix_s: float) -> ControlMemory:
    """The memory to begin with: the step-time model of the latest run, or nothing.

    See `remembered` for what is kept.

    Args:
        folder: of the journal; it may be missing.
        now_s: the clock that turns will be timed by.
        unix_s: the wall clock.
    """
    files = journal_files(folder)
    if not files:
        return ControlMemory()
    try:
        memory = _latest_memory(files[-1], unix_s)
    except Exception as error:  # noqa: BLE001 # whatever an old file does, this run must start
        logger.warning("nothing restored from %s: %s", files[-1].name, error)
        return ControlMemory()
    num_samples = memory.learning.num_samples
    logger.info("restored from %s: a model of %d samples", files[-1].name, num_samples)
    return remembered(memory, now_s)


def _latest_memory(path: Path, unix_s: float) -> ControlMemory:
    """The memory after the last turn of a file.

    Raises:
        ValueError: the run was too short or is too long ago, or a line is not a journal's.
    """
    memory, at_unix_s = None, 0.0
    for line in read_latest(path, LEAST_TURNS):
        match line:
            case Start(memory=start):
                memory = start
            case Entry() if memory is not None:
                _, _, memory = take_turn(memory, line.heard, line.objectives)
                at_unix_s = line.at_unix_s
    if memory is None:
        raise ValueError(f"expected at least {LEAST_TURNS} turns, got fewer")
    age_s = abs(unix_s - at_unix_s)
    if age_s > MOST_AGE_S:
        raise ValueError(f"expected a last turn within {MOST_AGE_S:g} s, got {age_s:.0f} s")
    return memory
