"""One open stream of a sidecar: what it is to be told next, or why it must end."""

import asyncio

from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve_operator.attend.refusals import RefusedError
from pipelineserve_operator.attend.tokens import PodIdentity
from pipelineserve_operator.link import Offered


class Attendance:
    """Holds the newest offer only, so that a slow reader misses old ones and delays nobody."""

    def __init__(self, identity: PodIdentity, offered: Offered) -> None:
        self.identity = identity
        self._offered = offered
        self._told: tuple[int, str] | None = None
        self._ending: RefusedError | None = None
        self._is_closed = False
        self._has_news = asyncio.Event()

    @property
    def uid(self) -> str:
        """The resource that it speaks for."""
        return self._offered.uid

    def offer(self, offered: Offered) -> None:
        """Tell this next, unless it says what was told already."""
        self._offered = offered
        self._has_news.set()

    def end(self, refusal: RefusedError) -> None:
        """Have the stream end with this."""
        self._ending = refusal
        self._has_news.set()

    def close(self) -> None:
        """Tell nothing more, since nobody listens."""
        self._is_closed = True
        self._has_news.set()

    def news(self) -> pb.Objectives | None:
        """What the sidecar has not been told yet, which from now on it has; None: nothing.

        Raises:
            RefusedError: the stream must end.
        """
        if self._ending is not None:
            raise self._ending
        offered = self._offered
        if (offered.generation, offered.spec_json) == self._told:
            return None
        self._told = (offered.generation, offered.spec_json)
        return pb.Objectives(
            resource_uid=offered.uid, generation=offered.generation, spec_json=offered.spec_json
        )

    async def next_objectives(self) -> pb.Objectives | None:
        """Wait for news; None once it is closed.

        Raises:
            RefusedError: the stream must end.
        """
        while not self._is_closed:
            if (objectives := self.news()) is not None:
                return objectives
            self._has_news.clear()
            await self._has_news.wait()
        return None
