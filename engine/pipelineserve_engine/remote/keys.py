"""Keys of the connections between hosts: all follow from one secret that the group shares."""

import hashlib
import hmac
import stat
from dataclasses import dataclass, field
from pathlib import Path

import zmq
from zmq.utils import z85

from pipelineserve.errors import EngineUnavailableError

_MIN_BYTES = 32
_MAX_BYTES = 4096

LEADER = "leader"
MEMBER = "member"
ZAP_DOMAIN = "group"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A Curve25519 key pair as ZeroMQ writes it."""

    public: bytes
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class GroupKey:
    """The group's secret. Who does not have it knows none of the keys, not even public ones."""

    secret: bytes = field(repr=False)

    def pair(self, role: str, generation: str = "") -> KeyPair:
        """The key pair of one side, by HMAC-SHA256.

        Args:
            role: `LEADER` or `MEMBER`.
            generation: of the sockets of one start of the group; empty for the control socket.
        """
        purpose = f"pipelineserve curve {role} {generation}".encode()
        secret = z85.encode(hmac.digest(self.secret, purpose, hashlib.sha256))
        return KeyPair(public=zmq.curve_public(secret), secret=secret)


def read_group_key(path: Path) -> GroupKey:
    """Read the secret: the file's bytes as they are.

    Raises:
        EngineUnavailableError: no file that can be read, or not one that keeps a secret.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            secret = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise EngineUnavailableError(
            f"group_key_file: {path} cannot be read: {error.strerror}; check path and permissions"
        ) from error
    if mode & stat.S_IRWXO:
        raise EngineUnavailableError(
            f"group_key_file: {path} is open to every user (mode {mode:04o}); "
            "take those rights away, for example with chmod 600"
        )
    if not _MIN_BYTES <= len(secret) <= _MAX_BYTES:
        got = f"more than {_MAX_BYTES}" if len(secret) > _MAX_BYTES else str(len(secret))
        raise EngineUnavailableError(
            f"group_key_file: {path} holds {got} bytes, expected {_MIN_BYTES} to {_MAX_BYTES} "
            "random ones; make it with head -c 32 /dev/urandom"
        )
    return GroupKey(secret)


def secure_server(socket: zmq.Socket[bytes], key: GroupKey, generation: str = "") -> None:
    """Let in only who has the group's secret; the context needs a `KeyGate`."""
    own = key.pair(LEADER, generation)
    socket.curve_secretkey = own.secret
    socket.curve_publickey = own.public
    socket.curve_server = True
    socket.zap_domain = ZAP_DOMAIN.encode()


def secure_client(socket: zmq.Socket[bytes], key: GroupKey, generation: str = "") -> None:
    """Talk only to a leader that has the group's secret."""
    own = key.pair(MEMBER, generation)
    socket.curve_secretkey = own.secret
    socket.curve_publickey = own.public
    socket.curve_serverkey = key.pair(LEADER, generation).public
