"""The engine's server with one of FastPP's laws in its scheduler: `LAW_FILE FLAGS…`."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pipelineserve.policy.fastpp.greedy import FastppGreedy
from pipelineserve.policy.fastpp.latency_model import LatencyModelSettings
from pipelineserve.policy.fastpp.predictive import FastppPredictive
from pipelineserve.scheduler.fastpp import FastppScheduler
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_engine.server import main as serve_main
from pipelineserve_engine.settings import SCHEDULES, EngineSettings


class LawKind(Enum):
    """Which of the two chunk controllers."""

    GREEDY = "FastppGreedy"
    PREDICTIVE = "FastppPredictive"


@dataclass(frozen=True)
class LawPlan:
    """A law scaled to this machine: the published constants with another unit of tokens.

    Attributes:
        unit_tokens: instead of the published 128.
        chunk_sizes: candidates, multiples of the unit.
        times_s: measured time of a step with a prompt of exactly that length.
    """

    kind: LawKind
    ttft_target_s: float
    tpot_target_s: float
    unit_tokens: int
    chunk_sizes: tuple[int, ...]
    times_s: tuple[float, ...]

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps({**vars(self), "kind": self.kind.value}))

    @classmethod
    def read(cls, path: Path) -> "LawPlan":
        """What `write` wrote."""
        values = json.loads(path.read_text())
        return cls(
            LawKind(values["kind"]),
            values["ttft_target_s"],
            values["tpot_target_s"],
            values["unit_tokens"],
            tuple(values["chunk_sizes"]),
            tuple(values["times_s"]),
        )

    def scheduler(self, sizes: SchedulerSettings, settings: EngineSettings) -> Scheduler:
        """A scheduler under the law."""
        schedule = SCHEDULES[settings.schedule]
        match self.kind:
            case LawKind.GREEDY:
                greedy = FastppGreedy(
                    self.ttft_target_s,
                    self.tpot_target_s,
                    min_tokens=self.chunk_sizes[0],
                    max_tokens=self.chunk_sizes[-1],
                    step_tokens=self.unit_tokens,
                    unit_tokens=self.unit_tokens,
                )
                return FastppScheduler(sizes, greedy, schedule)
            case LawKind.PREDICTIVE:
                predictive = FastppPredictive(
                    self.ttft_target_s,
                    self.tpot_target_s,
                    self.chunk_sizes,
                    self.times_s,
                    first_tokens=settings.static_chunk_tokens,
                    fit=LatencyModelSettings(unit_tokens=self.unit_tokens),
                    unit_tokens=self.unit_tokens,
                )
                return FastppScheduler(sizes, predictive, schedule)


def main(arguments: Sequence[str]) -> int:
    """Serve."""
    plan = LawPlan.read(Path(arguments[0]))
    return serve_main(arguments[1:], plan.scheduler)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
