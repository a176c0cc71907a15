"""How much is simulated: everything, or what a first look needs."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Numbers that trade time for certainty; every result states them.

    Attributes:
        seeds: of every experiment.
        capacity_tolerance_ratio: a capacity and a rate that fails are this close.
        static_chunks_tokens: among which the best one is looked for.
        sweep_rates_per_s: where latencies are compared.
        num_azure, num_tight: requests of azure-400, and of it under tight targets.
        num_replayed: of the replay.
        num_decode_heavy, num_long: of cnn-reversed and decode-heavy, and of the long run.
        num_steady: of azure-4000.
        num_sustained: of it, where a capacity is to hold for long.
        num_compared: of each workload, where ours is compared with all others.
    """

    name: str
    seeds: tuple[int, ...]
    capacity_tolerance_ratio: float
    static_chunks_tokens: tuple[int, ...]
    sweep_rates_per_s: tuple[float, ...]
    num_azure: int
    num_tight: int
    num_replayed: int
    num_decode_heavy: int
    num_long: int
    num_steady: int
    num_sustained: int
    num_compared: int

    def is_whole(self, part: "Callable[[Effort], int]") -> bool:
        """Whether a part has as many requests as the table's tolerances are for."""
        return part(self) >= part(FULL)


FULL = Effort(
    name="full",
    seeds=(1, 2, 3, 4, 5),
    capacity_tolerance_ratio=0.02,
    static_chunks_tokens=(128, 256, 384, 512, 768, 1024, 2048),
    sweep_rates_per_s=(2.0, 3.0, 4.0, 5.0, 6.0, 7.0),
    num_azure=400,
    num_tight=200,
    num_replayed=4424,
    num_decode_heavy=1000,
    num_long=5000,
    num_steady=4000,
    num_sustained=8000,
    num_compared=400,
)
QUICK = Effort(
    name="quick",
    seeds=(1,),
    capacity_tolerance_ratio=0.10,
    static_chunks_tokens=(256, 512, 1024),
    sweep_rates_per_s=(3.0, 4.0, 6.0),
    num_azure=400,
    num_tight=100,
    num_replayed=600,
    num_decode_heavy=1000,  # with fewer, delay scheduling never begins
    num_long=1200,
    num_steady=600,
    num_sustained=600,
    num_compared=100,
)
