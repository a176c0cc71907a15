"""The live requests as a standing needs them: who waits for how long, who decodes how fast."""

from dataclasses import dataclass

from pipelineserve.scheduler.messages import Emission
from pipelineserve.scheduler.requests import NewRequest, RequestRecord

PERCENTILES = (0.50, 0.90, 0.99)


@dataclass(slots=True)
class _Decoding:
    """A request that has had its first token."""

    first_token_s: float
    last_token_s: float
    num_tokens: int = 1

    def tpot_s(self, now_s: float) -> float:
        """Its TPOT so far, or what it becomes with a token now, if that is more."""
        return max(
            (self.last_token_s - self.first_token_s) / (self.num_tokens - 1),
            (now_s - self.first_token_s) / self.num_tokens,
        )


class LiveRequests:
    """Hears of every request, watched or not: who begins to watch is told of all that live.

    Costs a lookup and two assignments per token.
    """

    def __init__(self) -> None:
        # By arrival, since requests are accepted in that order.
        self._waiting: dict[str, float] = {}
        self._decoding: dict[str, _Decoding] = {}

    def on_accepted(self, request: NewRequest, now_s: float) -> None:
        """It waits for its first token, however long its prompt is."""
        self.accept(request.request_id, now_s)

    def on_emission(self, emission: Emission, now_s: float) -> None:
        """It has a token, the first one or another."""
        if emission.token_id is not None:  # else it ends, which `on_ended` says as well
            self.advance(emission.request_id, 1, now_s)

    def on_ended(self, record: RequestRecord) -> None:
        """It waits and decodes no more."""
        self.end(record.request_id)

    def accept(self, request_id: str, now_s: float) -> None:
        """This request waits from now on."""
        self._waiting[request_id] = now_s

    def advance(self, request_id: str, num_tokens: int, now_s: float) -> None:
        """This request got so many tokens, at least 1, at once."""
        decoding = self._decoding.get(request_id)
        if decoding is None:
            self._waiting.pop(request_id, None)
            self._decoding[request_id] = _Decoding(now_s, now_s, num_tokens)
        else:
            decoding.last_token_s = now_s
            decoding.num_tokens += num_tokens

    def end(self, request_id: str) -> None:
        """This request is gone."""
        self._waiting.pop(request_id, None)
        self._decoding.pop(request_id, None)

    def oldest_wait_s(self, now_s: float) -> float:
        """The longest that a request has waited for its first token so far; 0 without one."""
        arrival_s = next(iter(self._waiting.values()), None)
        return 0.0 if arrival_s is None else max(0.0, now_s - arrival_s)

    def tpot_percentiles_s(self, now_s: float) -> tuple[float, ...]:
        """At `PERCENTILES`, over those with two tokens or more; empty if there is none."""
        values = sorted(
            decoding.tpot_s(now_s)
            for decoding in self._decoding.values()
            if decoding.num_tokens > 1
        )
        if not values:
            return ()
        return tuple(
            values[min(len(values) - 1, int(share * len(values)))] for share in PERCENTILES
        )
