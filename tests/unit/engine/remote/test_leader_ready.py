"""The probe of pods that hold other stages follows the leader's own word."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from pipelineserve_engine.leader_ready import main


class LeaderServer(http.server.HTTPServer):
    """Answers `/ready` with this status."""

    ready_status = 200


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, LeaderServer)
        self.send_response(self.server.ready_status if self.path == "/ready" else 404)
        self.end_headers()
        self.wfile.write(b"stages start anew")

    def log_message(self, *args: object) -> None:
        del args


@pytest.fixture
def leader() -> Iterator[LeaderServer]:
    """A leader that is ready until told otherwise."""
    with LeaderServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asked(leader: LeaderServer) -> int:
    port = str(leader.server_address[1])
    # A proxy would answer for a leader that is gone; none is there.
    environ = {"LEADER": "127.0.0.1", "http_proxy": "http://127.0.0.1:9"}
    return main(["LEADER", port, "/ready"], environ)


def test_a_leader_that_is_ready_makes_its_workers_ready(leader: LeaderServer) -> None:
    assert asked(leader) == 0


def test_a_leader_that_is_not_ready_says_why(
    leader: LeaderServer, capsys: pytest.CaptureFixture[str]
) -> None:
    leader.ready_status = 503
    assert asked(leader) == 1
    assert "not ready: stages start anew" in capsys.readouterr().err


def test_a_leader_that_is_gone_is_not_ready(
    leader: LeaderServer, capsys: pytest.CaptureFixture[str]
) -> None:
    leader.server_close()
    assert asked(leader) == 1
    assert "does not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["LEADER"], ["LEADER", "80"], ["LEADER", "http", "/"], ["OTHER", "80", "/"]]
)
def test_wrong_arguments_are_a_failure_that_is_said(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments, {"LEADER": "127.0.0.1"}) == 1
    assert "expected a variable that holds" in capsys.readouterr().err
