"""The supervisor keeps its child running, whatever becomes of it; tried with real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripted_scheduler import wait_until

PROGRAM = """
import random, sys, time
from pipelineserve_controller.supervisor import Supervisor
sys.exit(Supervisor([sys.executable, "-c", sys.argv[1], *sys.argv[2:]], random.Random(0),
                    time.monotonic).run())
"""
# Writes its pid, then waits; ends with 0 on SIGTERM.
PATIENT = """
import os, signal, sys, time
def end(*_):
    open(sys.argv[1] + "/ended", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open(sys.argv[1] + f"/{os.getpid()}.pid", "w").close()
while True:
    time.sleep(0.05)
"""
FAILING = """
import os, sys
open(sys.argv[1] + f"/{os.getpid()}.pid", "w").close()
sys.exit(3)
"""


def pids(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.pid"))


@contextmanager
def supervised(program: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", PROGRAM, program, str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pid in pids(folder):
            with_child_gone(pid)


def with_child_gone(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has ended, as most have


def test_a_child_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with supervised(PATIENT, tmp_path) as supervisor:
        wait_until(lambda: len(pids(tmp_path)) == 1, "the child")
        os.kill(pids(tmp_path)[0], signal.SIGKILL)
        wait_until(lambda: len(pids(tmp_path)) == 2, "another child")
        assert supervisor.poll() is None


def test_a_child_that_fails_at_once_never_ends_the_supervisor(tmp_path: Path) -> None:
    with supervised(FAILING, tmp_path) as supervisor:
        wait_until(lambda: len(pids(tmp_path)) >= 3, "three attempts")
        assert supervisor.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_handed_on_and_ends_the_supervisor_after_the_child(
    tmp_path: Path, number: signal.Signals
) -> None:
    program = PATIENT.replace("signal.SIGTERM, end)", f"{int(number)}, end)")
    with supervised(program, tmp_path) as supervisor:
        wait_until(lambda: len(pids(tmp_path)) == 1, "the child")
        supervisor.send_signal(number)
        assert supervisor.wait(timeout=20) == 0
        assert (tmp_path / "ended").exists()


def test_a_signal_between_two_children_ends_the_supervisor(tmp_path: Path) -> None:
    with supervised(FAILING, tmp_path) as supervisor:
        wait_until(lambda: len(pids(tmp_path)) >= 4, "a longer pause")
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(timeout=20) == 0


def test_a_program_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    code = PROGRAM.replace("[sys.executable,", '[sys.argv[2] + "/missing",')
    log, program = tmp_path / "log", tmp_path / "missing"
    with log.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-c", code, "", str(tmp_path)], stderr=stderr)
    try:
        wait_until(lambda: b"cannot be started" in log.read_bytes(), "a failed attempt")
        (tmp_path / "staged").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexec sleep 60\n")
        (tmp_path / "staged").chmod(0o755)
        (tmp_path / "staged").rename(program)
        wait_until((tmp_path / "started").exists, "the program, once it is there")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()


def test_the_controller_itself_is_supervised_and_ends_in_order(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipelineserve_controller.supervisor"]
    flags = ["--engine-address", f"unix:{tmp_path}/control.sock", "--port", "0"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*command, *flags], stderr=log)
    try:
        wait_until(lambda: b"live state on" in (tmp_path / "log").read_bytes(), "the controller")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()
    assert b"Traceback" not in (tmp_path / "log").read_bytes()
