"""In each of vLLM's worker processes: how long a micro-batch takes this stage.

The time begins when the activations of the stage before are there and ends with the stage's own, or
on the last stage with the sampled tokens; sending and waiting are not in it.
"""

import logging
from collections.abc import Callable
from typing import Any

from pipelineserve_engine.addon.ledger import StageReport
from pipelineserve_engine.addon.stopwatch import Stopwatch, stopwatch_of
from pipelineserve_engine.addon.targets import Target, mismatched_targets
from pipelineserve_engine.vllm.notes import note_of
from pipelineserve_engine.vllm.reports import Reporter

EXECUTE_MODEL = Target("execute_model", ("scheduler_output", "intermediate_tensors"))
SAMPLE_TOKENS = Target("sample_tokens", ("grammar_output",))

logger = logging.getLogger(__name__)


class StageTimer:
    """Around a model runner's two calls for each micro-batch.

    Args:
        stage_index: this stage.
        samples: whether it is the last one, which samples.
        stopwatch: for its device.
        send: tells the socket at a path.
    """

    def __init__(
        self,
        stage_index: int,
        *,
        samples: bool,
        stopwatch: Stopwatch,
        send: Callable[[str, list[StageReport]], None],
    ) -> None:
        self._stage_index = stage_index
        self._samples = samples
        self._stopwatch = stopwatch
        self._send = send
        self._path = ""
        # Of the micro-batch that is computed and not sampled yet: turn, tokens, chunk.
        self._unsampled: tuple[int, int, int] | None = None

    def execute_model(
        self, original: Callable[..., Any], scheduler_output: Any, intermediate_tensors: Any
    ) -> Any:
        """Time one micro-batch; one without tokens only takes what is still to be told along."""
        note = note_of(scheduler_output)
        num_tokens: int = scheduler_output.total_num_scheduled_tokens
        if note is None or not num_tokens:
            self._tell()
            return original(scheduler_output, intermediate_tensors)
        self._path = note.reports_path
        self._stopwatch.start()
        if intermediate_tensors is not None:
            self._start_when_there(intermediate_tensors)
        result = original(scheduler_output, intermediate_tensors)
        computed = (note.turn, num_tokens, note.chunk_tokens)
        if self._samples:
            self._unsampled = computed
        else:
            self._stop(computed)
        return result

    def sample_tokens(self, original: Callable[..., Any], grammar_output: Any) -> Any:
        """The last stage's micro-batch is done with this."""
        result = original(grammar_output)
        if self._unsampled is not None:
            self._stop(self._unsampled)
            self._unsampled = None
        return result

    def _start_when_there(self, intermediate_tensors: Any) -> None:
        """The wait for the stage before is none of this stage's work."""
        wait = getattr(intermediate_tensors, "wait_for_comm", None)
        if wait is None:
            return  # they are there

        def wait_and_start() -> None:
            wait()
            self._stopwatch.start()

        intermediate_tensors.wait_for_comm = wait_and_start

    def _stop(self, computed: tuple[int, int, int]) -> None:
        self._stopwatch.stop(*computed)
        self._tell()

    def _tell(self) -> None:
        spans = self._stopwatch.take()
        self._send(self._path, [StageReport(self._stage_index, *span) for span in spans])


def time_stage(worker: Any) -> None:
    """Time what this worker's model runner computes, if the worker speaks for its stage."""
    from vllm.distributed.parallel_state import (  # noqa: PLC0415 - tests have no vLLM
        get_pp_group,
        get_tp_group,
    )

    stage = get_pp_group()
    if get_tp_group().rank_in_group == 0:
        runner, device = worker.model_runner, worker.device.type
        time_runner(runner, stage.rank_in_group, samples=stage.is_last_rank, device=device)


def time_runner(runner: Any, stage_index: int, *, samples: bool, device: str) -> None:
    """Time this model runner's calls; without it if they are not as expected, which is told."""
    targets = (EXECUTE_MODEL, SAMPLE_TOKENS)
    mismatches = mismatched_targets(targets, lambda name: getattr(runner, name))
    if mismatches:
        logger.error("step times of stage %d cannot be told: %s", stage_index, mismatches)
        return
    execute, sample = runner.execute_model, runner.sample_tokens
    timer = StageTimer(
        stage_index, samples=samples, stopwatch=stopwatch_of(device), send=Reporter().send
    )

    def execute_model(scheduler_output: Any, intermediate_tensors: Any = None) -> Any:
        return timer.execute_model(execute, scheduler_output, intermediate_tensors)

    def sample_tokens(grammar_output: Any) -> Any:
        return timer.sample_tokens(sample, grammar_output)

    runner.execute_model, runner.sample_tokens = execute_model, sample_tokens
