"""The hooks: each hands what SGLang just does to the add-on of this process, if it has one.

SGLang calls a hook around a function with that function first, and one after it with its result.
"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pipelineserve_engine.addon.settings import AddOnSettings
from pipelineserve_engine.sglang import suitability
from pipelineserve_engine.sglang.addon import AddOn, Place, add_on, inactive

logger = logging.getLogger(__name__)


class Hooks:
    """Of one process, which has one scheduler.

    Args:
        settings: of the add-on.
        mismatches: what is not as expected in this SGLang; then only the loop itself is hooked.
    """

    def __init__(self, settings: AddOnSettings, mismatches: list[str]) -> None:
        self._settings = settings
        self._mismatches = mismatches
        self._addon: AddOn | None = None

    def around_run_event_loop(self, original: Any, scheduler: Any) -> Any:
        """Begin and end the add-on with the loop."""
        with ExitStack() as stack:
            try:
                self._addon = stack.enter_context(self._begun(scheduler))
            except Exception:
                logger.exception("the add-on could not begin; SGLang serves as if there were none")
            try:
                return original(scheduler)
            finally:
                self._addon = None

    @contextmanager
    def _begun(self, scheduler: Any) -> Iterator[AddOn | None]:
        """The add-on for the length of the block; None if it says why it is inactive."""
        place = place_of_process()
        reasons = self._mismatches or suitability.reasons_against(scheduler, place, self._settings)
        if reasons:
            with inactive(place, self._settings, "; ".join(reasons)):
                yield None
        else:
            with add_on(scheduler, place, self._settings) as addon:
                yield addon

    def after_pull_requests(self, received: Any, receiver: Any) -> Any:
        """Put our order among what goes to all ranks; only stage 0's first rank has any."""
        del receiver
        addon = self._addon
        if addon is None or received is None:
            return None
        order = addon.order(received)
        return None if order is None else [*received, order]

    def around_process_requests(self, original: Any, scheduler: Any, received: Any) -> Any:
        """A turn begins: take our order out, SGLang does not know it."""
        if self._addon is None:
            return original(scheduler, received)
        return original(scheduler, self._addon.stage.begin_turn(received))

    def after_add_request(
        self, result: Any, scheduler: Any, request: Any, is_retracted: bool = False
    ) -> Any:
        """A request may have entered the queue."""
        del is_retracted  # SGLang does not always say so
        addon, queue = self._addon, scheduler.waiting_queue
        if addon is not None and addon.leader is not None and queue and queue[-1] is request:
            addon.leader.on_accepted(request, addon.now_s())
        return result

    def after_make_abort(self, result: Any, request: Any, finished_reason: Any = None) -> Any:
        """A request has ended outside of any micro-batch, and its client is told."""
        del finished_reason
        if self._addon and self._addon.leader:
            self._addon.leader.on_aborted(request, self._addon.now_s())
        return result

    def around_new_prefill(self, original: Any, scheduler: Any, running_batch: Any) -> Any:
        """Hold, release and set the budget, right before SGLang composes."""
        if self._addon is not None:
            running_batch = self._addon.stage.compose(scheduler, running_batch)
        return original(scheduler, running_batch)

    def around_next_batch(
        self, original: Any, scheduler: Any, running_batch: Any, last_batch: Any
    ) -> Any:
        """A micro-batch was composed, or none."""
        plan = original(scheduler, running_batch, last_batch)
        addon = self._addon
        if addon is None:
            return plan
        if plan.batch_to_run is None:
            # Its requests are in the running batch now, or held; without a micro-batch after it,
            # SGLang would put them there a second time.
            scheduler.last_mbs[addon.stage.slot_index] = None
        elif addon.leader is not None:
            addon.leader.on_composed(plan.batch_to_run, addon.now_s())
        return plan

    def around_run_batch(
        self, original: Any, scheduler: Any, batch: Any, pp_proxy_tensors: Any = None
    ) -> Any:
        """Time a micro-batch on this stage."""
        if self._addon is None:
            return original(scheduler, batch, pp_proxy_tensors)
        self._addon.start_step()
        result = original(scheduler, batch, pp_proxy_tensors)
        self._addon.stop_step(batch)
        return result

    def around_process_result(self, original: Any, scheduler: Any, batch: Any, result: Any) -> Any:
        """A micro-batch came back."""
        addon = self._addon
        requests = list(batch.reqs)  # those that end leave the batch
        outcome = original(scheduler, batch, result)
        if addon is not None and addon.leader is not None:
            addon.leader.on_completed(scheduler, batch, requests, addon.now_s())
        return outcome

    def after_is_drained(self, is_drained: bool, scheduler: Any) -> bool:
        """Nothing is drained while a decode is held: its KV looks leaked otherwise."""
        del scheduler
        return is_drained and not (self._addon is not None and self._addon.stage.is_holding)

    def after_in_flight(self, batches: Any, scheduler: Any) -> Any:
        """Who is held can be aborted like who runs."""
        del scheduler
        if self._addon is None or not self._addon.stage.is_holding:
            return None
        return [*batches, self._addon.stage.held]


def place_of_process() -> Place:
    """Of this process, as SGLang numbered it."""
    from sglang.srt.runtime_context import (  # noqa: PLC0415 - tests have no SGLang
        get_parallel,
    )

    parallel = get_parallel()
    return Place(parallel.pp_rank, parallel.pp_size, parallel.tp_rank, parallel.tp_size)
