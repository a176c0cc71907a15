"""Figures, reasons and policies in words, for people."""

from collections.abc import Iterable

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.control.decide import Fact
from pipelineserve.policy.control.feasibility import Verdict
from pipelineserve.policy.holding import HoldNothing
from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.rebalancing import Rebalance
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.policy.triage import Triage

# By the end of a name; the last one that fits.
_UNITS = {"_s": " s", "_tokens": " tokens", "_ratio": "", "_per_s": " per s"}


def fact_texts(facts: Iterable[Fact]) -> tuple[tuple[str, str], ...]:
    """Name and value of each; the unit goes from the end of the name to that of the value."""
    return tuple((_phrase(fact.name), f"{fact.value:.4g}{_unit(fact.name)}") for fact in facts)


def policy_text(policy: SchedulingPolicy | None) -> str:
    """What a policy comes to, in a line."""
    if policy is None:
        return "nothing of ours in force: the engine keeps its static chunk"
    return ", ".join((chunk_text(policy), f"order {order_text(policy)}", holding_phrase(policy)))


def chunk_text(policy: SchedulingPolicy) -> str:
    """The chunk of a policy."""
    match policy.chunking:
        case Static(chunk_tokens=tokens):
            return f"chunk {tokens}"
        case Predictive(candidates=sizes):
            return f"chunk predicted, {sizes[0]} to {sizes[-1]}"


def order_text(policy: SchedulingPolicy) -> str:
    """The order of the queue."""
    match policy.order:
        case Arrival():
            return "arrival"
        case Ageing():
            return "ageing"
        case Triage():
            return "triage"


def holding_text(policy: SchedulingPolicy) -> str:
    """off, tpot_first or e2e_first."""
    match policy.holding:
        case HoldNothing():
            return "off"
        case Rebalance(mode=mode):
            return mode.value


def holding_phrase(policy: SchedulingPolicy) -> str:
    """The holding of a policy, in words."""
    match holding_text(policy):
        case "off":
            return "nothing held"
        case mode:
            return f"hold {mode}"


def feasible_instead(verdict: Verdict | None) -> str:
    """What could be met instead, in words; empty while the targets are feasible or unknown."""
    if verdict is None or verdict.is_feasible:
        return ""
    could = []
    if verdict.least_ttft_s is not None:
        could.append(f"a TTFT of {_seconds(verdict.least_ttft_s)} with this TPOT target")
    if verdict.least_tpot_s is not None:
        could.append(f"a TPOT of {_seconds(verdict.least_tpot_s)} with this TTFT target")
    if not could:
        return "nothing at this load; less of it, or more replicas"
    return " or ".join(could)


def _seconds(value_s: float) -> str:
    return f"{value_s:.1f} s" if value_s >= 10.0 else f"{1000.0 * value_s:.0f} ms"


def _unit(name: str) -> str:
    return next((unit for end, unit in reversed(_UNITS.items()) if name.endswith(end)), "")


def _phrase(name: str) -> str:
    end = next((end for end in reversed(_UNITS) if name.endswith(end)), "")
    return name.removesuffix(end).replace("_", " ")
