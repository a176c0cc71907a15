"""Random streams are named, and independent of how others are used."""

import subprocess
import sys

from pipelineserve_simulator.kernel.chance import Chance


def test_the_same_seed_and_name_give_the_same_stream() -> None:
    one, other = Chance(7).stream("noise"), Chance(7).stream("noise")
    assert [one.random() for _ in range(5)] == [other.random() for _ in range(5)]


def test_another_seed_or_another_name_gives_another_stream() -> None:
    first = {Chance(seed).stream(name).random() for seed in (1, 2, 11) for name in ("a", "1/a")}
    assert len(first) == 6


def test_a_seed_and_a_name_do_not_run_into_each_other() -> None:
    assert Chance(1).stream("1x").random() != Chance(11).stream("x").random()


def test_drawing_from_one_stream_leaves_the_others_alone() -> None:
    chance = Chance(1)
    chance.stream("noise").random()
    assert chance.stream("arrivals").random() == Chance(1).stream("arrivals").random()


def test_every_process_draws_the_same() -> None:
    script = (
        "from pipelineserve_simulator.kernel.chance import Chance;"
        "print(Chance(3).stream('x').random())"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert answers == {repr(Chance(3).stream("x").random())}
