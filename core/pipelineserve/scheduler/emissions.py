"""What came back of one micro-batch, for whoever hands it on to the clients."""

from collections.abc import Iterator
from itertools import repeat

from pipelineserve.scheduler.messages import Emission, new_tuple
from pipelineserve.scheduler.requests import Request, RequestRecord


class Emissions:
    """In the order of the pieces; made when somebody looks, since the twin asks only who ended.

    A place is that of a token among those of the micro-batch. The columns grow in a `Receipt`.

    Attributes:
        requests: whose token it was; None where the request had ended before. Of each only what
            never changes any more is read here.
        token_ids: None where it ended the request and is not part of the output.
        gaps_s: since the request's token before, if there was one.
        ttfts_s: by place, of those that are a request's first.
        records: by place, of those with which the request ended.
    """

    __slots__ = ("gaps_s", "records", "requests", "token_ids", "ttfts_s")

    def __init__(self) -> None:
        self.requests: list[Request | None] = []
        self.token_ids: list[int | None] = []
        self.gaps_s: list[float | None] = []
        self.ttfts_s: dict[int, float] = {}
        self.records: dict[int, RequestRecord] = {}

    def __iter__(self) -> Iterator[Emission]:
        record_at, ttft_at = self.records.get, self.ttfts_s.get
        columns = zip(self.requests, self.token_ids, self.gaps_s, strict=True)
        rows = [
            (
                request.new.request_id,
                token_id,
                record_at(place),
                ttft_at(place),
                gap_s,
                request.num_cached,
            )
            for place, (request, token_id, gap_s) in enumerate(columns)
            if request is not None
        ]
        return map(new_tuple, repeat(Emission), rows)
