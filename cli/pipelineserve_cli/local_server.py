"""A resource served on this machine: its pods, and the two ports by which people reach them."""

import os
import queue
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
from rich.console import Console
from rich.status import Status
from rich.text import Text

from pipelineserve.api import EngineType, PipelineServe
from pipelineserve.errors import ControllerUnavailableError, EngineUnavailableError
from pipelineserve.model_cache import default_cache_dir
from pipelineserve_cli.ending import EndRequests
from pipelineserve_cli.local_failures import controller_failure, failure_of
from pipelineserve_cli.local_limits import require_local
from pipelineserve_cli.local_objects import SGLANG_IMAGE, LocalObjects
from pipelineserve_cli.pods.containers import ContainerEnd, ContainerId, Listeners
from pipelineserve_cli.pods.forwarding import PortForward
from pipelineserve_cli.pods.pod import Pod
from pipelineserve_cli.pods.runner import Machine, PodRunner
from pipelineserve_cli.pods.volumes import SHARED_MEMORY
from pipelineserve_cli.sglang_python import chosen_python, require_sglang
from pipelineserve_operator.render import places
from pipelineserve_operator.render.containers import SIDECAR

_LOOK_PERIOD_S = 0.1


class LocalServer:
    """One replica with its controller, within the block.

    Args:
        resource: what is served.
        port: of the API on loopback.
        page_port: of the controller's page on loopback; None runs no controller.
        console: for progress.
        show_log: called with each line of a log, from threads.
        end_requests: heeded while it waits; one that comes while pods end ends them by force.
        sglang_python: that SGLang runs in; None: the one that runs this, if it has it.

    Raises:
        PipelineServeError: the resource asks for what cannot run here.
    """

    def __init__(
        self,
        resource: PipelineServe,
        port: int,
        page_port: int | None,
        console: Console,
        show_log: Callable[[str], None],
        *,
        end_requests: EndRequests,
        sglang_python: Path | None = None,
    ) -> None:
        python = chosen_python(sglang_python)
        require_local(resource, python)
        self._pythons = {} if python is None else {SGLANG_IMAGE: python}
        if python is not None and resource.spec.engine.type is EngineType.SGLANG:
            require_sglang(python)
        self._port, self._page_port = port, page_port
        self._console = console
        self._show_log = show_log
        self._end_requests = end_requests
        self._objects = LocalObjects(resource)
        self._pods = self._objects.pods(has_control=page_port is not None)
        self._initial = {
            ContainerId(pod.name, one.name) for pod in self._pods for one in pod.initial
        }
        self._ends: queue.SimpleQueue[ContainerEnd] = queue.SimpleQueue()
        self._progress: queue.SimpleQueue[str] = queue.SimpleQueue()
        stages = resource.spec.parallelism.stages
        self._loading = f"Loading {resource.served_name} into {stages} stages"
        self._is_loading = False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._api = stack.enter_context(self._api_forward())
            self._page = None
            if self._page_port is not None:
                self._page = stack.enter_context(self._page_forward(self._page_port))
            listeners = Listeners(self._hear_line, self._ends.put)
            machine = _this_machine(self._pythons)
            runner = PodRunner(
                self._pods, self._objects.objects, machine, listeners, self._end_requests
            )
            self._runner = stack.enter_context(runner)
            self._api.lead_to(self._leader.address, places.API_PORT)
            if self._page is not None:
                self._page.lead_to(self._leader.address, places.PAGE_PORT)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all pods; running requests may end, a second Ctrl-C ends at once."""
        self._stack.__exit__(error_type, error, trace)

    @property
    def url(self) -> str:
        """Base of the API."""
        return self._api.url

    @property
    def page_url(self) -> str:
        """Of the controller's page.

        Raises:
            ControllerUnavailableError: no controller runs.
        """
        if self._page is None:
            raise ControllerUnavailableError("no controller runs; leave --no-control out")
        return f"{self._page.url}/"

    def wait_ready(self) -> None:
        """Return when the API takes requests.

        Raises:
            PipelineServeError: a container ended instead; the message is its own.
        """
        with self._console.status(self._loading) as status:
            while not self._leader.is_ready:
                self._wait()
                self._show_progress(status)

    def wait_page(self) -> None:
        """Return when the controller's page is served.

        Raises:
            ControllerUnavailableError: the controller cannot run.
        """
        while not _answers(f"{self.page_url}readyz"):
            self._wait()
            if (failure := controller_failure(self._leader.last_lines(SIDECAR))) is not None:
                raise failure

    def news(self, wait_s: float) -> list[str]:
        """What ended within so many seconds and was started again."""
        self._check()
        try:
            ends = [self._ends.get(timeout=wait_s)]
        except queue.Empty:
            return []
        while not self._ends.empty():
            ends.append(self._ends.get())
        return [str(end) for end in ends]

    def apply(self, resource: PipelineServe) -> None:
        """Let the live fields of an edit hold."""
        self._runner.apply(self._objects.edited(resource))

    @property
    def _leader(self) -> Pod:
        return self._runner.pods[0]

    def _wait(self) -> None:
        """A moment; raises if a container has ended meanwhile."""
        self._check()
        try:
            raise failure_of(self._ends.get(timeout=_LOOK_PERIOD_S))
        except queue.Empty:
            return

    def _check(self) -> None:
        self._end_requests.check()
        self._runner.check()

    def _hear_line(self, container: ContainerId, line: str) -> None:
        self._show_log(f"{container}: {line}")
        if container in self._initial:
            self._progress.put(line)
        elif not self._is_loading:
            self._is_loading = True
            self._progress.put(self._loading)

    def _show_progress(self, status: Status) -> None:
        """What init containers say: it is what takes long, and what may fail for lack of a net."""
        while not self._progress.empty():
            line = self._progress.get()
            if self._console.is_terminal:
                status.update(Text(line))
            else:
                self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _api_forward(self) -> PortForward:
        try:
            return PortForward(self._port)
        except OSError as error:
            raise EngineUnavailableError(
                f"cannot listen on 127.0.0.1:{self._port}: {error.strerror}; "
                "choose another port with --port, or end the process that uses this one"
            ) from error

    def _page_forward(self, port: int) -> PortForward:
        try:
            return PortForward(port)
        except OSError as error:
            raise ControllerUnavailableError(
                f"the live page cannot listen on 127.0.0.1:{port}: {error.strerror}; "
                "choose another with --page-port, or run without with --no-control"
            ) from error


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _this_machine(pythons: Mapping[str, Path]) -> Machine:
    # Fetched weights stay where all runs find them, and the user's own home has keys to hubs.
    cache = default_cache_dir(os.environ).absolute()
    for folder in (cache, cache / "claims"):
        folder.mkdir(parents=True, exist_ok=True)
    shared = {
        places.CACHE_FOLDER: cache,
        places.HOME_FOLDER: Path.home(),
        str(SHARED_MEMORY): SHARED_MEMORY,
    }
    return Machine(cache / "claims", shared, pythons)
