"""A micro-batch while it is composed."""

from itertools import repeat

from pipelineserve.scheduler.messages import Piece
from pipelineserve.scheduler.requests import Request

# What a named tuple's own constructor calls; calling it at once more than halves the time.
_new_tuple = tuple.__new__


class Draft:
    """Pieces in order, and whose they are; whoever is in it counts as in flight."""

    __slots__ = ("pieces", "requests")

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.requests: list[Request] = []

    def add_decodes(self, requests: list[Request]) -> None:
        """The latest token of each goes; their blocks are there already."""
        rows: list[tuple[object, ...]] = []
        add = rows.append
        for request in requests:
            token_ids = request.token_ids
            request.num_issued = end = len(token_ids)
            request.num_in_flight += 1
            add(
                (
                    request.new.request_id,
                    end - 1,
                    (token_ids[-1],),
                    request.block_ids,
                    True,
                    True,
                    end - request.num_prompt_tokens,
                )
            )
        # Made all at once, without a call from here for each.
        self.pieces += map(_new_tuple, repeat(Piece), rows)
        self.requests += requests

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
        self.pieces.append(piece)
        self.requests.append(request)
