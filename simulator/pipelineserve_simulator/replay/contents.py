"""Tokens for a recorded run, whose own are not known: equal exactly where prefixes are shared."""

from collections.abc import Iterable

from pipelineserve_simulator.replay.recorded import Call, Ended

STOP_TOKEN_ID = -1
# From here down: one for each request whose end is not recorded, so that none shares a prefix.
_FIRST_UNKNOWN = -2


class RecordedTokens:
    """The tokens of every request by position.

    Args:
        calls: of the whole run.
        block_tokens: of one KV block.
    """

    def __init__(self, calls: Iterable[Call], block_tokens: int) -> None:
        self._block_tokens = block_tokens
        # A request's id may come back once it has ended; the engine's own never do.
        self._numbers = {
            call.request_id: call.block_numbers for call in calls if isinstance(call, Ended)
        }
        self._unknown: dict[str, int] = {}

    def at(self, request_id: str, position: int) -> int:
        """The token there; behind the last full block any, since nobody looks at it."""
        numbers = self._numbers.get(request_id)
        if numbers is None:
            return self._unknown.setdefault(request_id, _FIRST_UNKNOWN - len(self._unknown))
        index = position // self._block_tokens
        return numbers[index] if index < len(numbers) else 0

    def first(self, request_id: str, num_tokens: int) -> tuple[int, ...]:
        """The tokens of its prompt."""
        return tuple(self.at(request_id, position) for position in range(num_tokens))
