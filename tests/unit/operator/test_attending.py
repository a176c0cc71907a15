"""The sidecars' server within the operator: when it listens, and with which certificate."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from attend_parts import PATIENCE_S
from cluster_in_memory import ClusterInMemory
from free_ports import a_free_port
from pipelineserve.api import resource_from_document
from pipelineserve_operator import certificate_sources
from pipelineserve_operator.attend import SERVER_NAME, MountedPair
from pipelineserve_operator.attending import Attending, since_1970
from pipelineserve_operator.certificate import OwnCertificate
from pipelineserve_operator.certificate_sources import (
    AuthoritySecret,
    KeptCertificate,
    MadeCertificate,
)
from pipelineserve_operator.cluster import ApiError, Kind
from pipelineserve_operator.issuing import issue_pair, make_authority
from resource_documents import changed

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class NoKeys:
    """An API server that publishes nothing."""

    async def document(self, path: str) -> dict[str, Any]:
        """Never."""
        raise ApiError(f"get {path}", 404, "not here")


def made(cluster: ClusterInMemory) -> MadeCertificate:
    return MadeCertificate(OwnCertificate(AuthoritySecret(cluster, "own", "ca"), time.time))


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 # what is waited for knows of no event
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(attending: Attending) -> AsyncIterator[None]:
    task = asyncio.create_task(attending.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def is_listening(port: int, bundle: str) -> bool:
    credentials = grpc.ssl_channel_credentials(bundle.encode())
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        state = channel.get_state(try_to_connect=True)
        async with asyncio.timeout(PATIENCE_S):
            while state not in {
                grpc.ChannelConnectivity.READY,
                grpc.ChannelConnectivity.TRANSIENT_FAILURE,
            }:
                await channel.wait_for_state_change(state)
                state = channel.get_state()
        return state is grpc.ChannelConnectivity.READY


async def test_it_listens_while_this_operator_leads_and_only_then() -> None:
    held, port = asyncio.Event(), a_free_port()
    attending = Attending(
        port,
        made(ClusterInMemory()),
        NoKeys(),
        held,
        changed=lambda _: None,
        bundle_changed=lambda: None,
    )
    async with running(attending):
        await attending.first_bundle(PATIENCE_S)
        assert not await is_listening(port, attending.bundle())
        held.set()
        async with asyncio.timeout(PATIENCE_S):
            while not await is_listening(port, attending.bundle()):
                pass
        held.clear()
        async with asyncio.timeout(PATIENCE_S):
            while await is_listening(port, attending.bundle()):
                pass


async def test_the_first_cas_are_told_of_and_lie_in_the_secret() -> None:
    cluster, told = ClusterInMemory(), list[str]()
    attending = Attending(
        a_free_port(),
        made(cluster),
        NoKeys(),
        asyncio.Event(),
        changed=lambda _: None,
        bundle_changed=lambda: told.append("changed"),
    )
    assert attending.bundle() == ""
    async with running(attending):
        await attending.first_bundle(PATIENCE_S)
    assert told == ["changed"]
    stored = await AuthoritySecret(cluster, "own", "ca").read()
    assert stored is not None
    assert stored.data["ca.crt"] == attending.bundle()


async def test_waiting_for_cas_that_cannot_be_had_comes_to_an_end() -> None:
    def refuse(request: str) -> None:
        raise ApiError(request, 403, "not allowed")

    attending = Attending(
        a_free_port(),
        made(ClusterInMemory(fail=refuse)),
        NoKeys(),
        asyncio.Event(),
        changed=lambda _: None,
        bundle_changed=lambda: None,
    )
    async with running(attending):
        await attending.first_bundle(0.01)
    assert attending.bundle() == ""


async def test_the_first_attempt_is_repeated_until_the_secret_can_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(certificate_sources, "_RETRY_S", 0.0)
    num_left = 3

    def refuse(request: str) -> None:
        nonlocal num_left
        num_left -= 1
        if num_left >= 0:
            raise ApiError(request, 503, "busy")

    certificate = made(ClusterInMemory(fail=refuse))
    task = asyncio.create_task(certificate.run(lambda: None))
    await until(lambda: bool(certificate.bundle()))
    task.cancel()
    await asyncio.wait([task])


async def test_of_two_operators_that_write_the_secret_one_is_told_so() -> None:
    cluster = ClusterInMemory()
    store = AuthoritySecret(cluster, "own", "ca")
    assert await store.write({"ca.crt": "a"}, None)
    assert not await store.write({"ca.crt": "b"}, None)
    stored = await store.read()
    assert stored is not None
    assert await store.write({"ca.crt": "c"}, stored.version)
    assert not await store.write({"ca.crt": "d"}, stored.version)
    (secret,) = cluster.of_kind(Kind.SECRET)
    assert secret["metadata"]["name"] == "ca"


async def test_a_secret_keeps_what_its_release_wrote_on_it() -> None:
    cluster = ClusterInMemory()
    metadata = {"name": "ca", "namespace": "own", "labels": {"a": "b"}}
    cluster.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    store = AuthoritySecret(cluster, "own", "ca")
    stored = await store.read()
    assert stored is not None
    assert await store.write({"ca.crt": "c"}, stored.version)
    (secret,) = cluster.of_kind(Kind.SECRET)
    assert secret["metadata"]["labels"] == {"a": "b"}
    after = await store.read()
    assert after is not None
    assert after.data == {"ca.crt": "c"}


async def test_mounted_cas_are_told_of_when_they_are_other_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(certificate_sources, "_RETRY_S", 0.01)
    monkeypatch.setattr(certificate_sources, "_MOUNTED_LOOK_S", 0.01)
    authority = make_authority(time.time())
    pair, _ = issue_pair(authority, time.time())
    certificate, told = KeptCertificate(MountedPair(tmp_path)), list[str]()
    task = asyncio.create_task(certificate.run(lambda: told.append(certificate.bundle())))
    await asyncio.sleep(0)
    assert certificate.bundle() == "", "there are no files yet"
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    (tmp_path / "ca.crt").write_text("first")
    await until(lambda: told == ["first"])
    (tmp_path / "ca.crt").write_text("second")
    await until(lambda: told == ["first", "second"])
    assert certificate.pair() == pair
    (tmp_path / "ca.crt").unlink()
    task.cancel()
    await asyncio.wait([task])
    assert certificate.bundle() == "second"


async def test_when_to_look_again_is_told_in_seconds_since_1970() -> None:
    attending = Attending(
        a_free_port(),
        made(ClusterInMemory()),
        NoKeys(),
        asyncio.Event(),
        changed=lambda _: None,
        bundle_changed=lambda: None,
    )
    spec = resource_from_document(changed({}), "test").spec
    before_s = time.time()
    report = attending.report("uid", spec)
    assert report is not None
    assert report.look_again_at_s is not None
    assert before_s <= report.look_again_at_s <= time.time() + 3600
    later = since_1970(report, 5.0)
    assert later.look_again_at_s == report.look_again_at_s + 5.0
