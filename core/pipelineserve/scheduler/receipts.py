"""What came back of one micro-batch, before it counts."""

from pipelineserve.scheduler.messages import Emission
from pipelineserve.scheduler.requests import FinishReason, Request

# What a named tuple's own constructor calls; calling it at once halves the time of an emission.
_new_tuple = tuple.__new__


class Receipt:
    """Collects tokens; what all of them change is changed once, by whoever settles it.

    Attributes:
        now_s: when they came back.
        emissions: one for each, without records.
        client_ids: whose tokens they are; a stop token is nobody's.
        going_on: requests that wait for another one.
        complete: place among the emissions, request and reason of those that do not.
    """

    __slots__ = ("client_ids", "complete", "emissions", "going_on", "now_s")

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s
        self.emissions: list[Emission] = []
        self.client_ids: list[str] = []
        self.going_on: list[Request] = []
        self.complete: list[tuple[int, Request, FinishReason]] = []

    def append(self, request: Request, token_id: int) -> None:
        """Add a sampled token to its request."""
        now_s, new = self.now_s, request.new
        ttft_s = gap_s = None
        last_s = request.last_token_s
        if last_s is not None:
            gap_s = now_s - last_s
        if request.first_token_s is None:
            request.first_token_s = now_s
            ttft_s = now_s - request.arrival_s
        if token_id in new.stop_token_ids:
            self.complete.append((len(self.emissions), request, FinishReason.STOP))
            emission = Emission(new.request_id, None, None, ttft_s, None, request.num_cached)
            self.emissions.append(emission)
            return
        if gap_s is not None and gap_s > request.longest_gap_s:
            request.longest_gap_s = gap_s
        request.last_token_s = now_s
        token_ids = request.token_ids
        token_ids.append(token_id)
        self.client_ids.append(new.client_id)
        if len(token_ids) - len(new.prompt_token_ids) < request.max_output_tokens:
            self.going_on.append(request)
        else:
            self.complete.append((len(self.emissions), request, FinishReason.LENGTH))
        fields = (new.request_id, token_id, None, ttft_s, gap_s, request.num_cached)
        self.emissions.append(_new_tuple(Emission, fields))
