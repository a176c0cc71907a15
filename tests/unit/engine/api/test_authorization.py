"""With a key file only bearers of its keys are served; the file may change at any time."""

import os
from pathlib import Path

import openai
import pytest

from api_server import MODEL, an_api_context, serving
from fake_engine import FakeEngine
from pipelineserve.errors import InvalidInputError
from pipelineserve_engine.api.authorization import KeyFile

pytestmark = pytest.mark.anyio

KEY = "correct-horse-1"
OTHER = "battery-staple-2"
ROUTES = [
    ("GET", "/v1/models"),
    ("GET", f"/v1/models/{MODEL}"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("GET", "/v1/nothing"),
    ("GET", "/docs"),
]


@pytest.fixture
def key_path(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"{KEY}\n\n  {OTHER}  \n")
    return path


def write(path: Path, text: str) -> None:
    """Replace the file as a mounted secret is: a new one takes the old one's name."""
    fresh = path.with_suffix(".fresh")
    fresh.write_text(text)
    fresh.rename(path)


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_nothing_is_served_without_a_key(key_path: Path, method: str, path: str) -> None:
    engine = FakeEngine()
    async with serving(an_api_context(engine, keys=KeyFile(key_path))) as api:
        answer = await api.send(method, path, b"{}")
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
    assert "send 'Authorization: Bearer KEY'" in error["message"]
    assert engine.requests == []


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics"])
async def test_probes_and_metrics_need_none(key_path: Path, path: str) -> None:
    async with serving(an_api_context(keys=KeyFile(key_path))) as api:
        assert (await api.send("GET", path)).status == 200


@pytest.mark.parametrize("key", [KEY, OTHER])
async def test_every_key_of_the_file_is_served(key_path: Path, key: str) -> None:
    async with serving(an_api_context(keys=KeyFile(key_path))) as api:
        client = api.client.with_options(api_key=key)
        answer = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}]
        )
    assert answer.choices[0].message.content == "Hello"


@pytest.mark.parametrize(
    "header",
    [
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
        f"Bearer {KEY}\u00e9",
        f"Bearer {KEY} {OTHER}",
        f"Basic {KEY}",
        KEY,
        "Bearer",
        "Bearer  ",
        "",
    ],
)
async def test_a_wrong_key_is_refused_and_never_repeated(
    key_path: Path, header: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with serving(an_api_context(keys=KeyFile(key_path))) as api:
        answer = await api.send("GET", "/v1/models", headers={"authorization": header})
    assert answer.status == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert KEY[:-1] not in answer.body.decode() + caplog.text


async def test_the_official_client_sees_an_authentication_error(key_path: Path) -> None:
    async with serving(an_api_context(keys=KeyFile(key_path))) as api:
        with pytest.raises(openai.AuthenticationError) as refused:
            await api.client.models.list()
    assert refused.value.code == "invalid_api_key"


async def test_the_scheme_may_be_written_in_any_case(key_path: Path) -> None:
    async with serving(an_api_context(keys=KeyFile(key_path))) as api:
        answer = await api.send("GET", "/v1/models", headers={"authorization": f"bEARER  {KEY}"})
    assert answer.status == 200


async def test_two_keys_at_once_are_refused(key_path: Path) -> None:
    async with serving(an_api_context(keys=KeyFile(key_path))) as api:
        headers = {"authorization": f"Bearer {KEY}", "Authorization": f"Bearer {KEY}"}
        answer = await api.send("GET", "/v1/models", headers=headers)
    assert answer.status == 401


async def test_a_body_is_not_read_before_the_key_is_known(key_path: Path) -> None:
    context = an_api_context(keys=KeyFile(key_path), max_body_bytes=10)
    async with serving(context) as api:
        answer = await api.send("POST", "/v1/completions", b"x" * 5000)
    assert answer.status == 401


def test_a_rotated_file_is_read_again_and_only_once(
    key_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    keys = KeyFile(key_path)
    assert keys.admits(KEY.encode())
    write(key_path, "an-entirely-new-key")
    assert not keys.admits(KEY.encode())
    assert keys.admits(b"an-entirely-new-key")
    assert [record.getMessage() for record in caplog.records] == ["api keys read again: 1 keys"]


def test_a_file_that_is_edited_in_place_is_read_again(key_path: Path) -> None:
    keys = KeyFile(key_path)
    mtime_ns = key_path.stat().st_mtime_ns
    key_path.write_text(f"{KEY[::-1]}\n\n  {OTHER}  \n")  # the same size
    os.utime(key_path, ns=(mtime_ns, mtime_ns + 1))
    assert keys.admits(KEY[::-1].encode())
    assert not keys.admits(KEY.encode())


@pytest.mark.parametrize(
    "text", [None, "", "\n \n", "short", "two words in it", "k\u00e9y-of-eight"]
)
def test_a_broken_rotation_keeps_the_keys_and_is_logged_once(
    key_path: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    keys = KeyFile(key_path)
    if text is None:
        key_path.unlink()
    else:
        write(key_path, text)
    assert [keys.admits(KEY.encode()) for _ in range(3)] == [True] * 3
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert "api_key_file: " in errors[0].getMessage()
    write(key_path, "the-next-good-key")
    assert not keys.admits(KEY.encode())
    assert keys.admits(b"the-next-good-key")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (None, "the file cannot be read (No such file or directory)"),
        ("", "the file holds no key"),
        ("\n\n", "the file holds no key"),
        ("good-enough-key\nshort", "key 2: expected at least 8 printable ASCII characters"),
        ("x" * (1 << 20) + "y", "the file has more than 1048576 bytes"),
    ],
)
def test_a_file_without_usable_keys_is_refused_at_the_start_without_quoting_it(
    tmp_path: Path, text: str | None, part: str
) -> None:
    path = tmp_path / "keys"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidInputError) as refused:
        KeyFile(path)
    assert refused.value.faults[0].field == "api_key_file"
    assert part in str(refused.value)
    assert "one key a line" in str(refused.value)
    assert "short" not in str(refused.value)
    assert "good-enough-key" not in str(refused.value)
