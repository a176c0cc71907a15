"""Probes decide as a kubelet's: pure tracks on given times, and real containers."""

import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_server import wait_until
from pipelineserve_cli.pods.launches import Launch
from pipelineserve_cli.pods.probes import (
    ProbeTrack,
    ProcessProbes,
    Verdict,
    command_passes,
    http_passes,
)
from pipelineserve_cli.pods.restarts import Restarts
from pipelineserve_cli.pods.specs import ContainerSpec, HttpGet, ProbeSpec, RunCommand
from small_pods import WAITS, Heard, a_container, a_run, a_set, keep_runs_in

GET = HttpGet("/health", 80)


def a_probe(**changes: Any) -> ProbeSpec:
    given: dict[str, Any] = {
        "check": GET,
        "initial_delay_s": 0.0,
        "period_s": 2.0,
        "timeout_s": 1.0,
        "num_failures": 3,
        "num_successes": 1,
    }
    return ProbeSpec(**{**given, **changes})


def probed(**probes: ProbeSpec) -> ContainerSpec:
    given = dict.fromkeys(("startup", "liveness", "readiness"))
    return ContainerSpec("one", "a", (), (), {}, **{**given, **probes})


def test_failures_count_only_in_a_row_and_over_the_probes_own_periods() -> None:
    track = ProbeTrack(a_probe(), started_at_s=100.0)
    assert track.note(has_passed=False, now_s=100.0) is Verdict.UNDECIDED
    assert track.note(has_passed=True, now_s=102.0) is Verdict.PASSED
    assert track.note(has_passed=False, now_s=104.0) is Verdict.PASSED
    assert track.note(has_passed=False, now_s=106.0) is Verdict.PASSED
    assert track.note(has_passed=False, now_s=108.0) is Verdict.FAILED
    assert track.note(has_passed=True, now_s=110.0) is Verdict.PASSED


def test_before_it_has_passed_a_probe_is_asked_more_often_but_gives_no_less_time() -> None:
    track = ProbeTrack(a_probe(), started_at_s=0.0)
    now_s, num_asked = 0.0, 0
    while track.note(has_passed=False, now_s=now_s) is not Verdict.FAILED:
        while not track.is_due(now_s):
            now_s += 0.01
        num_asked += 1
    assert now_s == pytest.approx(4.0, abs=0.1)
    assert num_asked > 10


def test_a_probe_by_command_is_asked_at_its_period_only() -> None:
    track = ProbeTrack(a_probe(check=RunCommand(("true",))), started_at_s=0.0)
    track.note(has_passed=False, now_s=0.0)
    assert not track.is_due(1.9)
    assert track.is_due(2.0)


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 4))
def test_a_verdict_at_the_probes_period_is_that_of_the_last_answers(
    answers: list[bool], num_failures: int
) -> None:
    track = ProbeTrack(a_probe(num_failures=num_failures), started_at_s=0.0)
    expected = Verdict.UNDECIDED
    for index, has_passed in enumerate(answers):
        verdict = track.note(has_passed=has_passed, now_s=2.0 * index)
        if has_passed:
            expected = Verdict.PASSED
        elif index + 1 >= num_failures and not any(answers[index + 1 - num_failures : index + 1]):
            expected = Verdict.FAILED
        assert verdict is expected


def test_nothing_else_is_asked_before_the_startup_probe_has_passed() -> None:
    asked = []
    answers = {"start": False, "live": False, "ready": True}

    def check(probe: ProbeSpec) -> bool:
        assert isinstance(probe.check, HttpGet)
        asked.append(probe.check.path)
        return answers[probe.check.path]

    spec = probed(
        startup=a_probe(check=HttpGet("start", 1), num_failures=100),
        liveness=a_probe(check=HttpGet("live", 1), num_failures=1),
        readiness=a_probe(check=HttpGet("ready", 1)),
    )
    probes = ProcessProbes(spec, 0.0, check)
    assert probes.look(0.0) == ""
    assert not probes.is_ready
    answers["start"] = True
    assert probes.look(1.0) == ""
    assert asked == ["start", "start"]
    assert probes.look(2.0) == "its liveness probe failed"
    assert probes.is_ready
    assert asked[2:] == ["ready", "live"]


def test_a_startup_that_takes_too_long_is_ended() -> None:
    probes = ProcessProbes(probed(startup=a_probe(num_failures=1)), 0.0, lambda _: False)
    assert probes.look(0.0) == "its startup probe failed"


def test_a_container_without_probes_is_ready() -> None:
    assert ProcessProbes(probed(), 0.0, lambda _: False).is_ready


def test_pauses_double_up_to_a_minute_and_begin_anew_after_a_good_life() -> None:
    restarts, pauses = Restarts(), []
    for _ in range(12):
        restarts = restarts.ended(lived_s=1.0)
        pauses.append(restarts.pause_s)
    assert pauses[:4] == [0.0, 0.5, 1.0, 2.0]
    assert pauses[-1] == 60.0
    assert restarts.ended(lived_s=61.0).pause_s == 0.0


def test_commands_pass_with_status_0_in_time() -> None:
    def passes(program: str, timeout_s: float = 60.0) -> bool:
        return command_passes(
            Launch((sys.executable, "-c", program), {}, Path(sys.executable)), timeout_s
        )

    assert passes("")
    assert not passes("raise SystemExit(1)")
    assert not passes("import signal; signal.pause()", timeout_s=0.1)
    assert not command_passes(Launch(("/no/such/program",), {}, Path(sys.executable)), 1.0)


def test_nobody_who_listens_passes_no_probe() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert not http_passes("127.0.0.1", HttpGet("/", port), 0.1)
    assert not http_passes("127.0.0.1", HttpGet("/", port), 0.1)


SERVES = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(open(sys.argv[2]).read()))
        self.end_headers()
    def log_message(self, *_): pass
print("starts", file=sys.stderr, flush=True)
http.server.HTTPServer((sys.argv[1], 8000), Handler).serve_forever()
"""


def test_readiness_follows_the_answers_and_a_container_that_is_not_alive_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_runs_in(tmp_path, monkeypatch)
    (status := tmp_path / "status").write_text("503")
    probe = {"httpGet": {"path": "/", "port": "api"}, "periodSeconds": 1, "failureThreshold": 1}
    port = [{"name": "api", "containerPort": 8000}]
    readable = {"args": ["127.0.0.1", str(status)], "ports": port}
    main = a_container("main", SERVES) | readable | {"readinessProbe": probe}
    heard = Heard()
    with a_run(tmp_path, heard, a_set(main)) as run:
        heard.wait_said("main", "starts")
        assert not run.pods[0].is_ready
        status.write_text("204")
        wait_until(lambda: run.pods[0].is_ready, bool)
        status.write_text("503")
        wait_until(lambda: run.pods[0].is_ready, lambda ready: not ready)
    assert heard.ends == []
    status.write_text("204")
    starting = {**probe, "failureThreshold": 1000}
    probes = {"startupProbe": starting, "livenessProbe": probe}
    with a_run(tmp_path, heard, a_set(a_container("main", SERVES) | readable | probes)) as run:
        wait_until(lambda: run.pods[0].is_ready, bool)
        status.write_text("503")
        (end,) = heard.wait_ended()
        heard.wait_said("main", "starts", times=3)
    assert end.reason == "its liveness probe failed"


def test_a_probe_by_command_has_the_containers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_runs_in(tmp_path, monkeypatch)
    program = "import os, sys; sys.exit(not os.environ['WHO'].startswith('127.'))"
    probe = {"exec": {"command": ["python3", "-c", program]}, "periodSeconds": 1}
    who = [{"name": "WHO", "value": "small-0"}]
    main = a_container("main", WAITS, env=who, readinessProbe={**probe, "timeoutSeconds": 60})
    with a_run(tmp_path, Heard(), a_set(main)) as run:
        wait_until(lambda: run.pods[0].is_ready, bool)
