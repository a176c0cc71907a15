"""A certificate that is replaced is served from then on; one that is broken changes nothing."""

import asyncio
import time
from pathlib import Path

import grpc
import pytest

from attend_parts import (
    GivenPair,
    attending,
    channel_to,
    offered,
    operator_running,
    refused,
    told,
)
from pipelineserve.wire.v1.operator_pb2_grpc import OperatorLinkStub
from pipelineserve_operator.attend import CertificateUnavailableError, KeyPair, MountedPair
from pipelineserve_operator.attend.certificates import ServedPair
from pipelineserve_operator.issuing import issue_pair, make_authority


def put(folder: Path, pair: KeyPair) -> None:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


def test_a_new_certificate_is_served_without_a_restart_and_open_streams_go_on() -> None:
    async def scenario() -> None:
        source = GivenPair()
        old_bundle = source.authority.certificate
        async with operator_running(source=source) as operator:
            operator.roster.offer(offered(1))
            async with attending(operator) as before:
                assert (await told(before)).generation == 1
                source.replace(make_authority(time.time()))
                operator.roster.offer(offered(2))
                assert (await told(before)).generation == 2
            async with attending(operator) as after:
                assert (await told(after)).generation == 2
            async with attending(operator, trusted=old_bundle) as distrusting:
                assert (await refused(distrusting))[0] is grpc.StatusCode.UNAVAILABLE

    asyncio.run(scenario())


def test_mounted_files_are_served_as_they_change(tmp_path: Path) -> None:
    old, new = make_authority(time.time()), make_authority(time.time())
    put(tmp_path, issue_pair(old, time.time())[0])
    (tmp_path / "ca.crt").write_text(old.certificate + new.certificate)
    mounted = MountedPair(tmp_path)
    assert mounted.bundle().count("BEGIN CERTIFICATE") == 2
    assert mounted.pair().key == (tmp_path / "tls.key").read_bytes()

    class Source(GivenPair):
        def pair(self) -> KeyPair:
            return mounted.pair()

    async def scenario() -> None:
        async with operator_running(source=Source(old)) as operator:
            operator.roster.offer(offered())
            for authority in (old, new):
                put(tmp_path, issue_pair(authority, time.time())[0])
                async with attending(operator, trusted=authority.certificate) as call:
                    assert (await told(call)).generation == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", ["other key", "no certificate", "no key", "taken away"])
def test_what_cannot_be_served_with_leaves_the_present_one_and_is_said_once(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        source = GivenPair()
        other = issue_pair(source.authority, time.time())[0]

        def pair() -> KeyPair:
            match fault:
                case "other key":
                    return KeyPair(source.present.certificate, other.key)
                case "no certificate":
                    return KeyPair(b"x", other.key)
                case "no key":
                    return KeyPair(other.certificate, b"x")
                case _:
                    raise CertificateUnavailableError("taken away")

        async with operator_running(source=source) as operator:
            operator.roster.offer(offered())
            source.pair = pair  # type: ignore[method-assign]
            for _ in range(2):
                async with attending(operator) as call:
                    assert (await told(call)).generation == 1

    asyncio.run(scenario())
    said = [record for record in caplog.records if "stays as it was" in record.getMessage()]
    assert len(said) == 1


def test_without_a_certificate_the_server_does_not_begin(tmp_path: Path) -> None:
    with pytest.raises(CertificateUnavailableError, match=r"tls\.crt"):
        MountedPair(tmp_path).pair()
    (tmp_path / "tls.crt").write_bytes(b"x" * (1 << 19))
    with pytest.raises(CertificateUnavailableError, match="at most"):
        MountedPair(tmp_path).pair()


def test_grpc_is_handed_a_certificate_only_when_it_is_another_one() -> None:
    source = GivenPair()
    served = ServedPair(source)
    assert served._changed() is None
    source.replace(source.authority)
    assert served._changed() is not None
    assert served._changed() is None


def test_another_name_than_the_operator_s_does_not_match() -> None:
    async def scenario() -> None:
        async with (
            operator_running() as operator,
            channel_to(operator, server_name="someone-else") as channel,
        ):
            call = OperatorLinkStub(channel).Attend()
            assert (await refused(call))[0] is grpc.StatusCode.UNAVAILABLE

    asyncio.run(scenario())
