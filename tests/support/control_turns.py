"""Builders of what a controller hears and is asked for, valid by default, and turns in a row."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from pipelineserve.policy.control.heard import (
    Capability,
    Ending,
    EngineFacts,
    Heard,
    RequestSeen,
    Standing,
    StepSeen,
)
from pipelineserve.policy.control.objectives import (
    ChunkLaw,
    HoldLaw,
    LatencyGoal,
    Mode,
    Objectives,
    OrderLaw,
)
from pipelineserve.policy.control.observation import Observation
from pipelineserve.policy.control.turns import ControlMemory, Turn, take_turn
from pipelineserve.policy.step_time import StepFeatures

TURN_S = 0.2
VARIED_SIZES = (4, 8, 16, 64, 128, 256)


def make_engine(
    *,
    epoch: int = 1,
    name: str = "engine",
    num_slots: int = 4,
    max_chunk_tokens: int = 2048,
    capabilities: Sequence[Capability] = tuple(Capability),
) -> EngineFacts:
    return EngineFacts(
        name=name,
        version="1",
        epoch=epoch,
        num_stages=4,
        num_slots=num_slots,
        max_chunk_tokens=max_chunk_tokens,
        static_chunk_tokens=256,
        block_tokens=16,
        kv_tokens=100_000,
        capabilities=tuple(capabilities),
    )


def make_objectives(
    *,
    uid: str = "uid",
    generation: int = 1,
    ttft_s: float | None = 2.0,
    tpot_s: float | None = 0.2,
    window_s: float = 60.0,
    chunk_law: ChunkLaw = ChunkLaw.PREDICTIVE,
    min_tokens: int = 64,
    max_tokens: int = 1024,
    step_tokens: int = 64,
    static_tokens: int = 256,
    hold_law: HoldLaw = HoldLaw.OFF,
    order_law: OrderLaw = OrderLaw.AGEING,
    late_share_ratio: float = 0.05,
    mode: Mode = Mode.ACTIVE,
    lease_s: float = 5.0,
    stale_s: float = 30.0,
) -> Objectives:
    return Objectives(
        resource_uid=uid,
        generation=generation,
        ttft=None if ttft_s is None else LatencyGoal(90, ttft_s),
        tpot=None if tpot_s is None else LatencyGoal(90, tpot_s),
        window_s=window_s,
        chunk_law=chunk_law,
        min_tokens=min_tokens,
        max_tokens=max_tokens,
        step_tokens=step_tokens,
        static_tokens=static_tokens,
        hold_law=hold_law,
        max_gap_s=2.0,
        order_law=order_law,
        late_share_ratio=late_share_ratio,
        mode=mode,
        lease_s=lease_s,
        stale_s=stale_s,
    )


def make_standing(
    engine_now_s: float = 1000.0,
    *,
    num_waiting: int = 0,
    waiting_tokens: int = 0,
    num_running: int = 0,
    num_held: int = 0,
    kv_free_ratio: float = 0.9,
    oldest_wait_s: float = 0.0,
    running_tpot_s: tuple[float, ...] = (),
    most_decodes: int = 0,
) -> Standing:
    return Standing(
        engine_now_s=engine_now_s,
        num_waiting=num_waiting,
        waiting_tokens=waiting_tokens,
        num_running=num_running,
        num_decoding=most_decodes,
        num_held=num_held,
        kv_free_ratio=kv_free_ratio,
        oldest_wait_s=oldest_wait_s,
        running_tpot_s=running_tpot_s,
        policy_epoch=0,
        policy_sequence=0,
        lease_left_s=0.0,
        demand_tokens_per_s=0.0,
        capacity_tokens_per_s=0.0,
        most_decodes=most_decodes,
    )


def step_time_s(num_tokens: int) -> float:
    """What a step of that many tokens takes in these tests, attention aside."""
    return 0.005 + 5e-5 * num_tokens


def make_step(
    sequence: int = 1,
    *,
    num_tokens: int = 64,
    num_decodes: int = 4,
    time_s: float | None = None,
    features: StepFeatures | None = None,
    num_stages: int = 4,
    overhead_s: float = 0.0,
) -> StepSeen:
    time_s = step_time_s(num_tokens) if time_s is None else time_s
    return StepSeen(
        sequence=sequence,
        chunk_tokens=256,
        chunk_reason="static_chunk",
        num_tokens=num_tokens,
        num_decodes=num_decodes,
        features=features or StepFeatures(),
        span_s=num_stages * time_s + overhead_s,
        step_time_s=(time_s,) * num_stages,
        bubble_s=(0.25 * time_s,) * num_stages,
        policy_sequence=0,
    )


def make_request(
    *,
    ending: Ending = Ending.STOP,
    prompt_tokens: int = 200,
    output_tokens: int = 20,
    ttft_s: float | None = 0.5,
    tpot_s: float | None = 0.05,
) -> RequestSeen:
    return RequestSeen(ending, prompt_tokens, output_tokens, ttft_s, tpot_s, 0.0, 0.1)


@dataclass
class Course:
    """Turns in a row on a clock of their own, each hearing an idle engine unless told otherwise."""

    objectives: Objectives = field(default_factory=make_objectives)
    engine: EngineFacts | None = field(default_factory=make_engine)
    memory: ControlMemory = field(default_factory=ControlMemory)
    now_s: float = 0.0
    engine_now_s: float = 1000.0
    sequence: int = 0
    standing: Callable[[float], Standing | None] = make_standing
    heard: Heard | None = None

    def turn(
        self,
        *,
        steps: Iterable[StepSeen] = (),
        requests: Iterable[RequestSeen] = (),
        num_refused: int = 0,
    ) -> tuple[Turn, Observation]:
        """The next turn."""
        self.now_s += TURN_S
        self.engine_now_s += TURN_S
        steps = tuple(steps)
        self.heard = Heard(
            now_s=self.now_s,
            engine=self.engine,
            standing=self.standing(self.engine_now_s) if self.engine else None,
            steps=steps,
            requests=tuple(requests),
            num_steps=len(steps),
            num_lost=0,
            num_refused=num_refused,
        )
        turn, observation, self.memory = take_turn(self.memory, self.heard, self.objectives)
        return turn, observation

    def last(self, seconds: float) -> tuple[Turn, Observation]:
        """Turns for so long; the last of them."""
        result = self.turn()
        for _ in range(round(seconds / TURN_S) - 1):
            result = self.turn()
        return result

    def steps(self, sizes: Iterable[int]) -> list[StepSeen]:
        """Steps of these sizes, which come next."""
        made = []
        for num_tokens in sizes:
            self.sequence += 1
            made.append(make_step(self.sequence, num_tokens=num_tokens))
        return made

    def train(
        self, sizes: Sequence[int] = VARIED_SIZES, times: int = 6
    ) -> tuple[Turn, Observation]:
        """Hear enough steps of each size, and then nothing until input is fresh for long."""
        for _ in range(times):
            self.turn(steps=self.steps(sizes))
        return self.last(10.0)

    def with_objectives(self, **changes: object) -> None:
        """Change some of the objectives from the next turn on."""
        self.objectives = replace(self.objectives, **changes)  # type: ignore[arg-type]
