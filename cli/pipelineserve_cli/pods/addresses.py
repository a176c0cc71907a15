"""Every pod has an address of its own on loopback, and the names of pods stand for addresses."""

import random
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_cli.pods.specs import PodSpec

# Loopback is 127.0.0.0/8; what people give out by hand is at its beginning.
_SECOND_BYTES = range(64, 128)
_MOST_PODS = 250
_NUM_TRIES = 100
# All that listens within a pod, and what a pod calls itself: both are its own address here.
_OWN_ADDRESS = re.compile(r"(?<![\w.])(?:0\.0\.0\.0|127\.0\.0\.1)(?![\w.])")


class Network:
    """Addresses that no other run on this machine gives to its pods while the block lasts.

    Args:
        chance: where the search for a free one begins.

    Raises:
        EngineUnavailableError: none was free.
    """

    def __init__(self, chance: random.Random) -> None:
        for _ in range(_NUM_TRIES):
            self._prefix = f"127.{chance.choice(_SECOND_BYTES)}.{chance.randrange(256)}"
            if (lock := _locked(self._prefix)) is not None:
                self.lock = lock
                return
        raise EngineUnavailableError(
            "no free network on loopback for the pods; end a `pserve local up` that runs"
        )

    def close(self) -> None:
        """Let others have it, once who inherited the lock has ended too."""
        self.lock.close()

    def addresses(self, pods: Sequence[PodSpec]) -> dict[str, str]:
        """One for each pod, by the pod's name.

        Raises:
            EngineUnavailableError: there are more pods than addresses.
        """
        if len(pods) > _MOST_PODS:
            raise EngineUnavailableError(
                f"expected at most {_MOST_PODS} pods, got {len(pods)}; put more stages into a pod"
            )
        return {pod.name: f"{self._prefix}.{place}" for place, pod in enumerate(pods, start=1)}


@dataclass(frozen=True)
class PodNames:
    """The names of pods in texts, replaced by their addresses.

    Attributes:
        addresses: by pod name.
        services: headless Services that pods' longer names end in.
    """

    addresses: Mapping[str, str]
    services: frozenset[str]

    def resolved(self, text: str) -> str:
        """`text` with every name of a pod, short or with its Service, as an address."""
        return self._pattern().sub(lambda match: self.addresses[match[1]], text)

    def within(self, pod_name: str, text: str) -> str:
        """The same for an argument of this pod, in which loopback and any address are its own."""
        return _OWN_ADDRESS.sub(self.addresses[pod_name], self.resolved(text))

    def _pattern(self) -> re.Pattern[str]:
        pods = "|".join(map(re.escape, self.addresses))
        services = "|".join(map(re.escape, self.services))
        # The cluster's domain may follow; a name never ends in the middle of a longer one.
        service = rf"(?:\.(?:{services})(?:\.[a-z0-9-]+)*)?"
        return re.compile(rf"(?<![\w.-])({pods}){service}(?![\w-]|\.\w)")


def names_of(pods: Sequence[PodSpec], addresses: Mapping[str, str]) -> PodNames:
    """The names that these pods have in a cluster."""
    return PodNames(addresses, frozenset(pod.service_name for pod in pods))


def _locked(prefix: str) -> socket.socket | None:
    """A name that the kernel frees when its last holder is gone; None if somebody has it."""
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind(f"\0pipelineserve-{prefix}")
    except OSError:
        lock.close()
        return None
    return lock
