"""The same calls give the same micro-batches, in this process and in any other."""

import os
import subprocess
import sys

import pytest

from scheduling_scripts import transcript


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_script_gives_the_same_micro_batches(seed: int) -> None:
    first = transcript(seed)
    assert first.count("MicroBatch(") > 20
    assert transcript(seed) == first


@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_micro_batches_do_not_depend_on_the_order_of_hashes(hash_seed: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import scheduling_scripts as s; print(s.transcript(7), end='')"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout == transcript(7)
