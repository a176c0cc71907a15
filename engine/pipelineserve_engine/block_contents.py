"""Which KV blocks of requests have equal contents, as numbers that tell nothing of the contents."""

from array import array
from collections.abc import Iterable
from hashlib import blake2b

_DIGEST_BYTES = 16


class BlockContents:
    """Numbers contents in the order in which requests with them end; clients likewise.

    Args:
        block_tokens: of one block.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._tokens: dict[str, array[int]] = {}
        self._numbers: dict[bytes, int] = {}
        self._clients: dict[str, str] = {}

    def begin(self, request_id: str, prompt_token_ids: Iterable[int]) -> None:
        """A request is live."""
        self._tokens[request_id] = array("q", prompt_token_ids)

    def append(self, request_id: str, token_id: int) -> None:
        """It has another token; one that is not known is not followed."""
        tokens = self._tokens.get(request_id)
        if tokens is not None:
            tokens.append(token_id)

    def end(self, request_id: str) -> tuple[int, ...]:
        """Forget it; the numbers of its full blocks, none if it is not known."""
        tokens = self._tokens.pop(request_id, array("q"))
        size = self._block_tokens
        numbers: list[int] = []
        parent = b""
        for start in range(0, len(tokens) - size + 1, size):
            content = tokens[start : start + size].tobytes()
            parent = blake2b(parent + content, digest_size=_DIGEST_BYTES).digest()
            numbers.append(self._numbers.setdefault(parent, len(self._numbers)))
        return tuple(numbers)

    def number_of_client(self, client_id: str) -> str:
        """A name for a client that is not its own; the empty one stays."""
        return client_id and self._clients.setdefault(client_id, f"client {len(self._clients)}")

    def clear(self) -> None:
        """Nothing more will be asked."""
        self._tokens.clear()
        self._numbers.clear()
