"""Whether a request is accepted at all; pure."""

from pipelineserve.scheduler.messages import Rejected, RejectReason
from pipelineserve.scheduler.requests import NewRequest
from pipelineserve.scheduler.settings import SchedulerSettings


def rejection_of(
    new: NewRequest, settings: SchedulerSettings, *, is_duplicate: bool, num_waiting: int
) -> Rejected | None:
    """Return why the request cannot be accepted, or None if it can.

    A prompt must leave room for at least one output token in `settings.max_request_tokens`.
    """

    def rejected(reason: RejectReason, limit: int) -> Rejected:
        return Rejected(new.request_id, reason, limit)

    if is_duplicate:
        return rejected(RejectReason.DUPLICATE_ID, 1)
    if not new.prompt_token_ids:
        return rejected(RejectReason.EMPTY_PROMPT, 1)
    if len(new.prompt_token_ids) >= settings.max_request_tokens:
        return rejected(RejectReason.PROMPT_TOO_LONG, settings.max_request_tokens - 1)
    if new.max_output_tokens is not None and new.max_output_tokens < 1:
        return rejected(RejectReason.NO_OUTPUT_ASKED, 1)
    if num_waiting >= settings.max_waiting_requests:
        return rejected(RejectReason.QUEUE_FULL, settings.max_waiting_requests)
    return None
