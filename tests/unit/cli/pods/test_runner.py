"""Pods run as real processes: started in order, started again, ended, and nothing of them left."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_server import all_have_ended, has_ended, wait_until
from pipelineserve_cli.ending import EndRequests
from pipelineserve_cli.pods.keeper import marked_pids
from pipelineserve_cli.pods.volumes import SHARED_MEMORY
from small_pods import (
    WAITS,
    Heard,
    a_config_map,
    a_container,
    a_run,
    a_set,
    keep_runs_in,
    left_of_runs,
)

SAYS_PID = "import os, sys; print(os.getpid(), file=sys.stderr, flush=True)\n"
WRITES = "import sys, pathlib; pathlib.Path(sys.argv[1], 'made').write_text('by init')"
READS = (
    "import sys, pathlib; print(pathlib.Path(sys.argv[1], 'made').read_text(), file=sys.stderr)\n"
)
# A child in a session of its own, which does not end with its parent.
WITH_CHILD = """
import subprocess, sys, signal
program = [sys.executable, "-c", "import signal; signal.pause()"]
child = subprocess.Popen(program, start_new_session=True)
print(child.pid, file=sys.stderr, flush=True)
signal.pause()
"""
STUBBORN = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("waits", file=sys.stderr, flush=True)
while True: signal.pause()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """For everything of the runs, which must leave nothing in it."""
    keep_runs_in(tmp_path, monkeypatch)
    yield tmp_path
    assert left_of_runs(tmp_path) == []


@pytest.fixture
def heard() -> Heard:
    return Heard()


def shared_volume(path: str = "/shared") -> tuple[dict[str, Any], dict[str, Any]]:
    volume = {"name": "shared", "emptyDir": {}}
    return volume, {"volumeMounts": [{"name": "shared", "mountPath": path}]}


def test_init_containers_end_before_the_others_begin(folder: Path, heard: Heard) -> None:
    volume, mounted = shared_volume()
    small = a_set(
        a_container("main", READS + WAITS, "/shared", **mounted),
        initial=[a_container("first", WRITES, "/shared", **mounted)],
        volumes=[volume],
    )
    with a_run(folder, heard, small):
        heard.wait_said("main", "waits")
    assert heard.said("main") == ["by init", "waits"]
    assert heard.ends == []


def test_an_init_container_that_fails_is_tried_again_and_told(folder: Path, heard: Heard) -> None:
    volume, mounted = shared_volume()
    once = (
        "import os, sys\nif not os.path.exists(sys.argv[1]): os.mkdir(sys.argv[1]); sys.exit('no')"
    )
    small = a_set(
        a_container("main", WAITS),
        initial=[a_container("first", once, "/shared/tried", **mounted)],
        volumes=[volume],
    )
    with a_run(folder, heard, small):
        heard.wait_said("main", "waits")
    (end,) = heard.ends
    assert (end.container.name, end.code, end.last_lines, end.pause_s) == ("first", 1, ("no",), 0)


def test_what_ends_is_started_again_and_what_it_had_started_is_gone(
    folder: Path, heard: Heard
) -> None:
    with a_run(folder, heard, a_set(a_container("main", WITH_CHILD))) as run:
        (first,) = wait_until(lambda: heard.said("main"), lambda lines: len(lines) == 1)
        process = wait_until(lambda: run.pods[0]._running["main"].process, bool)
        assert process is not None
        process._process.send_signal(signal.SIGKILL)
        wait_until(lambda: heard.said("main"), lambda lines: len(lines) == 2)
        assert has_ended(int(first))
        (end,) = heard.ends
    assert (end.code, end.pause_s) == (-signal.SIGKILL, 0.0)
    assert "small-0/main ended with -9; started again" in str(end)
    assert has_ended(int(heard.said("main")[1]))


def test_pauses_grow_while_a_container_ends_again_and_again(folder: Path, heard: Heard) -> None:
    with a_run(folder, heard, a_set(a_container("main", "raise SystemExit(3)"))):
        ends = heard.wait_ended(3)
    assert [end.pause_s for end in ends[:3]] == [0.0, 0.5, 1.0]
    assert {end.code for end in ends} == {3}


def test_containers_that_do_not_end_in_time_are_killed(folder: Path, heard: Heard) -> None:
    small = a_set(a_container("one", SAYS_PID + STUBBORN), grace_s=0)
    with a_run(folder, heard, small):
        heard.wait_said("one", "waits")
    assert has_ended(int(heard.said("one")[0]), timeout_s=30.0)


def test_a_second_ctrl_c_ends_at_once(folder: Path, heard: Heard) -> None:
    small = a_set(a_container("one", SAYS_PID + STUBBORN), grace_s=3600)
    with EndRequests() as requests, a_run(folder, heard, small, end_requests=requests) as run:
        heard.wait_said("one", "waits")
        os.kill(os.getpid(), signal.SIGINT)
        assert requests.num_noted == 1
        # Another one, once the end is under way.
        asked = run.pods[0].ask_to_end

        def asked_twice() -> None:
            asked()
            os.kill(os.getpid(), signal.SIGINT)

        run.pods[0].ask_to_end = asked_twice  # type: ignore[method-assign]
    assert requests.num_noted == 2
    assert has_ended(int(heard.said("one")[0]))


def test_the_ctrl_c_that_ends_a_run_does_not_hurry_it(folder: Path, heard: Heard) -> None:
    orderly = (
        "import signal, sys\n"
        "def end(*_): print('ends in order', file=sys.stderr, flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
    )
    small = a_set(a_container("one", orderly + WAITS))
    with EndRequests() as requests, a_run(folder, heard, small, end_requests=requests):
        heard.wait_said("one", "waits")
        os.kill(os.getpid(), signal.SIGINT)
    assert heard.said("one") == ["waits", "ends in order"]


def test_an_edit_of_a_config_map_reaches_files_at_once_and_variables_with_the_next_start(
    folder: Path, heard: Heard
) -> None:
    program = (
        "import os, sys, pathlib, time\n"
        "print(os.environ['CHUNK'], file=sys.stderr, flush=True)\n"
        "while pathlib.Path(sys.argv[1]).read_text() == '1': time.sleep(0.01)\n"
    )
    source = {"configMap": {"name": "live", "items": [{"key": "chunk", "path": "chunk"}]}}
    main = a_container(
        "main",
        program,
        "/files/chunk",
        env=[{"name": "CHUNK", "valueFrom": {"configMapKeyRef": {"name": "live", "key": "chunk"}}}],
        volumeMounts=[{"name": "files", "mountPath": "/files"}],
    )
    live = a_config_map("live", {"chunk": "1"})
    small = a_set(main, volumes=[{"name": "files", **source}])
    with a_run(folder, heard, small, live) as run:
        heard.wait_said("main", "1")
        run.apply([a_config_map("live", {"chunk": "2"})])
        heard.wait_said("main", "2")
        assert heard.said("main")[:2] == ["1", "2"]


def test_ports_of_two_pods_may_be_the_same_and_names_lead_to_the_other_one(
    folder: Path, heard: Heard
) -> None:
    serves = (
        "import socket, sys\n"
        "server = socket.create_server((sys.argv[1], int(sys.argv[2])))\n"
        "print('serves', file=sys.stderr, flush=True)\n"
        "while True:\n"
        "    connection = server.accept()[0]\n"
        "    connection.sendall(sys.argv[3].encode()); connection.close()\n"
    )
    name = [{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        main = a_container("main", serves, "127.0.0.1", str(port), "$(NAME)", env=name)
        with a_run(folder, heard, a_set(main, num_pods=2)) as run:
            heard.wait_said("main", "serves", times=2)
            answers = []
            for pod in run.pods:
                with socket.create_connection((pod.address, port)) as connection:
                    answers.append(connection.recv(99).decode())
    assert len(set(answers)) == 2
    assert answers == [pod.address for pod in run.pods], "a pod's name in arguments is its address"


def test_groups_share_a_key_that_each_run_makes_anew(folder: Path, heard: Heard) -> None:
    program = "import sys, pathlib; print(pathlib.Path(sys.argv[1]).read_text(), file=sys.stderr)\n"
    mounted = {"volumeMounts": [{"name": "key", "mountPath": "/key"}]}
    volume = {"name": "key", "secret": {"secretName": "g", "items": [{"key": "key", "path": "k"}]}}
    small = a_set(
        a_container("main", program + WAITS, "/key/k", **mounted), volumes=[volume], num_pods=2
    )
    for _ in range(2):
        with a_run(folder, heard, small):
            heard.wait_said("main", "waits", times=2)
        heard.lines = [one for one in heard.lines if one[1] != "waits"]
    first, second, third, fourth = heard.said("main")
    assert first == second
    assert third == fourth != first
    assert len(bytes.fromhex(first)) == 32


def test_a_process_that_is_killed_leaves_neither_processes_nor_folders(tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import sys, signal, tempfile
        from pathlib import Path
        from engine_server import wait_until
        from small_pods import Heard, a_container, a_run, a_set
        volumes = [{{"name": "m", "emptyDir": {{"medium": "Memory"}}}}]
        heard = Heard()
        small = a_set(a_container("main", {SAYS_PID + WITH_CHILD!r}), volumes=volumes, num_pods=2)
        with a_run(Path(sys.argv[1]), heard, small):
            pids = wait_until(lambda: heard.said("main"), lambda lines: len(lines) == 4)
            print(*pids, flush=True)
            signal.pause()
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 4
        (own,) = [path for path in tmp_path.iterdir() if path.name.startswith("pserve-")]
        mark = own.name.removeprefix("pserve-")
        assert set(pids) == set(marked_pids(f"{mark}/"))
        process.kill()
    assert all_have_ended(pids)
    wait_until(lambda: list(tmp_path.glob("pserve-*")), lambda left: left == [])
    wait_until(lambda: list(SHARED_MEMORY.glob(f"pserve-{mark}")), lambda left: left == [])


def test_a_failure_of_the_runner_itself_is_raised(folder: Path, heard: Heard) -> None:
    main = {"name": "main", "image": "a", "command": ["/no/such/program"]}
    with a_run(folder, heard, a_set(main)) as run:
        wait_until(lambda: not run._errors.empty(), bool)
        with pytest.raises(FileNotFoundError, match="/no/such/program"):
            run.check()
