"""A port of this machine for a port of a pod, as `kubectl port-forward` gives one."""

import asyncio
import socket
import threading
from types import TracebackType
from typing import Self

_PIECE_BYTES = 1 << 16
_HOST = "127.0.0.1"


class PortForward:
    """Listens on loopback from its making on; connections go to a pod within the block.

    Args:
        port: on loopback.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server((_HOST, port))
        self.url = f"http://{_HOST}:{self._listener.getsockname()[1]}"
        self._target: tuple[str, int] | None = None
        self._events = asyncio.new_event_loop()
        self._is_over = asyncio.Event()
        # The loop itself holds its tasks only weakly, and a stream does not hold who reads it.
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="forward", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the port and every connection."""
        self._events.call_soon_threadsafe(self._is_over.set)
        self._thread.join()
        self._listener.close()

    def lead_to(self, host: str, port: int) -> None:
        """Where connections go from now on; before, they are closed."""
        self._target = (host, port)

    def _run(self) -> None:
        self._events.run_until_complete(self._forward())
        self._events.close()

    async def _forward(self) -> None:
        """Until it is over, which may be before it has begun."""
        server = await asyncio.start_server(self._begin, sock=self._listener)
        await self._is_over.wait()
        await _close(server)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._events.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._target is not None:
                await _join(reader, writer, self._target)
        except OSError:
            pass  # nobody listens there now; the client sees its connection end
        finally:
            writer.close()


async def _close(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # transports close in the loop's next turn


async def _join(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: tuple[str, int]
) -> None:
    """Carry bytes both ways until the pod's side ends, or one of them breaks."""
    their_reader, their_writer = await asyncio.open_connection(*target)
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_copy(reader, their_writer))
            await _copy(their_reader, writer)
            writer.close()  # which ends the other direction too
    except* OSError:
        pass  # a side that broke off has nobody to be told
    finally:
        their_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
