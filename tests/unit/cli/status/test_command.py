"""`pserve status` against a server with a controller's state."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result
from fastapi import FastAPI

from page_server import StateSource, served_app, served_page
from pipelineserve.errors import ControllerUnavailableError, InvalidInputError
from pipelineserve.policy.control.objectives import Mode
from pipelineserve_cli.status import command
from pipelineserve_cli.status.command import status
from pipelineserve_cli.status.source import parse_state
from sidecar_states import busy_state, empty_state, inactive_state, late_state


@pytest.fixture
def source() -> StateSource:
    return StateSource(busy_state())


@pytest.fixture
def url(source: StateSource) -> Iterator[str]:
    with served_page(source) as url:
        yield url


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(status, list(arguments))


def shown(url: str) -> list[str]:
    result = run(url)
    assert result.exit_code == 0, result.exception
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_shows_what_the_page_shows(url: str) -> None:
    lines = shown(url)
    text = "\n".join(lines)
    assert "SLO met: yes (the targets are met), attainment 96 % over 300 s" in lines
    assert "TTFT 550 ms 1.20 s 1.70 s P90 1.20 s 1.50 s 214" in text
    assert "chunk 96 tokens (the smallest chunk that serves the demand)" in text
    assert "bubble per stage 8 % 14 %" in lines
    assert "requests 3 waiting, 9 running, 1 held; longest wait 420 ms" in lines
    assert "policy in force this controller's; lease 4.2 s left" in lines
    assert "chunk 80 → 96 tokens the smallest chunk that serves the demand" in text


def test_says_what_is_missed_and_what_could_be_met(url: str, source: StateSource) -> None:
    source.state = late_state()
    lines = shown(url)
    assert "SLO feasible: no (each target can be met, but not both at once)" in lines
    assert "Within reach: TTFT 1.9 s with this TPOT target" in lines


def test_nothing_known_is_shown_as_dashes(url: str, source: StateSource) -> None:
    source.state = empty_state()
    lines = shown(url)
    assert "KV in use \N{EN DASH}" in lines
    assert "chunk \N{EN DASH}" in lines
    assert any(line.startswith("The engine is not connected since") for line in lines)


def test_a_mode_that_sends_nothing_and_a_refused_edit_are_said(
    url: str, source: StateSource
) -> None:
    state = busy_state()
    control = replace(state.control, mode=Mode.PAUSED, refused_edit="spec.slo: [bold]what[/bold]")
    source.state = replace(state, control=control)
    lines = shown(url)
    assert "mode Paused" in lines
    assert "earlier targets stay: spec.slo: [bold]what[/bold]" in "\n".join(lines)


def test_an_engine_that_cannot_be_controlled_says_why(url: str, source: StateSource) -> None:
    assert not any("cannot be controlled" in line for line in shown(url))
    source.state = inactive_state("SGLang 0.4: expected [0.5.23]")
    text = " ".join(shown(url))
    assert "since it cannot be controlled: SGLang 0.4: expected [0.5.23]" in text
    assert "policy in force none: the engine goes by its own rules" in text


def test_a_state_of_a_controller_that_knows_no_inactive_engine_is_read() -> None:
    document = json.loads(StateSource(busy_state()).as_json())
    del document["engine"]["inactive_reason"]
    state = parse_state(json.dumps(document).encode(), "url")
    assert state.engine is not None
    assert state.engine.inactive_reason == ""


def test_a_controller_that_another_has_replaced_says_so(url: str, source: StateSource) -> None:
    state = busy_state()
    control = replace(state.control, is_effective=False, is_superseded=True)
    source.state = replace(state, control=control)
    text = "\n".join(shown(url))
    assert "policy in force a later controller's, which this one yields to; lease 4.2 s" in text


def test_json_is_the_state_itself(url: str, source: StateSource) -> None:
    result = run(url, "--json")
    assert json.loads(result.stdout) == json.loads(source.as_json())
    assert parse_state(result.stdout.encode(), url) == source.state


def test_watching_as_json_writes_a_line_each_time(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_after(3, monkeypatch)
    result = run(url, "--watch", "--json")
    assert result.exit_code == 0
    assert len([json.loads(line) for line in result.stdout.splitlines()]) == 3


def test_watching_goes_on_when_the_connection_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([StateSource(busy_state()).as_json(), None, None])

    def fetch(url: str) -> bytes:
        answer = next(answers)
        if answer is None:
            raise ControllerUnavailableError(url)
        return answer.encode()

    monkeypatch.setattr(command, "fetch_state", fetch)
    end_after(2, monkeypatch)
    result = run("http://controller", "--watch")
    assert result.exit_code == 0
    assert "Connection lost since" in result.stdout
    assert "550 ms" in result.stdout


def end_after(num_ticks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter(range(num_ticks - 1))

    def sleep(seconds: float) -> None:
        del seconds
        if next(left, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr("pipelineserve_cli.status.command.time.sleep", sleep)


def test_nobody_there_is_an_error_that_says_what_to_do() -> None:
    error = run("http://127.0.0.1:1").exception
    assert isinstance(error, ControllerUnavailableError)
    assert "`pserve local up` prints the address" in str(error)


def test_an_address_without_a_scheme_is_refused() -> None:
    error = run("localhost:8001").exception
    assert isinstance(error, InvalidInputError)
    assert 'expected an address like http://127.0.0.1:8090, got "localhost:8001"' in str(error)


def test_a_server_that_is_no_controller_is_named() -> None:
    with served_app(FastAPI()) as url:
        error = run(url).exception
    assert isinstance(error, ControllerUnavailableError)
    assert "/api/state answered 404, expected 200" in str(error)


def test_a_state_of_another_shape_names_the_fields(source: StateSource) -> None:
    state = json.loads(source.as_json())
    del state["slo"]["met"]
    state["a_newer_field"] = 1
    with pytest.raises(InvalidInputError) as raised:
        parse_state(json.dumps(state).encode(), "http://controller")
    assert [fault.field for fault in raised.value.faults] == ["slo.met"]
