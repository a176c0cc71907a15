"""What happens in our engine, told to those who watch."""

from pipelineserve.scheduler.messages import MicroBatch
from pipelineserve.scheduler.requests import RequestRecord
from pipelineserve_engine.control.telling import Teller
from pipelineserve_engine.observation import Listener
from pipelineserve_engine.stage_messages import StepReport


class Recorder(Teller, Listener):
    """Records what the observer hears; without a watcher each call is a look at a flag."""

    def on_sent(self, micro_batch: MicroBatch, now_s: float) -> None:
        """See `Listener.on_sent`."""
        self._collector.sent(micro_batch, now_s)

    def on_step(self, report: StepReport) -> None:
        """See `Listener.on_step`."""
        self._collector.stepped(report.sequence, report.stage_index, report.start_s, report.end_s)

    def on_completed(self, report: StepReport, now_s: float, num_in_flight: int) -> None:
        """See `Listener.on_completed`."""
        self._collector.completed(report.sequence, now_s, num_in_flight)

    def on_recovery(self) -> None:
        """See `Listener.on_recovery`."""
        self._collector.stages_lost()

    def on_rejected(self, num_prompt_tokens: int, now_s: float) -> None:
        """See `Listener.on_rejected`."""
        self._collector.rejected(num_prompt_tokens, now_s)

    def on_ended(self, record: RequestRecord) -> None:
        """See `Listener.on_ended`."""
        self._collector.ended(record)
