"""What came back of one micro-batch, for whoever hands it on to the clients."""

from collections.abc import Iterator

from pipelineserve.scheduler.messages import Emission
from pipelineserve.scheduler.requests import Request, RequestRecord

EmissionRow = tuple[Request, int | None, float | None]
"""Of an emission: whose it is, `token_id` and `gap_s`. Of a request only what stays is read."""


class Emissions:
    """In the order of the pieces; made when somebody looks, since the twin asks only who ended.

    Args:
        rows: one for each.
        ttfts_s: by place among them, of those that are a request's first.

    Attributes:
        ttfts_s: as given.
        records: by place among them, of the requests that ended.
    """

    __slots__ = ("_rows", "records", "ttfts_s")

    def __init__(self, rows: list[EmissionRow], ttfts_s: dict[int, float]) -> None:
        self._rows = rows
        self.ttfts_s = ttfts_s
        self.records: dict[int, RequestRecord] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Emission]:
        records, ttfts_s = self.records, self.ttfts_s
        for place, (request, token_id, gap_s) in enumerate(self._rows):
            yield Emission(
                request.new.request_id,
                token_id,
                records.get(place),
                ttfts_s.get(place),
                gap_s,
                request.num_cached,
            )
