"""A recorded run: the pods that `pserve local up` starts, under the demo's mixed load."""

from pathlib import Path

from rich.console import Console

from pipelineserve.api import EngineType, PipelineServe
from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_cli.demo import run_plan
from pipelineserve_cli.demo_plan import mixed_plan
from pipelineserve_cli.ending import EndRequests
from pipelineserve_cli.local_objects import with_engine_argument
from pipelineserve_cli.local_server import LocalServer


def record_demo(
    resource: PipelineServe,
    record_file: Path,
    *,
    port: int,
    seed: int,
    num_requests: int,
    rate_per_s: float,
    console: Console,
) -> None:
    """Serve, send the load, end; the record is whole when this returns.

    Raises:
        PipelineServeError: the engine keeps no record or did not start, or a request failed.
        KeyboardInterrupt: Ctrl-C.
    """
    engine = resource.spec.engine.type
    if engine is not EngineType.TORCH:
        text = f"only Torch keeps a record of its stages, got {engine.value}; set it to Torch"
        raise InvalidInputError(
            f"PipelineServe {resource.name} to be recorded", [Fault("spec.engine.type", text)]
        )
    traced = with_engine_argument(resource, f"--trace-file={record_file.absolute()}")
    with (
        EndRequests() as end_requests,
        LocalServer(
            traced, port, None, console, lambda _: None, end_requests=end_requests
        ) as server,
    ):
        server.wait_ready()
        plan = mixed_plan(seed, num_requests, rate_per_s)
        with end_requests.heeded_anywhere():
            run_plan(plan, server.url, resource, console)
