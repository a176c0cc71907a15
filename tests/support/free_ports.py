"""A port for a server that is told which one to listen on."""

import socket


def a_free_port(host: str = "127.0.0.1") -> int:
    """One that was free a moment ago."""
    with socket.create_server((host, 0)) as listener:
        number: int = listener.getsockname()[1]
        return number
