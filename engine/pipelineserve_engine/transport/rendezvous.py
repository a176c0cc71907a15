"""How the stages of one group find each other for torch.distributed."""

import socket
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from torch._C._distributed_c10d import FileStore, Store, TCPStore

# Stages load for as long as they need; one that is gone is noticed through its process.
TIMEOUT = timedelta(hours=24)


class TcpRendezvous:
    """The table of addresses at the leader, for stages on several hosts; listens until closed.

    Args:
        host: the leader's own address, the only one that it listens on.
    """

    def __init__(self, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, 0), family=family) as listener:
            port: int = listener.getsockname()[1]
            # The store takes the descriptor over, and closes it.
            self._store: TCPStore | None = TCPStore(
                host,
                port,
                is_master=True,
                timeout=TIMEOUT,
                wait_for_workers=False,
                master_listen_fd=listener.detach(),
            )
        self.url = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"

    def close(self) -> None:
        """Listen no more."""
        self._store = None


def join(url: str, num_stages: int) -> Store:
    """The table that all stages of the group share.

    Args:
        url: tcp://HOST:PORT of a `TcpRendezvous`, or file:// of a file that only they know.
        num_stages: of the group.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return FileStore(str(Path(parts.path)), num_stages)
    assert parts.hostname is not None  # noqa: S101 - made by TcpRendezvous
    assert parts.port is not None  # noqa: S101 - made by TcpRendezvous
    return TCPStore(parts.hostname, parts.port, is_master=False, timeout=TIMEOUT)
