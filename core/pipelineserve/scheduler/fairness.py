"""Fair turns among clients: the one that was served least goes next.

Virtual token counters (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024): a
client's counter rises with the tokens it was served; a client that comes, new or after a pause, is
lifted to the lowest counter of those that are there, or of the one that left last if nobody is, so
that idling earns no credit.
"""

from collections import Counter
from collections.abc import Sequence

from pipelineserve.scheduler.requests import Request

PROMPT_TOKEN_WEIGHT = 1.0
OUTPUT_TOKEN_WEIGHT = 2.0
_MAX_REMEMBERED_CLIENTS = 4096


class FairnessLedger:
    """Service that each client got; a client is active while it has a live request."""

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._num_live: Counter[str] = Counter()
        # Without it, whoever comes to an idle server would go before a client with a past until it
        # had been served as much.
        self._served_to_last_left = 0.0

    def served(self, client_id: str) -> float:
        """Weighted tokens served to the client."""
        return self._served.get(client_id, 0.0)

    def join(self, client_id: str) -> None:
        """Count one more live request of the client."""
        if self._num_live[client_id] == 0:
            active = (self._served[client] for client in self._num_live)
            floor = min(active, default=self._served_to_last_left)
            self._served[client_id] = max(self.served(client_id), floor)
        self._num_live[client_id] += 1

    def leave(self, client_id: str) -> None:
        """Count one live request less; clients without any are forgotten when they grow many."""
        self._num_live[client_id] -= 1
        if self._num_live[client_id] == 0:
            del self._num_live[client_id]
            self._served_to_last_left = self._served[client_id]
        if len(self._served) > _MAX_REMEMBERED_CLIENTS:
            self._served = {active: self._served[active] for active in self._num_live}

    def charge_outputs(self, requests: Sequence[Request]) -> None:
        """Charge one output token to the client of each of these live requests."""
        if len(self._num_live) == 1:
            owners = dict.fromkeys(self._num_live, len(requests))
        else:
            owners = Counter([request.new.client_id for request in requests])
        for client_id, num_tokens in owners.items():
            self.charge(client_id, output_tokens=num_tokens)

    def charge(self, client_id: str, *, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Add served tokens to a client that has a live request."""
        self._served[client_id] += (
            prompt_tokens * PROMPT_TOKEN_WEIGHT + output_tokens * OUTPUT_TOKEN_WEIGHT
        )
