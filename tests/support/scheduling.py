"""Builders for scheduler tests, valid by default, and a pipeline that checks what it is given.

`Pipeline` carries micro-batches in order, as the stages do. Its `KvMemory` stands in for the keys
and values on device and host: each cell holds a digest of the tokens up to its position, and the
next token is a function of what is *read* there. A wrong prefix hit, a stale block, an overwritten
or badly copied one therefore fails the test.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pipelineserve.policy.admission import KnownLengths
from pipelineserve.policy.assignment import DecodeAssignment
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.ordering import QueueOrder
from pipelineserve.policy.preemption import UNMEASURED, KvCosts, PreemptionPolicy
from pipelineserve.policy.schedule import Schedule
from pipelineserve.policy.views import SchedulerView
from pipelineserve.scheduler.messages import (
    Accepted,
    BlockCopy,
    CopyDirection,
    Emission,
    MicroBatch,
    Piece,
    Rejected,
    StepResult,
)
from pipelineserve.scheduler.requests import FinishReason, NewRequest, Request, RequestRecord
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings

# Small, so that stop tokens are hit and different requests come to the same content.
VOCABULARY = 4


def make_settings(
    *,
    num_slots: int = 2,
    max_chunk_tokens: int = 64,
    num_blocks: int = 64,
    block_tokens: int = 4,
    max_context_tokens: int = 256,
    max_waiting_requests: int = 64,
    max_running_requests: int = 64,
    num_host_blocks: int = 0,
    shares_prefixes: bool = True,
) -> SchedulerSettings:
    return SchedulerSettings(
        num_slots=num_slots,
        max_chunk_tokens=max_chunk_tokens,
        num_blocks=num_blocks,
        block_tokens=block_tokens,
        max_context_tokens=max_context_tokens,
        max_waiting_requests=max_waiting_requests,
        max_running_requests=max_running_requests,
        num_host_blocks=num_host_blocks,
        shares_prefixes=shares_prefixes,
    )


def make_view(
    *,
    now_s: float = 0.0,
    slot_index: int = 0,
    num_slots: int = 2,
    max_chunk_tokens: int = 64,
    num_waiting: int = 0,
    waiting_tokens: int = 0,
    num_prefilling: int = 0,
    num_decoding: int = 0,
    num_ready_decodes: int = 0,
    kv_free_ratio: float = 1.0,
) -> SchedulerView:
    return SchedulerView(
        now_s=now_s,
        slot_index=slot_index,
        num_slots=num_slots,
        max_chunk_tokens=max_chunk_tokens,
        num_waiting=num_waiting,
        waiting_tokens=waiting_tokens,
        num_prefilling=num_prefilling,
        num_decoding=num_decoding,
        num_ready_decodes=num_ready_decodes,
        kv_free_ratio=kv_free_ratio,
    )


def make_prompt(num_tokens: int, first: int = 0) -> tuple[int, ...]:
    """Consecutive token ids: prompts with different `first` share no prefix."""
    return tuple(range(first, first + num_tokens))


def make_request(
    request_id: str = "r",
    prompt: int | Sequence[int] = 4,
    *,
    max_output_tokens: int | None = 2,
    stop_token_ids: Iterable[int] = (),
    client_id: str = "",
    priority: int = 0,
) -> NewRequest:
    """Make a request; a prompt given as a number is unlike that of any other id."""
    if isinstance(prompt, int):
        prompt = make_prompt(prompt, first=int.from_bytes(request_id.encode()[:5]) * 1000)
    return NewRequest(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        max_output_tokens=max_output_tokens,
        stop_token_ids=frozenset(stop_token_ids),
        client_id=client_id,
        priority=priority,
    )


def make_live_request(
    request_id: str = "r",
    prompt: int | Sequence[int] = 4,
    *,
    client_id: str = "",
    priority: int = 0,
    arrival_s: float = 0.0,
    submit_index: int = 0,
) -> Request:
    """Make a request as the scheduler's own modules see it."""
    new = make_request(request_id, prompt, client_id=client_id, priority=priority)
    return Request(
        new=new,
        arrival_s=arrival_s,
        max_output_tokens=2,
        submit_index=submit_index,
        token_ids=list(new.prompt_token_ids),
    )


def extended(chain: int, token_id: int) -> int:
    """Digest of a history and one token more; integers hash alike in every process."""
    return hash((chain, token_id))


def sampled(chain: int) -> int:
    """The model: the token that follows a history."""
    return chain % VOCABULARY


def output_alone(new: NewRequest, max_output_tokens: int) -> tuple[list[int], FinishReason]:
    """What the request gives when nothing runs beside it, straight from the model."""
    chain = 0
    for token_id in new.prompt_token_ids:
        chain = extended(chain, token_id)
    output: list[int] = []
    while len(output) < max_output_tokens:
        token_id = sampled(chain)
        if token_id in new.stop_token_ids:
            return output, FinishReason.STOP
        output.append(token_id)
        chain = extended(chain, token_id)
    return output, FinishReason.LENGTH


@dataclass(eq=False)
class Tracked:
    """An accepted request as its caller sees it: what it asked for and what came back."""

    new: NewRequest
    max_output_tokens: int
    output: list[int] = field(default_factory=list)
    emissions: list[Emission] = field(default_factory=list)
    record: RequestRecord | None = None
    tokens: list[int] = field(init=False)
    chains: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = []
        for token_id in self.new.prompt_token_ids:
            self._extend(token_id)

    def receive(self, emission: Emission) -> None:
        """Take one step of the output."""
        assert self.record is None, f"{self.new.request_id} got a token after its end"
        self.emissions.append(emission)
        if emission.token_id is not None:
            self.output.append(emission.token_id)
            self._extend(emission.token_id)
        if emission.record is not None:
            self.end(emission.record)

    def end(self, record: RequestRecord) -> None:
        """Take the record; a second one is an error."""
        assert self.record is None, f"{self.new.request_id} ended twice"
        self.record = record

    def _extend(self, token_id: int) -> None:
        self.tokens.append(token_id)
        self.chains.append(extended(self.chains[-1] if self.chains else 0, token_id))


class KvMemory:
    """Cells of KV blocks, written, read and copied in the order of the micro-batches."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._cells: dict[tuple[int, int], int] = {}
        self._host_cells: dict[tuple[int, int], int] = {}

    def execute(self, micro_batch: MicroBatch, owners: Sequence[Tracked]) -> StepResult:
        """Copy, then run; context must be there before any piece writes and still afterwards."""
        for copy in micro_batch.copies:
            self._copy(copy)
        for piece, owner in zip(micro_batch.pieces, owners, strict=True):
            assert self._read(piece, piece.start) == owner.chains[: piece.start], (
                f"{piece.request_id} finds another context than its own in {piece.block_ids}"
            )
        written: set[tuple[int, int]] = set()
        for piece in micro_batch.pieces:
            self._write(piece, written)
        tokens: list[int] = []
        for piece, owner in zip(micro_batch.pieces, owners, strict=True):
            end = piece.start + len(piece.token_ids)
            context = self._read(piece, end)
            assert context == owner.chains[:end], f"{piece.request_id} was overwritten"
            if piece.samples:
                tokens.append(sampled(owner.chains[end - 1]))
        return StepResult(micro_batch.sequence, tuple(tokens))

    def _copy(self, copy: BlockCopy) -> None:
        device, host = (self._cells, copy.device_block_id), (self._host_cells, copy.host_block_id)
        match copy.direction:
            case CopyDirection.OUT:
                (source, source_id), (target, target_id) = device, host
            case CopyDirection.IN:
                (source, source_id), (target, target_id) = host, device
        for offset in range(self._block_tokens):
            target.pop((target_id, offset), None)
            if (source_id, offset) in source:
                target[target_id, offset] = source[source_id, offset]

    def _cell(self, piece: Piece, position: int) -> tuple[int, int]:
        index, offset = divmod(position, self._block_tokens)
        return piece.block_ids[index], offset

    def _read(self, piece: Piece, num_tokens: int) -> list[int | None]:
        return [self._cells.get(self._cell(piece, position)) for position in range(num_tokens)]

    def _write(self, piece: Piece, written: set[tuple[int, int]]) -> None:
        before = self._cells[self._cell(piece, piece.start - 1)] if piece.start else 0
        for position, token_id in enumerate(piece.token_ids, piece.start):
            cell = self._cell(piece, position)
            assert cell not in written, f"{piece.request_id} shares a cell that is being written"
            written.add(cell)
            before = extended(before, token_id)
            self._cells[cell] = before


@dataclass(frozen=True)
class Flight:
    """A micro-batch between launch and completion, with its result ready to come back."""

    micro_batch: MicroBatch
    owners: tuple[Tracked, ...]
    result: StepResult


class Pipeline:
    """A scheduler under test, its clients and its stages; `now_s` is the time of the next call."""

    def __init__(
        self,
        settings: SchedulerSettings | None = None,
        *,
        chunk_tokens: int = 64,
        order: QueueOrder | None = None,
        assignment: DecodeAssignment | None = None,
        schedule: Schedule | None = None,
        preemption: PreemptionPolicy | None = None,
        costs: KvCosts = UNMEASURED,
        admission: KnownLengths | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.settings = scheduler.settings if scheduler else settings or make_settings()
        self.scheduler = scheduler or Scheduler(
            self.settings,
            Static(chunk_tokens),
            order,
            assignment,
            schedule,
            preemption=preemption,
            admission=admission,
        )
        self.costs = costs
        self.now_s = 0.0
        self.flights: deque[Flight] = deque()
        self.launched: list[MicroBatch] = []
        self.live: dict[str, Tracked] = {}
        self.accepted: list[Tracked] = []
        self.rejected: list[Rejected] = []
        self._memory = KvMemory(self.settings.block_tokens)

    def submit(self, new: NewRequest) -> Accepted | Rejected:
        """Submit now; an accepted request is tracked until its record."""
        answer = self.scheduler.submit(new, self.now_s)
        if isinstance(answer, Rejected):
            self.rejected.append(answer)
            return answer
        tracked = Tracked(new, answer.max_output_tokens)
        self.live[new.request_id] = tracked
        self.accepted.append(tracked)
        return answer

    def cancel(self, request_id: str) -> RequestRecord | None:
        """Hang up now."""
        return self._end_early(request_id, self.scheduler.cancel(request_id, self.now_s))

    def finish(self, request_id: str) -> RequestRecord | None:
        """Find a stop string in the text now."""
        return self._end_early(request_id, self.scheduler.finish(request_id, self.now_s))

    def fail(self, request_id: str) -> RequestRecord | None:
        """Find that this request alone cannot go on."""
        return self._end_early(request_id, self.scheduler.fail(request_id, self.now_s))

    def fail_all(self) -> list[RequestRecord]:
        """Lose the executor: nothing in flight comes back and the memory is gone."""
        records = self.scheduler.fail_all(self.now_s)
        for record in records:
            self._end_early(record.request_id, record)
        self.flights.clear()
        self._memory = KvMemory(self.settings.block_tokens)
        return records

    def recall_all(self) -> None:
        """Lose the executor and get another one: the memory is gone, the requests are not."""
        self.scheduler.recall_all()
        self.flights.clear()
        self._memory = KvMemory(self.settings.block_tokens)

    @property
    def free_slots(self) -> list[int]:
        """Slots that nothing is in flight in, lowest first."""
        busy = {flight.micro_batch.slot_index for flight in self.flights}
        return [slot for slot in range(self.settings.num_slots) if slot not in busy]

    def launch(self, slot_index: int | None = None) -> MicroBatch | None:
        """Compose for a slot (the lowest free one by default), check, and start to execute."""
        slot = self.free_slots[0] if slot_index is None else slot_index
        micro_batch = self.scheduler.next_micro_batch(slot, self.now_s, self.costs)
        if micro_batch is None:
            return None
        owners = tuple(self.live[piece.request_id] for piece in micro_batch.pieces)
        self._check_shape(micro_batch, owners)
        self._check_writes(micro_batch, owners)
        result = self._memory.execute(micro_batch, owners)
        self.flights.append(Flight(micro_batch, owners, result))
        self.launched.append(micro_batch)
        return micro_batch

    def fill(self) -> list[MicroBatch]:
        """Launch into every free slot, as long as there is something to run."""
        launched = [self.launch(slot) for slot in self.free_slots]
        return [micro_batch for micro_batch in launched if micro_batch is not None]

    def complete(self) -> list[Emission]:
        """Bring back the oldest micro-batch in flight."""
        flight = self.flights.popleft()
        slot_index = flight.micro_batch.slot_index
        emissions = list(self.scheduler.complete(slot_index, flight.result, self.now_s))
        for emission in emissions:
            self.live[emission.request_id].receive(emission)
            if emission.record is not None:
                del self.live[emission.request_id]
        return emissions

    def drain(self, max_rounds: int = 10_000) -> None:
        """Run until nothing is live or in flight; every round must give or take something."""
        for _ in range(max_rounds):
            launched = self.fill()
            if self.flights:
                self.complete()
            elif not launched:
                assert not self.live, f"nothing runs, yet {sorted(self.live)} are live"
                return
        raise AssertionError(f"{sorted(self.live)} did not end within {max_rounds} rounds")

    def output(self, request_id: str) -> list[int]:
        """Output of the latest request of this name."""
        return self.tracked(request_id).output

    def tracked(self, request_id: str) -> Tracked:
        """The latest accepted request of this name, ended or not."""
        return next(t for t in reversed(self.accepted) if t.new.request_id == request_id)

    def request(self, request_id: str) -> Request:
        """The scheduler's own object of a live request."""
        return self.scheduler._live[request_id]

    def _end_early(self, request_id: str, record: RequestRecord | None) -> RequestRecord | None:
        assert (record is None) == (request_id not in self.live)
        if record is not None:
            self.live.pop(request_id).end(record)
        return record

    def _check_shape(self, micro_batch: MicroBatch, owners: Sequence[Tracked]) -> None:
        expected = self.launched[-1].sequence + 1 if self.launched else 0
        assert micro_batch.sequence == expected
        assert 0 < micro_batch.num_tokens <= micro_batch.chunk.chunk_tokens
        assert micro_batch.chunk.chunk_tokens <= self.settings.max_chunk_tokens
        assert len(set(owners)) == len(owners), "a request is in the micro-batch twice"
        kinds = [piece.is_decode for piece in micro_batch.pieces]
        assert kinds == sorted(kinds, reverse=True), "decodes come first"
        for piece, owner in zip(micro_batch.pieces, owners, strict=True):
            end = piece.start + len(piece.token_ids)
            assert list(piece.token_ids) == owner.tokens[piece.start : end]
            assert len(piece.block_ids) == -(-end // self.settings.block_tokens)
            assert piece.samples == (end == len(owner.tokens))
            assert piece.output_index == len(owner.output)
            if piece.is_decode:
                assert piece.samples
                assert len(piece.token_ids) == 1
                assert owner.output

    def _check_writes(self, micro_batch: MicroBatch, owners: Sequence[Tracked]) -> None:
        """No block that a piece in flight touches takes another request's tokens."""
        touched: dict[int, set[Tracked]] = {}
        in_flight = [(flight.micro_batch, flight.owners) for flight in self.flights]
        for carried, whose in [*in_flight, (micro_batch, owners)]:
            for piece, owner in zip(carried.pieces, whose, strict=True):
                for block_id in piece.block_ids:
                    touched.setdefault(block_id, set()).add(owner)
        for piece, owner in zip(micro_batch.pieces, owners, strict=True):
            for block_id in piece.block_ids[piece.start // self.settings.block_tokens :]:
                assert touched[block_id] == {owner}, f"block {block_id} is written while in flight"
        read = {
            b for flight in self.flights for p in flight.micro_batch.pieces for b in p.block_ids
        }
        for copy in micro_batch.copies:
            if copy.direction is CopyDirection.IN:
                assert copy.device_block_id not in read, f"{copy} writes while in flight"
