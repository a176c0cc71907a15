"""Work that ends when the client goes away."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from pipelineserve_engine.api.errors import ClientGoneError

ResultT = TypeVar("ResultT")


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Do the work, unless the client leaves first; the request's body must have been read.

    The work is cancelled, and has ended, when this returns or raises in any way.

    Raises:
        ClientGoneError: the client left before the work was done.
    """
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError("the client closed its connection before it had its answer")
        return task.result()
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
