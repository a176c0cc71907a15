"""A micro-batch while it is composed."""

from collections.abc import Sequence

from pipelineserve.scheduler.messages import Decodes, Piece
from pipelineserve.scheduler.requests import Request


class Draft:
    """Who goes with it, decodes first; whoever is in it counts as in flight.

    Attributes:
        requests: one for each piece.
        prefills: pieces of prompts.
    """

    __slots__ = ("_num_decodes", "prefills", "requests")

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.prefills: list[Piece] = []
        self._num_decodes = 0

    def add_decodes(self, requests: Sequence[Request]) -> None:
        """The latest token of each goes; their blocks are there already."""
        for request in requests:
            request.num_issued = len(request.token_ids)
            request.num_in_flight += 1
        self.requests += requests
        self._num_decodes += len(requests)

    def add_prefill(self, request: Request, num_tokens: int) -> None:
        """The request's next tokens go; its blocks are there already."""
        start, end = request.num_issued, request.num_issued + num_tokens
        request.num_issued = end
        request.num_in_flight += 1
        piece = Piece(
            request_id=request.request_id,
            start=start,
            token_ids=tuple(request.token_ids[start:end]),
            block_ids=request.block_ids,
            is_decode=False,
            samples=end == len(request.token_ids),
            output_index=request.num_output_tokens,
        )
        self.prefills.append(piece)
        self.requests.append(request)

    def decodes(self) -> Decodes:
        """As they go out; what changes in a request later is taken down."""
        requests = self.requests[: self._num_decodes]
        starts = [request.num_issued - 1 for request in requests]
        return Decodes(requests, starts, [request.block_ids for request in requests])
