"""A recorded run: the engine as `pserve local up` starts it, under the demo's mixed load."""

from pathlib import Path

from rich.console import Console

from pipelineserve.api import PipelineServe
from pipelineserve_cli.demo import run_plan
from pipelineserve_cli.demo_plan import mixed_plan
from pipelineserve_cli.engine_flags import drain_s, engine_flags
from pipelineserve_cli.engine_process import EngineProcess
from pipelineserve_cli.local import model_folder


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
        PipelineServeError: the engine did not start, or a request failed.
        KeyboardInterrupt: Ctrl-C.
    """
    flags = engine_flags(resource, model_folder(resource, console), port)
    flags.append(f"--trace-file={record_file.absolute()}")
    stages = resource.spec.parallelism.stages
    with EngineProcess(flags, port, drain_s(resource), lambda _: None) as engine:
        with console.status(f"Loading {resource.served_name} into {stages} stages"):
            engine.wait_ready()
        plan = mixed_plan(seed, num_requests, rate_per_s)
        run_plan(plan, engine.url, resource, console)
