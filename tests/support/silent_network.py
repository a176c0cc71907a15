"""A network between a client and a server that may fall silent: packets vanish, nothing closes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_HOST = "127.0.0.1"
_PIECE_BYTES = 1 << 16


class SilentNetwork:
    """Leads connections to a server on loopback until it falls silent.

    Attributes:
        port: to connect to.
        num_connections: that were made so far.
        num_pieces: that clients have sent so far, whatever was in them.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0
        self.num_connections = 0
        self.num_pieces = 0

    def fall_silent(self) -> None:
        """Carry nothing on the connections of now any more; later ones are carried."""
        for task in self._tasks:
            task.cancel()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection, both ways."""
        self.num_connections += 1
        their_reader, their_writer = await asyncio.open_connection(_HOST, self._target_port)
        # Kept, so that no end of them closes anything.
        self._writers += [writer, their_writer]
        for task in (
            asyncio.create_task(self._carry(reader, their_writer, is_clients=True)),
            asyncio.create_task(self._carry(their_reader, writer, is_clients=False)),
        ):
            self._tasks.add(task)

    async def close(self) -> None:
        """Close every connection, the silent ones too."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # transports close in the loop's next turn

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_clients: bool
    ) -> None:
        while piece := await reader.read(_PIECE_BYTES):
            self.num_pieces += is_clients
            writer.write(piece)
        writer.close()


@asynccontextmanager
async def network_to(target_port: int) -> AsyncIterator[SilentNetwork]:
    """Such a network until the block ends."""
    network = SilentNetwork(target_port)
    server = await asyncio.start_server(network.serve, _HOST, 0)
    network.port = server.sockets[0].getsockname()[1]
    try:
        yield network
    finally:
        server.close()
        await network.close()
