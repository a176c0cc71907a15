"""A server with children: awaited, its CPU time counted as a whole, all of it ended."""

import os
import sys
import time
from pathlib import Path

import pytest
from bench.environments import ToolError
from bench.server_processes import cpu_s_of_machine, cpu_s_of_tree, free_port, serving

DEADLINE_S = 60.0
# A child that computes for 0.3 s of CPU time and ends, one that never ends; then HTTP.
SERVER = """
import subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
compute = "import time\\nwhile time.process_time() < 0.3: pass"
subprocess.run([sys.executable, "-c", compute], check=True)
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
print(subprocess.Popen([sys.executable, "-c", deaf]).pid, flush=True)
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def is_running(pid: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return False
    return fields[0] != "Z"  # it has ended, only nobody has asked for its status


def test_a_server_is_served_while_it_answers_and_ends_with_its_children(tmp_path: Path) -> None:
    log, port = tmp_path / "log", free_port()
    command = [sys.executable, "-c", SERVER, str(port)]
    with serving(command, os.environ, f"http://127.0.0.1:{port}/ready", log) as pid:
        child = int(log.read_text().split()[0])
        assert is_running(pid)
        assert is_running(child)
        assert cpu_s_of_tree(pid) - cpu_s_of_tree(child) >= 0.3
    deadline_s = time.monotonic() + DEADLINE_S
    while is_running(child) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not is_running(pid)
    assert not is_running(child)


def test_a_server_that_ends_instead_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]
    url = f"http://127.0.0.1:{free_port()}"
    with (
        pytest.raises(ToolError, match="no such model"),
        serving(command, os.environ, url, tmp_path / "log"),
    ):
        pass


def test_the_machine_is_busy_as_long_as_one_of_its_processes_and_no_longer_than_its_cores() -> None:
    begin_s, machine_before_s, before_s = time.monotonic(), cpu_s_of_machine(), time.process_time()
    while time.process_time() < before_s + 0.3:
        pass
    busy_s = cpu_s_of_machine() - machine_before_s
    # The kernel counts each of the six kinds in hundredths of a second.
    assert 0.24 <= busy_s <= (time.monotonic() - begin_s) * (os.cpu_count() or 1) * 1.1 + 0.1
