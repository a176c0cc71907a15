"""What came back of one micro-batch, before it counts."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelineserve.scheduler.emissions import EmissionRow, Emissions
from pipelineserve.scheduler.messages import MicroBatch, Piece
from pipelineserve.scheduler.requests import FinishReason, Request, RequestState


@dataclass(frozen=True, slots=True)
class Complete:
    """A request that has all of its output; `place` is that of its emission."""

    request: Request
    finish: FinishReason
    place: int


class Receipt:
    """Tokens are with their requests; what all of them change is left to whoever settles it.

    Attributes:
        now_s: when they came back.
        emissions: without records.
        num_tokens: tokens that were added; a stop token is not.
        going_on: requests that wait for another one.
        closing: in the order of the pieces, those that do not, and requests that had ended before.
    """

    __slots__ = ("_rows", "closing", "emissions", "going_on", "now_s", "num_tokens")

    def __init__(
        self,
        micro_batch: MicroBatch,
        requests: Sequence[Request],
        token_ids: Sequence[int],
        now_s: float,
    ) -> None:
        self.now_s = now_s
        self._rows: list[EmissionRow] = []
        self.emissions = Emissions(self._rows, {})
        self.going_on: list[Request] = []
        self.closing: list[Complete | Request] = []
        num_decodes = micro_batch.num_decodes
        self._take_decodes(requests[:num_decodes], token_ids[:num_decodes])
        self._take_prefills(micro_batch.prefills, requests[num_decodes:], token_ids[num_decodes:])
        self.num_tokens = len(self.owners())

    def owners(self) -> list[Request]:
        """The request of each token."""
        grown = [
            closing.request
            for closing in self.closing
            if isinstance(closing, Complete) and closing.finish is FinishReason.LENGTH
        ]
        return self.going_on + grown

    def _take_decodes(self, requests: Sequence[Request], token_ids: Sequence[int]) -> None:
        """One pass, with everything that nearly every decode needs in line."""
        emit, go_on = self._rows.append, self.going_on.append
        ended, now_s = RequestState.ENDED, self.now_s
        for request, token_id in zip(requests, token_ids, strict=True):
            request.num_in_flight -= 1
            if request.state is ended:
                self.closing.append(request)
                continue
            last_s = request.last_token_s
            if last_s is None or token_id in request.new.stop_token_ids:
                self._take_rare(request, token_id)
                continue
            gap_s = now_s - last_s
            if gap_s > request.longest_gap_s:  # noqa: PLR1730 - a call for every token
                request.longest_gap_s = gap_s
            request.last_token_s = now_s
            history = request.token_ids
            history.append(token_id)
            if len(history) < request.most_tokens:
                go_on(request)
            else:
                self._complete(request, FinishReason.LENGTH)
            emit((request, token_id, gap_s))

    def _take_prefills(
        self, pieces: Sequence[Piece], requests: Sequence[Request], token_ids: Sequence[int]
    ) -> None:
        tokens = iter(token_ids)
        for piece, request in zip(pieces, requests, strict=True):
            request.num_in_flight -= 1
            token_id = next(tokens) if piece.samples else None
            if request.state is RequestState.ENDED:
                self.closing.append(request)
            elif token_id is not None:
                self._take_rare(request, token_id)

    def _take_rare(self, request: Request, token_id: int) -> None:
        """A token after prefill, which may be the request's first, or one that stops it."""
        gap_s = None
        if request.first_token_s is None:
            request.first_token_s = self.now_s
            self.emissions.ttfts_s[len(self._rows)] = self.now_s - request.arrival_s
        kept: int | None = token_id
        if token_id in request.new.stop_token_ids:
            self._complete(request, FinishReason.STOP)
            kept = None
        else:
            if request.last_token_s is not None:  # its KV was dropped and computed again
                gap_s = self.now_s - request.last_token_s
                request.longest_gap_s = max(request.longest_gap_s, gap_s)
            request.last_token_s = self.now_s
            request.token_ids.append(token_id)
            if len(request.token_ids) < request.most_tokens:
                self.going_on.append(request)
            else:
                self._complete(request, FinishReason.LENGTH)
        self._rows.append((request, kept, gap_s))

    def _complete(self, request: Request, finish: FinishReason) -> None:
        self.closing.append(Complete(request, finish, len(self._rows)))
