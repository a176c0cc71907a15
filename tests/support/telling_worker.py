"""A stage's worker that writes down what it finds in its process, and ends.

It writes `found.json` into the model's folder: what a real worker must find as well. It stays as
long as there is a file `stay` in that folder.
"""

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from pipelineserve_engine.worker_settings import WorkerSettings

MODULE = "telling_worker"
STAY = "stay"
_FOUND = "found.json"
_SIZE = 700
_POLL_PERIOD_S = 0.01


@dataclass(frozen=True)
class Found:
    """What a stage found.

    Attributes:
        sum_of_product: of torch's work with as many threads as the settings ask for.
        num_threads: of its process after that.
        descriptors: open at its start, standard ones left out.
        links: what the settings say of its links' descriptors.
        has_cuda: CUDA was initialised before it, by whom it was forked from.
        exit_code: what it ends with.
    """

    sum_of_product: float
    num_threads: int
    descriptors: list[int]
    links: list[int]
    has_cuda: bool
    exit_code: int = 7

    @classmethod
    def read(cls, folder: Path) -> "Found":
        """What the worker wrote."""
        return cls(**json.loads((folder / _FOUND).read_text()))


def main(settings: WorkerSettings, parent_pid: int) -> int:
    """Look, compute, write, stay if asked to, end."""
    descriptors = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - numbers
    still_open = [number for number in descriptors if number > 2 and is_open(number)]
    has_cuda: bool = torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork()  # type: ignore[no-untyped-call]
    torch.set_num_threads(settings.num_threads)
    found = Found(
        sum_of_product=sum_of_product(),
        num_threads=len(list(Path("/proc/self/task").iterdir())),
        descriptors=still_open,
        links=list(settings.endpoints.links.descriptors),
        has_cuda=has_cuda,
    )
    folder = Path(settings.model_folder)
    (folder / "writing").write_text(json.dumps(asdict(found)))
    (folder / "writing").rename(folder / _FOUND)
    while (folder / STAY).exists() and os.getppid() == parent_pid:
        time.sleep(_POLL_PERIOD_S)
    return found.exit_code


def is_open(number: int) -> bool:
    """Not the one by which the listing was made."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def sum_of_product() -> float:
    """Large enough for several threads, in whole numbers so that their order does not matter."""
    rows = torch.arange(_SIZE * _SIZE, dtype=torch.float64).reshape(_SIZE, _SIZE) % 17
    return float((rows @ rows.T).sum())
