"""Whether there is KV for a waiting request to start beside those who run."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from pipelineserve.policy.admission import AdmissionView, Counted, KnownLengths
from pipelineserve.scheduler.flights import Flight
from pipelineserve.scheduler.kv import KvLedger
from pipelineserve.scheduler.requests import Request, RequestState


def free_blocks_beside(kv: KvLedger, started: Iterable[Request]) -> int:
    """Blocks that are free once started prompts have theirs."""
    promised = sum(kv.num_missing(request, len(request.token_ids)) for request in started)
    return kv.pool.num_free - promised


class LengthWatch:
    """Looks ahead by `KnownLengths` while a micro-batch is composed.

    Args:
        policy: whose growth counts.
    """

    def __init__(self, policy: KnownLengths) -> None:
        self._policy = policy
        self._count: Callable[[], Iterable[Request]] = tuple
        self._running: list[tuple[int, int]] | None = None

    def begin(
        self,
        slot_index: int,
        running: Callable[[], Iterable[Request]],
        in_flight: Mapping[int, Flight],
    ) -> None:
        """Another micro-batch is being composed: what was known of the running is old.

        Args:
            slot_index: the slot to be filled.
            running: gives all that run, in any order.
            in_flight: micro-batches by slot.
        """
        self._running = None
        match self._policy.counted:
            case Counted.ALL:
                self._count = running
            case Counted.SLOT:
                self._count = lambda: _seen_from(slot_index, running(), in_flight)

    def note_start(self, request: Request) -> None:
        """A request starts with this micro-batch."""
        if self._running is not None:
            self._running.append(_growth_of(request))

    def may_start(self, request: Request, free_tokens: int) -> bool:
        """Whether KV will suffice for a waiting request.

        Args:
            request: its prompt has room now.
            free_tokens: KV that is free once its prompt and those that have started are computed.
        """
        if self._running is None:
            self._running = [_growth_of(other) for other in self._count()]
        remaining, kept = _growth_of(request)
        view = AdmissionView(free_tokens, remaining, kept, tuple(self._running))
        return self._policy.decide(view).may_start


def _seen_from(
    slot_index: int, running: Iterable[Request], in_flight: Mapping[int, Flight]
) -> Iterator[Request]:
    """Those that `Counted.SLOT` names."""
    flying = {
        request.request_id
        for micro_batch, requests in in_flight.values()
        if not micro_batch.prefills
        for request in requests
    }
    for request in running:
        is_here = request.pool_index == slot_index and request.held_since_s is None
        is_started = request.state is RequestState.PREFILLING
        if is_started or request.request_id in flying or is_here:
            yield request


def _growth_of(request: Request) -> tuple[int, int]:
    """Tokens that it will still get, and those that it has."""
    return request.num_output_left, len(request.token_ids)
