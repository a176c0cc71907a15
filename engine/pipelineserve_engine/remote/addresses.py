"""Hosts and ports as ZeroMQ writes them."""

import socket

import zmq

from pipelineserve.errors import EngineUnavailableError, Fault, InvalidInputError


def tcp_address(host: str, port: int | str) -> str:
    """ZeroMQ's address; IPv6 in brackets."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def parse_host_port(text: str) -> tuple[str, int]:
    """Read HOST:PORT, IPv6 in brackets.

    Raises:
        InvalidInputError: it is something else.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        fault = Fault("leader", f"expected HOST:PORT like 10.0.0.7:7600, got {text}")
        raise InvalidInputError("the stage host's configuration", [fault])
    return host.strip("[]"), int(port)


def resolve(host: str) -> str:
    """The address of a host by name; sockets are bound to addresses only.

    Raises:
        EngineUnavailableError: there is none.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise EngineUnavailableError(
            f"leader_address: {host} cannot be resolved: {error}; check the name"
        ) from error
    return str(found[0][4][0])


def bind_tcp(bound: zmq.Socket[bytes], host: str, port: int | None = None) -> str:
    """Listen on one address of this host, on a free port unless one is given.

    Returns:
        What others connect to.

    Raises:
        EngineUnavailableError: the address is taken or not this host's.
    """
    bound.ipv6 = ":" in host
    try:
        bound.bind(tcp_address(host, "*" if port is None else port))
    except zmq.ZMQError as error:
        raise EngineUnavailableError(
            f"cannot listen on {host}:{port or 'any port'}: {error}; "
            "choose another leader_address or leader_port"
        ) from error
    return bound.get_string(zmq.LAST_ENDPOINT)
