"""Checks the key of everybody who connects to a leader's sockets."""

from types import TracebackType
from typing import Self

import zmq
from zmq.auth.thread import ThreadAuthenticator

from pipelineserve_engine.remote.keys import MEMBER, ZAP_DOMAIN, GroupKey


class KeyGate:
    """ZeroMQ's authentication handler (ZAP) of one context, in a thread of its own.

    Args:
        context: its secured sockets let nobody in before this has started.
        key: of the group.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], key: GroupKey) -> None:
        self._key = key
        self._allowed = frozenset({key.pair(MEMBER).public})
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(domain=ZAP_DOMAIN, credentials_provider=self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def allow(self, generation: str) -> None:
        """Let in the stages of this start of the group, and no longer those of earlier ones."""
        publics = {self._key.pair(MEMBER, name).public for name in ("", generation)}
        self._allowed = frozenset(publics)

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether this public key may connect; called by the authenticator."""
        del domain
        return key in self._allowed

    def close(self) -> None:
        """Let nobody in any more."""
        self._authenticator.stop()
