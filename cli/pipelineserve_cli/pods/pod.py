"""A pod: its init containers one after the other, then all others, until it is to end."""

import threading
import time
from collections.abc import Callable
from functools import partial

from pipelineserve_cli.pods.containers import Container, ContainerId, Listeners
from pipelineserve_cli.pods.launches import Launch, Surroundings, launch_of
from pipelineserve_cli.pods.probes import Prober
from pipelineserve_cli.pods.specs import ContainerSpec
from pipelineserve_cli.pods.volumes import PodVolumes


class Pod:
    """One pod of a run.

    Args:
        around: pod, names and environment.
        volumes: of the pod, which are there.
        listeners: who hears of its containers.
        on_error: called from a thread if the runner itself has failed.
    """

    def __init__(
        self,
        around: Surroundings,
        volumes: PodVolumes,
        listeners: Listeners,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.name = around.pod.name
        self.address = around.address
        self.volumes = volumes
        self._around = around
        self._listeners = listeners
        self._on_error = on_error
        self._ending = threading.Event()
        self._initial = [self._container(one) for one in around.pod.initial]
        self._running = {one.name: self._container(one) for one in around.pod.containers}
        self._probers = {
            one.name: Prober(one, self._running[one.name], self.address, self._launcher(one))
            for one in around.pod.containers
        }
        self._threads = [self._thread(self._initialise)]

    def start(self) -> None:
        """Begin; returns at once."""
        self._threads[0].start()

    @property
    def is_ready(self) -> bool:
        """Whether all containers are."""
        return all(prober.is_ready for prober in self._probers.values())

    def last_lines(self, container: str) -> tuple[str, ...]:
        """What a container wrote last."""
        return self._running[container].last_lines

    def ask_to_end(self) -> None:
        """SIGTERM to all containers at once, as a kubelet does."""
        self._ending.set()
        for container in (*self._initial, *self._running.values()):
            container.ask_to_end()

    def has_ended(self, deadline_s: float) -> bool:
        """Whether everything has ended by this time of the monotonic clock; waits for it."""
        for thread in list(self._threads):
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def kill(self) -> None:
        """End all at once; only after `ask_to_end`."""
        for container in (*self._initial, *self._running.values()):
            container.kill()

    def _initialise(self) -> None:
        for container in self._initial:
            if not container.run_until_done():
                return
        started = [self._thread(container.run) for container in self._running.values()]
        started += [
            self._thread(partial(prober.run, self._ending)) for prober in self._probers.values()
        ]
        self._threads += started
        for thread in started:
            thread.start()

    def _thread(self, work: Callable[[], object]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - whoever waits for the pod must hear it
                self._on_error(error)

        # Daemons: an end by force waits for none of them.
        return threading.Thread(target=guarded, name=f"pod-{self.name}", daemon=True)

    def _container(self, spec: ContainerSpec) -> Container:
        return Container(
            ContainerId(self.name, spec.name),
            self._launcher(spec),
            self._around.mark_of(spec),
            self._around.pod.grace_s,
            self._listeners,
        )

    def _launcher(self, spec: ContainerSpec) -> Callable[[], Launch]:
        return partial(launch_of, spec, self.volumes.mounted(spec), self._around)
