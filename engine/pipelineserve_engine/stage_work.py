"""What a stage does once its process runs: load, join its neighbours, compute step by step."""

import os
import time
from pathlib import Path

import torch

from pipelineserve_engine.kv_cache import HostPoolShape
from pipelineserve_engine.server_link import ServerLink
from pipelineserve_engine.stage_messages import ReadyReport, StepCommand
from pipelineserve_engine.stage_model import StageModel, StageShape
from pipelineserve_engine.stage_runner import StageOutput, StageRunner
from pipelineserve_engine.step_loop import StepLoop
from pipelineserve_engine.transport.opening import open_transport
from pipelineserve_engine.worker_settings import WorkerSettings


class _FinishingRunner:
    """Ends each step when the GPU has computed it, so that its time is the step's."""

    def __init__(self, runner: StageRunner, device: torch.device) -> None:
        self._runner = runner
        self._device = device

    def run(self, command: StepCommand, hidden: torch.Tensor | None) -> StageOutput:
        """See `StageRunner.run`."""
        output = self._runner.run(command, hidden)
        torch.cuda.current_stream(self._device).synchronize()
        return output


def run_stage(settings: WorkerSettings, link: ServerLink) -> None:
    """Load, report ready, then run commands until told to stop.

    Raises:
        PipelineServeError: the model's files, the neighbours or the server are not to be had.
    """
    torch.set_num_threads(settings.num_threads)
    device = torch.device(settings.device)
    model = StageModel(Path(settings.model_folder), _shape_of(settings, device))
    runner = StageRunner(model, settings.block_tokens)
    transport = open_transport(
        settings.endpoints.links,
        stage_index=settings.stage_index,
        num_stages=settings.num_stages,
        num_slots=settings.num_slots,
        hidden_size=model.hidden_size,
        dtype=model.shape.dtype,
        device=device,
    )
    link.report(
        ReadyReport(
            stage_index=settings.stage_index,
            pid=os.getpid(),
            weight_bytes=model.weight_bytes,
            kv_bytes=model.kv_bytes,
            copy_s_per_block=model.measure_copy_s(time.monotonic),
        )
    )
    StepLoop(
        stage_index=settings.stage_index,
        commands=link.commands,
        transport=transport,
        runner=_FinishingRunner(runner, device) if device.type == "cuda" else runner,
        report=link.report,
    ).run()
    transport.close()


def _shape_of(settings: WorkerSettings, device: torch.device) -> StageShape:
    return StageShape(
        first_layer_index=settings.first_layer_index,
        num_layers=settings.num_layers,
        is_first=settings.stage_index == 0,
        is_last=settings.stage_index == settings.num_stages - 1,
        num_kv_positions=settings.num_blocks * settings.block_tokens,
        dtype=getattr(torch, settings.dtype),
        device=device,
        host_pool=HostPoolShape(settings.num_host_blocks, settings.block_tokens),
    )
