"""What a hand-off from stage to stage costs: gloo against shared memory, as a table.

    python bench/transport.py

Two processes of this machine pass hidden states back and forth; a hand-off is half of a round trip.
Both kinds are measured in turns, so that whatever else runs disturbs both; medians are shown.
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from pipelineserve_engine.transport.distributed import DistributedTransport, gloo_group
from pipelineserve_engine.transport.link_settings import LinkEnd
from pipelineserve_engine.transport.protocol import Transport
from pipelineserve_engine.transport.rendezvous import join
from pipelineserve_engine.transport.shared_memory import (
    RingShape,
    SharedMemoryTransport,
    make_link,
)

HIDDEN_SIZE = 576
SIZES = (1, 64, 512)
RING = RingShape(3, max(SIZES), HIDDEN_SIZE, torch.float32)


class GlooPair:
    """A ring of two ranks: a stage sends to rank + 1, which here is rank - 1 as well."""

    def __init__(self, rank: int, rendezvous: str) -> None:
        group = gloo_group(join(rendezvous, 2), rank, 2, "127.0.0.1")
        self.sending, self.receiving = (
            DistributedTransport(
                group,
                stage_index=stage_index,
                hidden_size=HIDDEN_SIZE,
                dtype=torch.float32,
                device=torch.device("cpu"),
                num_slots=2,
            )
            # Both talk to the other rank: one sees it behind, one before.
            for stage_index in (-rank, 2 - rank)
        )


def pass_back_and_forth(
    sending: Transport, receiving: Transport, num_tokens: int, num_turns: int, *, begins: bool
) -> list[float]:
    """Return the time of each round trip in seconds; only the one that begins measures."""
    hidden = torch.zeros(num_tokens, HIDDEN_SIZE)
    times_s = []
    for _ in range(num_turns):
        start_s = time.perf_counter()
        if begins:
            sending.send(hidden)
        reception = receiving.post_receive(num_tokens)
        got = reception.wait()
        got.sum()  # reads it, as a stage would
        reception.release()
        if not begins:
            sending.send(hidden)
        times_s.append(time.perf_counter() - start_s)
    return times_s


def run_partner(
    *,
    rank: int,
    rendezvous: str,
    before: LinkEnd,
    behind: LinkEnd,
    num_rounds: int,
    num_turns: int,
    answers: Connection,
) -> None:
    """One of the two processes; the one of rank 0 sends what it measured."""
    torch.set_num_threads(1)
    gloo = GlooPair(rank, rendezvous)
    memory = SharedMemoryTransport(before, behind, RING)
    kinds: dict[str, tuple[Transport, Transport]] = {
        "gloo": (gloo.sending, gloo.receiving),
        "shared_memory": (memory, memory),
    }
    times_s: dict[str, list[float]] = {}
    for _ in range(num_rounds):
        for num_tokens in SIZES:
            for kind, (sending, receiving) in kinds.items():
                measured = pass_back_and_forth(
                    sending, receiving, num_tokens, num_turns, begins=rank == 0
                )
                times_s.setdefault(f"{kind} {num_tokens}", []).extend(measured)
    if rank == 0:
        answers.send_bytes(json.dumps(times_s).encode())


def measure(num_rounds: int, num_turns: int) -> dict[str, list[float]]:
    """Round-trip times in seconds by kind and number of tokens."""
    there, back = make_link(RING), make_link(RING)
    ends = ((back[1], there[0]), (there[1], back[0]))
    answers, theirs = multiprocessing.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = (Path(folder) / "rendezvous").as_uri()
        partners = [
            # Forked, so that the links' descriptors are theirs.
            multiprocessing.get_context("fork").Process(
                target=run_partner,
                kwargs={
                    "rank": rank,
                    "rendezvous": rendezvous,
                    "before": before,
                    "behind": behind,
                    "num_rounds": num_rounds,
                    "num_turns": num_turns,
                    "answers": theirs,
                },
            )
            for rank, (before, behind) in enumerate(ends)
        ]
        for partner in partners:
            partner.start()
        times_s: dict[str, list[float]] = json.loads(answers.recv_bytes())
        for partner in partners:
            partner.join()
    return times_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--turns", type=int, default=50, help="round trips per kind and round")
    options = parser.parse_args()
    times_s = measure(options.rounds, options.turns)
    print(f"{'tokens':>6}  {'gloo':>10}  {'shared memory':>13}  {'ratio':>5}")
    for num_tokens in SIZES:
        gloo_us, memory_us = (
            statistics.median(times_s[f"{kind} {num_tokens}"]) / 2 * 1e6
            for kind in ("gloo", "shared_memory")
        )
        ratio = gloo_us / memory_us
        print(f"{num_tokens:>6}  {gloo_us:>7.0f} µs  {memory_us:>10.0f} µs  {ratio:>5.1f}")


if __name__ == "__main__":
    main()
