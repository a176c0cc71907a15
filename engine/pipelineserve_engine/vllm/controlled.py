"""What is laid over vLLM's scheduler class: each call goes on to it, and control hears of it."""

from contextlib import ExitStack
from typing import Any

from pipelineserve_engine.vllm.control import begin_control

# vLLM's own class, which comes after this one among the bases of the class that is made.
_Base: Any = object


class Controlled(_Base):  # type: ignore[misc] # vLLM is not there to check
    """Before vLLM's scheduler class among the bases; without control each call only goes on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._control_stack = ExitStack()
        self._control = begin_control(self, self._control_stack)

    def schedule(self, throttle_prefills: bool = False) -> Any:
        """See vLLM."""
        control = self._control
        if control is None:
            return super().schedule(throttle_prefills)
        with control.lock:
            control.compose(self)
            output = super().schedule(throttle_prefills)
            control.composed(self, output)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """See vLLM."""
        control = self._control
        if control is None:
            return super().update_from_output(scheduler_output, model_runner_output)
        # Those that end are nowhere to be found afterwards.
        found = map(self.requests.get, scheduler_output.num_scheduled_tokens)
        requests = [request for request in found if request is not None]
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        control.completed(scheduler_output, requests)
        return outputs

    def add_request(self, request: Any) -> None:
        """See vLLM."""
        super().add_request(request)
        if self._control is not None:
            self._control.accepted(request)

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        """See vLLM."""
        ended = super().finish_requests(request_ids, finished_status)
        if self._control is not None:
            self._control.ended(ended)
        return ended

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        """See vLLM."""
        super()._preempt_request(request, *args, **kwargs)
        if self._control is not None:
            self._control.preempted(request)

    def shutdown(self) -> None:
        """End control first, then see vLLM."""
        self._control_stack.close()
        super().shutdown()
