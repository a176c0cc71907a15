"""What came back of one micro-batch, before it counts."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelineserve.scheduler.emissions import Emissions
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

    __slots__ = ("closing", "emissions", "going_on", "now_s", "num_tokens")

    def __init__(
        self,
        micro_batch: MicroBatch,
        requests: Sequence[Request],
        token_ids: Sequence[int],
        now_s: float,
    ) -> None:
        self.now_s = now_s
        self.emissions = Emissions()
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
        emissions, ended, now_s = self.emissions, RequestState.ENDED, self.now_s
        emissions.requests += requests
        emissions.token_ids += token_ids
        note_gap, go_on = emissions.gaps_s.append, self.going_on.append
        for request, token_id in zip(requests, token_ids, strict=True):
            request.num_in_flight -= 1
            last_s = request.last_token_s
            if last_s is None or request.state is ended or token_id in request.stop_token_ids:
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
            note_gap(gap_s)

    def _take_prefills(
        self, pieces: Sequence[Piece], requests: Sequence[Request], token_ids: Sequence[int]
    ) -> None:
        tokens = iter(token_ids)
        for piece, request in zip(pieces, requests, strict=True):
            request.num_in_flight -= 1
            if piece.samples:
                token_id = next(tokens)
                self.emissions.requests.append(request)
                self.emissions.token_ids.append(token_id)
                self._take_rare(request, token_id)
            elif request.state is RequestState.ENDED:
                self.closing.append(request)

    def _take_rare(self, request: Request, token_id: int) -> None:
        """A token of a request that has ended, that stops it, or that may be its first."""
        emissions, gap_s = self.emissions, None
        place = len(emissions.gaps_s)
        if request.state is RequestState.ENDED:
            self.closing.append(request)
            emissions.requests[place] = None
            emissions.gaps_s.append(None)
            return
        if request.first_token_s is None:
            request.first_token_s = self.now_s
            emissions.ttfts_s[place] = self.now_s - request.arrival_s
        if token_id in request.stop_token_ids:
            self._complete(request, FinishReason.STOP)
            emissions.token_ids[place] = None
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
        emissions.gaps_s.append(gap_s)

    def _complete(self, request: Request, finish: FinishReason) -> None:
        self.closing.append(Complete(request, finish, len(self.emissions.gaps_s)))
