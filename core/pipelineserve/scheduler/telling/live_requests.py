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
        self._waiting[request.request_id] = now_s

    def on_emission(self, emission: Emission, now_s: float) -> None:
        """It has a token, the first one or another."""
        if emission.token_id is None:
            return  # it ends, which `on_ended` says as well
        decoding = self._decoding.get(emission.request_id)
        if decoding is None:
            self._waiting.pop(emission.request_id, None)
            self._decoding[emission.request_id] = _Decoding(now_s, now_s)
        else:
            decoding.last_token_s = now_s
            decoding.num_tokens += 1

    def on_ended(self, record: RequestRecord) -> None:
        """It waits and decodes no more."""
        self._waiting.pop(record.request_id, None)
        self._decoding.pop(record.request_id, None)

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
