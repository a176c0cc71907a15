"""One secret, many keys; a file that keeps no secret is refused with advice."""

from pathlib import Path

import pytest
import zmq

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_engine.remote.keys import LEADER, MEMBER, GroupKey, read_group_key


def a_file(path: Path, content: bytes = b"k" * 32, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_the_same_secret_gives_the_same_keys_on_every_host() -> None:
    first, second = GroupKey(b"a" * 32), GroupKey(b"a" * 32)
    assert first.pair(LEADER, "g1") == second.pair(LEADER, "g1")
    assert zmq.curve_public(first.pair(MEMBER).secret) == first.pair(MEMBER).public


def test_every_secret_role_and_generation_has_keys_of_its_own() -> None:
    keys = [GroupKey(secret * 32) for secret in (b"a", b"b")]
    pairs = {
        key.pair(role, generation).secret
        for key in keys
        for role in (LEADER, MEMBER)
        for generation in ("", "g1", "g2")
    }
    assert len(pairs) == 12


def test_secrets_are_not_shown() -> None:
    key = GroupKey(b"topsecret" * 4)
    pair = key.pair(LEADER)
    assert "topsecret" not in repr(key)
    assert repr(pair.secret) not in repr(pair)


def test_reads_the_bytes_as_they_are(tmp_path: Path) -> None:
    secret = b"\n" + bytes(range(32)) + b"\n"
    assert read_group_key(a_file(tmp_path / "key", secret)) == GroupKey(secret)


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440, 0o640])
def test_a_file_that_others_cannot_read_will_do(tmp_path: Path, mode: int) -> None:
    read_group_key(a_file(tmp_path / "key", mode=mode))


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602])
def test_a_file_that_is_open_to_every_user_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(EngineUnavailableError, match="open to every user") as refused:
        read_group_key(a_file(tmp_path / "key", mode=mode))
    assert f"{mode:04o}" in str(refused.value)


@pytest.mark.parametrize(("length", "got"), [(0, "0"), (31, "31"), (4097, "more than 4096")])
def test_too_short_or_too_long_is_refused(tmp_path: Path, length: int, got: str) -> None:
    with pytest.raises(EngineUnavailableError, match=f"holds {got} bytes, expected 32 to 4096"):
        read_group_key(a_file(tmp_path / "key", b"k" * length))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailableError, match="cannot be read: No such file"):
        read_group_key(tmp_path / "nowhere")


def test_a_folder_is_no_key(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailableError, match="cannot be read: Is a directory"):
        read_group_key(tmp_path)
