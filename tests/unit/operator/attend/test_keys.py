"""Keys are read when they are needed, not at anybody's wish, and kept while nobody can be asked."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest

from attend_parts import ISSUER, TokenIssuer
from pipelineserve_operator.attend.keys import (
    ISSUER_PATH,
    KEYS_PATH,
    PERIOD_S,
    RETRY_S,
    KeysUnavailableError,
    PublishedKeys,
    parse_keys,
)
from sidecar_parts import running


@dataclass
class Cluster:
    """An API server that a test may take away, with a clock."""

    issuer: TokenIssuer = field(default_factory=TokenIssuer)
    is_away: bool = False
    now_s: float = 0.0
    paths: list[str] = field(default_factory=list)

    async def read(self, path: str) -> bytes:
        """What lies at a path."""
        self.paths.append(path)
        if self.is_away:
            raise ConnectionRefusedError("nobody listens")
        return {ISSUER_PATH: self.issuer.described, KEYS_PATH: self.issuer.published}[path]

    def keys(self) -> PublishedKeys:
        """Its keys, as the operator reads them."""
        return PublishedKeys(self.read, lambda: self.now_s)


def test_a_known_key_is_read_once_with_its_issuer() -> None:
    cluster = Cluster()
    keys = cluster.keys()

    async def scenario() -> None:
        for _ in range(3):
            key = await keys.find("key-1")
            assert key is not None
            assert (key.issuer, key.algorithm) == (ISSUER, "ES256")

    asyncio.run(scenario())
    assert cluster.paths == [ISSUER_PATH, KEYS_PATH]


def test_an_unknown_key_is_asked_for_no_more_often_than_is_allowed() -> None:
    cluster = Cluster()
    keys = cluster.keys()

    async def ask(moment_s: float) -> int:
        cluster.now_s = moment_s
        assert await asyncio.gather(*(keys.find(f"no-{n}") for n in range(5))) == [None] * 5
        return cluster.paths.count(KEYS_PATH)

    async def scenario() -> list[int]:
        return [await ask(moment_s) for moment_s in (0.0, RETRY_S - 1.0, RETRY_S, RETRY_S + 1.0)]

    assert asyncio.run(scenario()) == [1, 1, 2, 2]


def test_a_new_key_is_found_as_soon_as_a_token_of_it_comes() -> None:
    cluster = Cluster()
    keys = cluster.keys()

    async def scenario() -> None:
        assert await keys.find("key-1") is not None
        cluster.issuer, cluster.now_s = TokenIssuer("key-2"), RETRY_S
        assert await keys.find("key-2") is not None
        assert await keys.find("key-1") is None, "a key that is published no more is forgotten"

    asyncio.run(scenario())


def test_the_last_good_keys_stay_while_the_api_server_is_away() -> None:
    cluster = Cluster()
    keys = cluster.keys()

    async def scenario() -> None:
        assert await keys.find("key-1") is not None
        cluster.is_away, cluster.now_s = True, RETRY_S
        assert await keys.find("key-2") is None
        assert await keys.find("key-1") is not None

    asyncio.run(scenario())


def test_without_any_key_ever_the_reason_is_said_and_it_is_tried_again() -> None:
    cluster = Cluster(is_away=True)
    keys = cluster.keys()

    async def scenario() -> None:
        with pytest.raises(KeysUnavailableError, match="nobody listens"):
            await keys.find("key-1")
        cluster.is_away = False
        with pytest.raises(KeysUnavailableError, match="nobody listens"):
            await keys.find("key-1")
        cluster.now_s = RETRY_S
        assert await keys.find("key-1") is not None

    asyncio.run(scenario())


def test_keys_are_read_now_and_then_without_being_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    pauses_s: list[float] = []

    async def pause(seconds: float) -> None:
        pauses_s.append(seconds)
        cluster.is_away = len(pauses_s) == 1
        await real_sleep(0.0)

    real_sleep = asyncio.sleep
    monkeypatch.setattr("pipelineserve_operator.attend.keys.asyncio.sleep", pause)

    async def scenario() -> None:
        async with running(cluster.keys().run()):
            while len(pauses_s) < 3:
                await real_sleep(0.0)

    asyncio.run(scenario())
    assert pauses_s[:3] == [PERIOD_S, RETRY_S, PERIOD_S]


def test_an_api_server_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipelineserve_operator.attend.keys._PATIENCE_S", 0.01)

    async def never(path: str) -> bytes:
        await asyncio.Event().wait()
        return path.encode()

    async def scenario() -> None:
        with pytest.raises(KeysUnavailableError, match="no answer within"):
            await PublishedKeys(never, lambda: 0.0).find("key-1")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("described", "published", "named"),
    [
        (b"{}", TokenIssuer().published, "issuer"),
        (b'{"issuer": 5}', TokenIssuer().published, "int"),
        (b"x", TokenIssuer().published, "JSON"),
        (b"[]", TokenIssuer().published, "an object"),
        (TokenIssuer().described, b"{}", "keys"),
        (TokenIssuer().described, b'{"keys": []}', "found none"),
        (TokenIssuer().described, json.dumps({"keys": [{}] * 101}).encode(), "at most 100"),
        (TokenIssuer().described, b" " * (1 << 20) + b"{}", "bytes"),
        (TokenIssuer().described, b"[" * 100_000, "JSON"),
    ],
)
def test_documents_that_are_not_as_they_should_be_are_named(
    described: bytes, published: bytes, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        parse_keys(described, published)


def test_keys_of_a_kind_that_is_not_known_here_are_left_out() -> None:
    issuer = TokenIssuer()
    others = [
        {"kid": "shared", "kty": "oct", "k": "c2VjcmV0", "alg": "HS256"},
        {"kid": "edwards", "kty": "OKP", "crv": "Ed25519", "x": "x"},
        {"kid": "new", "kty": "lattice"},
        {"kty": "EC"},
        "text",
    ]
    entries = [*others, *json.loads(issuer.published)["keys"]]
    keys = parse_keys(issuer.described, json.dumps({"keys": entries}).encode())
    assert list(keys) == ["key-1"]
