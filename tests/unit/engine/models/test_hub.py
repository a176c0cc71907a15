"""Downloads from a hub that runs on this machine."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from huggingface_hub import HfApi

from pipelineserve.errors import ModelUnavailableError
from pipelineserve_engine.models import SilentProgress
from pipelineserve_engine.models.hub import download_checkpoint, hub_api

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": b"weights",
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "modeling_evil.py": b"raise SystemExit",
    "original/model.safetensors": b"again",
    "pytorch_model.bin": b"pickle",
}


@dataclass
class FakeHub:
    """The part of the hub's interface that a download uses, on this machine."""

    files: dict[str, bytes] = field(default_factory=lambda: dict(FILES))
    refusal: tuple[int, str] | None = None
    asked: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    endpoint: str = ""

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for a request's path."""
        if self.refusal is not None:
            return self.refusal[0], {"X-Error-Code": self.refusal[1]}, b"{}"
        path = path.split("?", maxsplit=1)[0]
        if path == "/api/models/org/name" or path.endswith("/revision/main"):
            names = [{"rfilename": name, "size": len(self.files[name])} for name in self.files]
            return (
                200,
                {},
                json.dumps({"id": "org/name", "sha": COMMIT, "siblings": names}).encode(),
            )
        if "/tree/" in path:
            return 200, {}, json.dumps([self._tree_entry(name) for name in self.files]).encode()
        name = path.partition(f"/resolve/{COMMIT}/")[2]
        if name not in self.files:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        self.asked.append(name)
        return 200, {"ETag": f'"{self._blob(name)}"', "X-Repo-Commit": COMMIT}, self.files[name]

    def _tree_entry(self, name: str) -> dict[str, object]:
        size = len(self.files[name])
        return {"type": "file", "path": name, "size": size, "oid": self._blob(name)}

    def _blob(self, name: str) -> str:
        content = self.files[name]
        return sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    fake = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond(has_body=True)

        def do_HEAD(self) -> None:
            self._respond(has_body=False)

        def _respond(self, *, has_body: bool) -> None:
            fake.tokens.add(self.headers.get("Authorization"))
            status, headers, body = fake.answer(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if has_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    fake.endpoint = f"http://127.0.0.1:{server.server_port}"
    yield fake
    server.shutdown()
    thread.join()
    server.server_close()


def _download(hub: FakeHub, folder: Path, revision: str | None = None) -> str:
    api = HfApi(endpoint=hub.endpoint, token=False)
    return download_checkpoint("org/name", revision, folder, SilentProgress(), api=api)


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_fetches_weights_configuration_and_tokenizer_but_no_code_and_no_pickle(
    hub: FakeHub, tmp_path: Path
) -> None:
    source = _download(hub, tmp_path)
    wanted = {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"}
    assert _names(tmp_path) == wanted
    assert set(hub.asked) == wanted
    assert (tmp_path / "model.safetensors").read_bytes() == b"weights"
    assert source == f"hf://org/name, commit {COMMIT}"


def test_refuses_a_repository_with_pickled_weights_before_it_fetches_any(
    hub: FakeHub, tmp_path: Path
) -> None:
    hub.files = {"config.json": b"{}", "pytorch_model.bin": b"pickle"}
    with pytest.raises(ModelUnavailableError, match="pickle files"):
        _download(hub, tmp_path)
    assert hub.asked == []


@pytest.mark.parametrize(
    ("refusal", "explained"),
    [
        ((404, "RepoNotFound"), "no such model, or it is private"),
        ((403, "GatedRepo"), "gated.*HF_TOKEN"),
        ((404, "RevisionNotFound"), "no revision 'v9'"),
        ((500, ""), "status 500"),
    ],
)
def test_says_why_the_hub_refused(
    hub: FakeHub, tmp_path: Path, refusal: tuple[int, str], explained: str
) -> None:
    hub.refusal = refusal
    with pytest.raises(ModelUnavailableError, match=explained):
        _download(hub, tmp_path, revision="v9")


def test_says_what_to_do_when_the_hub_cannot_be_reached(tmp_path: Path) -> None:
    # Port 9 on this machine: nothing listens there, so the connection is refused at once.
    offline = FakeHub(endpoint="http://127.0.0.1:9")
    with pytest.raises(ModelUnavailableError, match=r"cannot be reached.*HF_ENDPOINT"):
        _download(offline, tmp_path)


def test_sends_the_token_of_the_environment_only(hub: FakeHub, tmp_path: Path) -> None:
    api = hub_api({"HF_TOKEN": "secret-token"})
    with_token = HfApi(endpoint=hub.endpoint, token=api.token)
    download_checkpoint("org/name", None, tmp_path, SilentProgress(), api=with_token)
    assert hub.tokens == {"Bearer secret-token"}
    assert hub_api({}).token is False


def test_no_message_shows_the_token(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret-token")
    hub.refusal = (403, "GatedRepo")
    with pytest.raises(ModelUnavailableError) as caught:
        _download(hub, tmp_path)
    assert "secret-token" not in str(caught.value)
    assert "the token in HF_TOKEN" in str(caught.value)
