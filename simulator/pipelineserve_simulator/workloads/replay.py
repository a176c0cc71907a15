"""Workloads from the rows of a file: its lengths, and its times or other arrivals."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from random import Random

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.load.arrivals import Timestamps
from pipelineserve.load.row_files import Row, RowFile
from pipelineserve.load.selection import ChosenRows, RowChoice, choose_rows
from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.workloads.arriving import ArrivalSource
from pipelineserve_simulator.workloads.requests import SimulatedRequest


@dataclass(frozen=True, slots=True)
class RowWorkload:
    """Requests with the lengths of a file's rows.

    Attributes:
        num_requests: the most; rows are used again for more than there are, except by timestamps.

    Raises:
        InvalidInputError: the rows have no lengths, no times to follow, or none is left.
    """

    file: RowFile
    choice: RowChoice
    arrivals: ArrivalSource | Timestamps
    num_requests: int

    def __post_init__(self) -> None:
        """Refuse what can never give requests, before anything is run."""
        faults = []
        if any(row.prompt_tokens is None or row.output_tokens is None for row in self.file.rows):
            text = "got rows without lengths, expected prompt and output tokens in each"
            faults.append(Fault(self.file.name, text))
        if isinstance(self.arrivals, Timestamps) and not self.file.has_times:
            text = "got rows without times, expected timestamps; choose other arrivals"
            faults.append(Fault(self.file.name, text))
        if isinstance(self.arrivals, Timestamps) and self.choice.is_shuffled:
            text = "got shuffled rows with timestamps, expected one of both"
            faults.append(Fault(self.file.name, text))
        if faults:
            raise InvalidInputError("the workload", faults)
        self._chosen(Random(0))

    @property
    def description(self) -> str:
        """Rows used and arrivals."""
        chosen = self._chosen(Random(0))
        num_used = self.num_requests
        if isinstance(self.arrivals, Timestamps):
            num_used = min(num_used, len(chosen.rows))
            arrivals = f"{self.arrivals}"
        else:
            arrivals = self.arrivals.description
        scale = f", in x {self.choice.input_scale:g}" if self.choice.input_scale != 1.0 else ""
        return f"{chosen.describe(num_used)}{scale}; {arrivals}"

    def requests(self, chance: Chance) -> tuple[SimulatedRequest, ...]:
        """See `Workload`."""
        chosen = self._chosen(chance.stream("rows"))
        return tuple(
            SimulatedRequest(
                index,
                at_s,
                self.choice.prompt_tokens(row.prompt_tokens or 0),
                max(1, row.output_tokens or 0),
            )
            for index, (at_s, row) in enumerate(
                islice(self._timed(chosen, chance), self.num_requests)
            )
        )

    def _chosen(self, chance: Random) -> ChosenRows:
        return choose_rows(self.file, self.choice, chance)

    def _timed(self, chosen: ChosenRows, chance: Chance) -> Iterator[tuple[float, Row]]:
        if isinstance(self.arrivals, Timestamps):
            return zip(chosen.times_s(self.arrivals.rate_scale), chosen.rows, strict=True)
        times_s = self.arrivals.times_s(chance.stream("arrivals"))
        return zip(times_s, cycle(chosen.rows), strict=False)
