"""Each condition's status, reason and message, by its own rule."""

from dataclasses import dataclass

from pipelineserve.api.status import ConditionStatus, ConditionType
from pipelineserve.policy.control.answers import Answer
from pipelineserve_operator.conditions.situation import Situation
from pipelineserve_operator.conditions.waiting import Waiting
from pipelineserve_operator.findings import Finding
from pipelineserve_operator.plan.replicas import ReplicaSeen
from pipelineserve_operator.plan.rollout import Cause, Steps
from pipelineserve_operator.render import Role

_MAX_NAMED = 3
_SERVER = "engine"
_OF_ANSWER = {
    Answer.YES: ConditionStatus.TRUE,
    Answer.NO: ConditionStatus.FALSE,
    Answer.UNKNOWN: ConditionStatus.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a condition says, without when."""

    status: ConditionStatus
    reason: str
    message: str = ""


def verdicts(situation: Situation) -> dict[ConditionType, Verdict]:
    """Every condition."""
    trouble = _trouble(situation)
    return {
        ConditionType.READY: ready(situation),
        ConditionType.PROGRESSING: trouble or progressing(situation),
        ConditionType.STALLED: stalled(trouble),
        ConditionType.PODS_READY: pods_ready(situation),
        ConditionType.ENGINE_READY: engine_ready(situation),
        **_of_sidecars(situation),
    }


def ready(situation: Situation) -> Verdict:
    """Whether enough replicas serve; controller, metrics and targets have no say."""
    num_wanted, num_serving = situation.num_wanted, situation.num_serving
    if num_wanted == 0:
        return Verdict(ConditionStatus.TRUE, "ScaledToZero", "no replica is wanted")
    text = f"{num_serving} of {_number(num_wanted)} replicas serve"
    if num_serving >= _least_serving(situation):
        return Verdict(ConditionStatus.TRUE, "Serving", text)
    reason, why = _why_not(situation)
    return Verdict(ConditionStatus.FALSE, reason, f"{text}; {why}" if why else text)


def progressing(situation: Situation) -> Verdict:
    """As a Deployment's: true while something changes, and true when nothing has to."""
    steps = situation.plan.steps if situation.plan is not None else None
    causes = _causes(steps)
    waiting = situation.waiting()
    failed = [cause for cause in causes if cause.is_failure]
    if failed:
        text = f"a group that failed starts anew: {failed[0].value}"
        return Verdict(ConditionStatus.TRUE, "Recovering", _with(text, waiting))
    if Cause.ROLLOUT in causes or situation.num_outdated:
        num_wanted = situation.num_wanted or 0
        text = f"{situation.num_updated} of {num_wanted} replicas are of the present revision"
        return Verdict(ConditionStatus.TRUE, "RollingOut", _with(text, waiting))
    if waiting or causes:
        return Verdict(
            ConditionStatus.TRUE, "Starting" if waiting else "Scaling", _with("", waiting)
        )
    return Verdict(ConditionStatus.TRUE, "Complete", "everything is as the resource says")


def _causes(steps: Steps | None) -> list[Cause]:
    """Of everything that is under way."""
    if steps is None:
        return []
    of_old = [one.cause for one in steps.drained] + [one.cause for one in steps.removed]
    return of_old + [one.cause for one in steps.started]


def stalled(trouble: Verdict | None) -> Verdict:
    """Whether a person must act."""
    if trouble is None:
        return Verdict(ConditionStatus.FALSE, "AsExpected", "no person has to act")
    return Verdict(ConditionStatus.TRUE, trouble.reason, trouble.message)


def pods_ready(situation: Situation) -> Verdict:
    """Whether every pod that is wanted is there and ready."""
    if situation.num_wanted == 0:
        return Verdict(ConditionStatus.TRUE, "ScaledToZero")
    waiting = situation.waiting()
    if not waiting:
        return Verdict(ConditionStatus.TRUE, "AllReady")
    _, first = waiting[0]
    return Verdict(ConditionStatus.FALSE, first.reason.value, _with("", waiting))


def engine_ready(situation: Situation) -> Verdict:
    """Whether every replica's server has its model and its group."""
    if situation.num_wanted == 0:
        return Verdict(ConditionStatus.TRUE, "ScaledToZero")
    missing = [one.index for one in situation.wanted if not _has_server(one)]
    if not missing and situation.wanted:
        return Verdict(ConditionStatus.TRUE, "Loaded")
    return Verdict(
        ConditionStatus.FALSE,
        "NotLoaded",
        f"{_replicas(missing)}: the server has not its model or its group yet",
    )


def _of_sidecars(situation: Situation) -> dict[ConditionType, Verdict]:
    report = situation.report
    if report is None:
        unheard = Verdict(ConditionStatus.UNKNOWN, "NotHeard", "no controller is listened to")
        return dict.fromkeys(_SIDECARS, unheard)
    found = (
        report.connected,
        report.effective,
        report.fresh,
        report.slo_met,
        report.slo_feasible,
    )
    return dict(zip(_SIDECARS, map(_of_finding, found), strict=True))


_SIDECARS = (
    ConditionType.CONTROLLER_CONNECTED,
    ConditionType.CONTROL_EFFECTIVE,
    ConditionType.METRICS_FRESH,
    ConditionType.SLO_MET,
    ConditionType.SLO_FEASIBLE,
)


def _of_finding(finding: Finding) -> Verdict:
    return Verdict(_OF_ANSWER[finding.answer], finding.reason.value, finding.message)


def _trouble(situation: Situation) -> Verdict | None:
    """What only a person can help with; None if there is no such thing."""
    blocked = situation.blocked
    if blocked is not None:
        if blocked.reason.passes:
            return None
        return Verdict(ConditionStatus.FALSE, blocked.reason.value, blocked.message)
    exhausted = situation.plan.steps.exhausted if situation.plan is not None else ()
    if exhausted:
        index, failure = exhausted[0]
        text = (
            f"replica {index} failed again ({failure.value}) and has used up recovery.maxRestarts; "
            "repair the cause, then set spec.restartTime to now"
        )
        return Verdict(ConditionStatus.FALSE, "RecoveryBudgetSpent", text)
    overdue = situation.overdue()
    if overdue:
        _, why = _why_not(situation)
        text = f"{_replicas([one.index for one in overdue])}: not serving within "
        text += f"rollout.startupDeadlineSeconds; {why}"
        return Verdict(ConditionStatus.FALSE, "StartupDeadlineExceeded", text)
    return None


def _least_serving(situation: Situation) -> int:
    if situation.subject is None:
        return 1
    spec = situation.subject.spec
    return max(1, spec.replicas - spec.rollout.max_unavailable)


def _why_not(situation: Situation) -> tuple[str, str]:
    """Reason and words for what does not serve."""
    if situation.blocked is not None:
        return situation.blocked.reason.value, situation.blocked.message
    waiting = [one for one in situation.waiting() if one[0].serving is None]
    if not waiting:
        return "Starting", ""
    return waiting[0][1].reason.value, _with("", waiting)


def _with(text: str, waiting: "tuple[_Wait, ...] | list[_Wait]") -> str:
    """Text, and what the first few replicas wait for."""
    told = [f"replica {one.index}: {why.message}" for one, why in waiting[:_MAX_NAMED]]
    more = len(waiting) - _MAX_NAMED
    if more > 0:
        told.append(f"and {more} more")
    return "; ".join(part for part in (text, *told) if part)


_Wait = tuple[ReplicaSeen, Waiting]


def _has_server(replica: ReplicaSeen) -> bool:
    newest = replica.newest
    if newest is None or newest.draining or newest.leader is None:
        return False
    workers = [pod for pod in newest.pods if pod.role is Role.WORKER]
    servers = [c for c in newest.leader.containers if c.name == _SERVER]
    is_loaded = bool(servers) and all(one.is_ready for one in servers)
    return is_loaded and all(pod.is_ready for pod in workers)


def _replicas(indices: list[int]) -> str:
    if not indices:
        return "no replica"
    named = ", ".join(map(str, indices[:_MAX_NAMED]))
    more = f" and {len(indices) - _MAX_NAMED} more" if len(indices) > _MAX_NAMED else ""
    return f"replica {named}{more}" if len(indices) == 1 else f"replicas {named}{more}"


def _number(num_wanted: int | None) -> str:
    return "an unknown number of" if num_wanted is None else str(num_wanted)
