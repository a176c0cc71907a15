"""Figures in a folder, one file for each trial, named by what the trial is."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_simulator.reproduce.figures import TrialFigures
from pipelineserve_simulator.reproduce.fingerprint import code_fingerprint
from pipelineserve_simulator.reproduce.traces import TraceFile
from pipelineserve_simulator.reproduce.trials import Trial


@dataclass(frozen=True, slots=True)
class _Kept:
    """A file: the trial is there to be read by people, its name already says which it is."""

    trial: dict[str, Any]
    figures: TrialFigures


_KEPT = TypeAdapter(_Kept)


class FigureStore:
    """What was computed, here or by an earlier run.

    Args:
        folder: made if it is missing.
        trace: the trace that trials on rows are run on.

    Raises:
        InvalidInputError: the folder cannot be written.
    """

    def __init__(self, folder: Path, trace: TraceFile | None) -> None:
        self._folder = folder / "trials"
        self._trace = trace
        self._known: dict[Trial, TrialFigures] = {}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            writable = self._folder / f".{os.getpid()}"
            writable.write_bytes(b"")
            writable.unlink()
        except OSError as error:
            text = f'"{folder}" cannot be written ({error.strerror}); name a folder that can'
            raise InvalidInputError("the folder of results", [Fault("--out", text)]) from None

    def find(self, trial: Trial) -> TrialFigures | None:
        """None if it must be run; a file that cannot be read counts as none and is replaced."""
        known = self._known.get(trial)
        if known is None:
            known = self._read(trial)
            if known is not None:
                self._known[trial] = known
        return known

    def keep(self, trial: Trial, figures: TrialFigures) -> None:
        """Write the figures; whole or not at all, however the process ends."""
        path = self._path(trial)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(_KEPT.dump_json(_Kept(trial.as_json(), figures)))
        unfinished.replace(path)
        self._known[trial] = figures

    def _read(self, trial: Trial) -> TrialFigures | None:
        try:
            return _KEPT.validate_json(self._path(trial).read_bytes()).figures
        except (FileNotFoundError, ValidationError):
            return None

    def _path(self, trial: Trial) -> Path:
        return self._folder / f"{trial.key(code_fingerprint(), self._trace)}.json"
