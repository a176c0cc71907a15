"""A cluster's tokens, an operator to attend to, and sidecars that say what a test wants."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from pipelineserve.wire import keepalive
from pipelineserve.wire.keepalive import Keepalive
from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve.wire.v1.operator_pb2_grpc import OperatorLinkStub
from pipelineserve_operator.attend import (
    SERVER_NAME,
    AttendServer,
    AttendSettings,
    KeyPair,
    Keys,
    Roster,
    StreamBounds,
)
from pipelineserve_operator.attend.keys import SigningKey, parse_keys
from pipelineserve_operator.authorities import Authority
from pipelineserve_operator.issuing import issue_pair, make_authority
from pipelineserve_operator.link import Offered

ISSUER = "https://kubernetes.default.svc.cluster.local"
AUDIENCE = "pipelineserve.dev"
HOST = "127.0.0.1"
Call = grpc.aio.StreamStreamCall[pb.ControllerStatus, pb.Objectives]
# Nothing on one machine takes longer unless it hangs.
PATIENCE_S = 20.0


class TokenIssuer:
    """Signs tokens as a cluster does; `key_id` is what its key is published under."""

    def __init__(self, key_id: str = "key-1", issuer: str = ISSUER) -> None:
        self.key_id = key_id
        self.key = ec.generate_private_key(ec.SECP256R1())
        self._issuer = issuer

    @property
    def described(self) -> bytes:
        """What the API server says of the issuer."""
        return json.dumps({"issuer": self._issuer}).encode()

    @property
    def published(self) -> bytes:
        """The set of its one key."""
        entry = json.loads(ECAlgorithm.to_jwk(self.key.public_key()))
        entry |= {"kid": self.key_id, "alg": "ES256", "use": "sig"}
        return json.dumps({"keys": [entry]}).encode()

    def token(
        self, changes: Mapping[str, Any] | None = None, headers: Mapping[str, Any] | None = None
    ) -> str:
        """A token of the usual pod; `...` leaves a claim out."""
        payload = json.dumps(claims(changes or {})).encode()
        return self.signed(payload, headers)

    def signed(self, payload: bytes, headers: Mapping[str, Any] | None = None) -> str:
        """A token that says anything at all."""
        named = {"kid": self.key_id, **(headers or {})}
        return jwt.PyJWS().encode(payload, self.key, "ES256", named)


def claims(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the usual pod's token, with changes at dotted paths below `pod:` or at the top."""
    now_s = time.time()
    all_claims: dict[str, Any] = {
        "iss": ISSUER,
        "aud": [AUDIENCE],
        "sub": "system:serviceaccount:models:small-pods",
        "iat": int(now_s),
        "nbf": int(now_s),
        "exp": int(now_s) + 3600,
        "kubernetes.io": {
            "namespace": "models",
            "pod": {"name": "small-r0-e0-0", "uid": "pod-0"},
            "serviceaccount": {"name": "small-pods", "uid": "account"},
        },
    }
    for path, value in changes.items():
        *outer, last = path.split("/")
        inner = all_claims
        for name in outer:
            inner = inner[name]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value
    return all_claims


def of_pod(index: int) -> dict[str, Any]:
    """Changes that make a token another pod's of the same resource."""
    return {"kubernetes.io/pod": {"name": f"small-r{index}-e0-0", "uid": f"pod-{index}"}}


class GivenKeys:
    """The keys of an issuer, at hand."""

    def __init__(self, issuer: TokenIssuer) -> None:
        self._keys = parse_keys(issuer.described, issuer.published)

    async def find(self, key_id: str) -> SigningKey | None:
        """The key of this id."""
        return self._keys.get(key_id)


class GivenPair:
    """A certificate that a test may replace."""

    def __init__(self, authority: Authority | None = None) -> None:
        self.authority = authority or make_authority(time.time())
        self.present = issue_pair(self.authority, time.time())[0]

    def pair(self) -> KeyPair:
        """The present one."""
        return self.present

    def replace(self, authority: Authority) -> None:
        """Serve with one of another CA from now on."""
        self.authority, self.present = authority, issue_pair(authority, time.time())[0]


def offered(generation: int = 1, num_pods: int = 1, **changes: Any) -> Offered:
    """What the usual resource's sidecars are told; its pods are pod-0, pod-1, and so on."""
    fields: dict[str, Any] = {
        "uid": "uid",
        "namespace": "models",
        "name": "small",
        "generation": generation,
        "spec_json": json.dumps({"slo": {"ttft": {"milliseconds": 1000 + generation}}}),
        "service_account": "small-pods",
        "pod_uids": frozenset(f"pod-{index}" for index in range(num_pods)),
    }
    return Offered(**{**fields, **changes})


@dataclass
class RunningOperator:
    """What runs, for a test to look at."""

    server: AttendServer
    roster: Roster
    issuer: TokenIssuer
    source: GivenPair
    changed: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{HOST}:{self.server.port}"


@asynccontextmanager
async def operator_running(
    issuer: TokenIssuer | None = None,
    *,
    source: GivenPair | None = None,
    keys: Keys | None = None,
    port: int = 0,
    num_streams: int = 100,
    bounds: StreamBounds | None = None,
    pings: Keepalive = keepalive.OPERATOR,
    allowed_pings: Keepalive = keepalive.SIDECAR,
    clock_s: Callable[[], float] = time.monotonic,
) -> AsyncIterator[RunningOperator]:
    """A server on the loopback address until the block ends."""
    issuer, source = issuer or TokenIssuer(), source or GivenPair()
    changed: list[str] = []
    roster = Roster(changed.append, clock_s)
    settings = AttendSettings(
        f"{HOST}:{port}",
        AUDIENCE,
        num_streams,
        bounds or StreamBounds(status_gap_s=0.0),
        pings,
        allowed_pings,
    )
    server = AttendServer(settings, roster, keys or GivenKeys(issuer), source, clock_s=clock_s)
    await server.start()
    try:
        yield RunningOperator(server, roster, issuer, source, changed)
    finally:
        await server.stop()


@asynccontextmanager
async def channel_to(
    operator: RunningOperator, trusted: str | None = None, server_name: str = SERVER_NAME
) -> AsyncIterator[grpc.aio.Channel]:
    """A connection that trusts the operator's CA, or the given ones."""
    bundle = operator.source.authority.certificate if trusted is None else trusted
    options = [
        ("grpc.ssl_target_name_override", server_name),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    credentials = grpc.ssl_channel_credentials(bundle.encode())
    async with grpc.aio.secure_channel(operator.address, credentials, options=options) as channel:
        yield channel


@asynccontextmanager
async def attending(
    operator: RunningOperator, token: str | None = None, trusted: str | None = None
) -> AsyncIterator[Call]:
    """An open call; the usual pod's token unless another is given."""
    shown = operator.issuer.token() if token is None else token
    async with channel_to(operator, trusted) as channel:
        call: Call = OperatorLinkStub(channel).Attend(
            metadata=(("authorization", f"Bearer {shown}"),)
        )
        yield call


async def told(call: Call) -> pb.Objectives:
    """The next objectives."""
    message = await asyncio.wait_for(call.read(), PATIENCE_S)
    assert isinstance(message, pb.Objectives), "expected objectives, the call has ended"
    return message


async def refused(call: Call) -> tuple[grpc.StatusCode, str]:
    """Code and message that the call ends with, whatever is told before."""
    try:
        while await asyncio.wait_for(call.read(), PATIENCE_S) is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return await call.code(), await call.details()


def status(replica_index: int = 0, **fields: Any) -> pb.ControllerStatus:
    """A good word of the usual resource's sidecar."""
    return pb.ControllerStatus(resource_uid="uid", replica_index=replica_index, **fields)
