"""All pods of one run: from rendered objects to processes, and to the end of all of them."""

import os
import queue
import random
import secrets
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pipelineserve_cli.ending import EndRequests
from pipelineserve_cli.pods.addresses import Network, names_of
from pipelineserve_cli.pods.containers import Listeners
from pipelineserve_cli.pods.keepers import RunKeeper
from pipelineserve_cli.pods.keeping import KeptTexts
from pipelineserve_cli.pods.launches import Surroundings
from pipelineserve_cli.pods.pod import Pod
from pipelineserve_cli.pods.specs import KeptFiles, KeptKind, PodSpec
from pipelineserve_cli.pods.volumes import SHARED_MEMORY, HostFolders, PodVolumes
from pipelineserve_operator.render import JsonObject

_KEY_BYTES = 32
_LOOK_PERIOD_S = 0.1


@dataclass(frozen=True, slots=True)
class Machine:
    """What of this machine outlasts a run.

    Attributes:
        claims: a folder in it for each PersistentVolumeClaim.
        shared: by the containers' path, what stands for an empty volume there.
        pythons: by image, where another one stands for it than the one that runs this.
    """

    claims: Path
    shared: Mapping[str, Path]
    pythons: Mapping[str, Path]


class PodRunner:
    """The pods of one run; they begin and end with the block.

    Args:
        pods: to run.
        objects: those among which their ConfigMaps are.
        machine: that they run on.
        listeners: hear of the containers, from threads.
        end_requests: one more while pods end, and they are ended by force.
    """

    def __init__(
        self,
        pods: Sequence[PodSpec],
        objects: Sequence[JsonObject],
        machine: Machine,
        listeners: Listeners,
        end_requests: EndRequests,
    ) -> None:
        self._specs = tuple(pods)
        self._machine = machine
        self._listeners = listeners
        self._end_requests = end_requests
        self._texts = KeptTexts()
        self._texts.apply(objects)
        self._errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self._stack = ExitStack()
        self.pods: tuple[Pod, ...] = ()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            network = Network(random.Random())  # noqa: S311 # it spreads runs, it guards nothing
            stack.callback(network.close)
            mark = secrets.token_hex(6)
            folders = _make_folders(mark, self._machine)
            grace_s = max((pod.grace_s for pod in self._specs), default=0.0)
            own = [folders.run, folders.memory]
            stack.enter_context(RunKeeper(mark, grace_s, own, [network.lock.fileno()]))
            self._make_group_keys()
            self.pods = self._make_pods(network, mark, folders)
            stack.push(self._end)
            for pod in self.pods:
                pod.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all pods in order; a second Ctrl-C ends them by force."""
        self._stack.__exit__(error_type, error, trace)

    def apply(self, objects: Sequence[JsonObject]) -> None:
        """Take over changed ConfigMaps: files at once, variables at a container's next start."""
        self._texts.apply(objects)
        for pod in self.pods:
            pod.volumes.refresh()

    def check(self) -> None:
        """Raise what went wrong in the runner itself, if anything did."""
        if not self._errors.empty():
            raise self._errors.get()

    def _make_pods(self, network: Network, mark: str, folders: HostFolders) -> tuple[Pod, ...]:
        names = names_of(self._specs, network.addresses(self._specs))
        made = []
        for index, spec in enumerate(self._specs):
            volumes = PodVolumes(spec, index, folders, self._texts)
            volumes.make()
            around = Surroundings(spec, names, self._texts, os.environ, mark, self._machine.pythons)
            made.append(Pod(around, volumes, self._listeners, self._errors.put))
        return tuple(made)

    def _make_group_keys(self) -> None:
        """Secrets that pods mount as files are their groups' keys: nobody else's are rendered."""
        wanted = {
            source.name: source.paths
            for pod in self._specs
            for source in pod.volumes.values()
            if isinstance(source, KeptFiles) and source.kind is KeptKind.SECRET
        }
        for name, paths in wanted.items():
            self._texts.add_secret(name, {key: secrets.token_hex(_KEY_BYTES) for key in paths})

    def _end(self, *_: object) -> None:
        num_noted = self._end_requests.num_noted
        for pod in self.pods:
            pod.ask_to_end()
        now_s = time.monotonic()
        deadline_s = now_s + max((pod.grace_s for pod in self._specs), default=0.0)
        while not all(pod.has_ended(min(now_s + _LOOK_PERIOD_S, deadline_s)) for pod in self.pods):
            now_s = time.monotonic()
            # Whoever asks twice does not want to wait.
            if now_s >= deadline_s or self._end_requests.num_noted > num_noted:
                for pod in self.pods:
                    pod.kill()
                return


def _make_folders(mark: str, machine: Machine) -> HostFolders:
    name = f"pserve-{mark}"
    run = Path(tempfile.gettempdir()) / name
    memory = (SHARED_MEMORY if SHARED_MEMORY.is_dir() else run) / name
    for folder in (run, memory):
        folder.mkdir(mode=0o700)
    return HostFolders(run, memory, machine.claims, machine.shared)
