"""One state as what a person reads in a terminal."""

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipelineserve.policy.control.answers import Answer
from pipelineserve_cli.status.words import (
    count,
    duration,
    percent,
    reason_text,
    sparkline,
    time_of_day,
    with_unit,
)
from pipelineserve_controller.state import (
    ControlState,
    EngineState,
    HistoryPoint,
    LatencyState,
    LoadState,
    SidecarState,
)

_HISTORY_WIDTH = 30
_NUM_DECISIONS = 8
_STYLES = {Answer.YES: "bold green", Answer.NO: "bold red", Answer.UNKNOWN: "bold yellow"}


def screen(state: SidecarState) -> RenderableType:
    """The whole state, the verdict first."""
    parts: list[RenderableType] = [_head(state), *_notices(state), _verdict(state)]
    parts += [_latencies(state), _figures(state)]
    if state.decisions:
        parts.append(_decisions(state))
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts))


def _head(state: SidecarState) -> Text:
    name = state.control.resource_name or "PipelineServe"
    head = Text(name, style="bold")
    if (engine := state.engine) is not None:
        head.append(
            f"  {engine.name} {engine.version}, stages {engine.num_stages}", style="not bold"
        )
    return head.append(f"  {time_of_day(state.now_unix_s)}", style="not bold dim")


def _notices(state: SidecarState) -> list[Text]:
    notices = []
    if not state.connection.is_connected:
        since = time_of_day(state.connection.since_unix_s)
        text = f"The engine is not connected since {since}: {state.connection.problem}"
        notices.append(Text(text, style="yellow"))
    if state.engine is not None and state.engine.inactive_reason:
        text = "The engine serves by its own rules, since it cannot be controlled: "
        notices.append(Text(text + state.engine.inactive_reason, style="yellow"))
    if state.control.refused_edit:
        text = "An edit was refused and the earlier targets stay: "
        notices.append(Text(text + state.control.refused_edit, style="yellow"))
    return notices


def _verdict(state: SidecarState) -> Text:
    slo = state.slo
    text = Text("SLO met: ").append(slo.met.value, style=_STYLES[slo.met])
    text.append(f" ({reason_text(slo.met_reason)}), attainment {percent(slo.attainment_ratio)}")
    text.append(f" over {duration(slo.window_s)}\nSLO feasible: ")
    text.append(slo.feasible.value, style=_STYLES[slo.feasible])
    text.append(f" ({reason_text(slo.feasible_reason)})")
    if slo.feasible_instead:
        text.append(f"\nWithin reach: {slo.feasible_instead}")
    return text


def _latencies(state: SidecarState) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", "P50", "P90", "P99", "measured", "target", "requests"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_column("last five minutes")
    table.add_row("TTFT", *_latency(state.ttft, state, lambda point: point.ttft_s))
    table.add_row("TPOT", *_latency(state.tpot, state, lambda point: point.tpot_s))
    return table


def _latency(
    latency: LatencyState, state: SidecarState, read: Callable[[HistoryPoint], float | None]
) -> list[Text]:
    history = sparkline(list(map(read, state.history)), _HISTORY_WIDTH, latency.target_s)
    target = "none" if latency.target_s is None else duration(latency.target_s)
    plain = map(duration, (latency.p50_s, latency.p90_s, latency.p99_s))
    measured = f"P{latency.percentile} {duration(latency.measured_s)}"
    return [
        *map(Text, plain),
        Text(measured, style=_latency_style(latency)),
        Text(target),
        Text(count(latency.num_requests)),
        Text(history),
    ]


def _latency_style(latency: LatencyState) -> str:
    if latency.target_s is None or latency.measured_s is None:
        return ""
    return _STYLES[Answer.of(latency.measured_s <= latency.target_s)]


def _figures(state: SidecarState) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in (*_load_rows(state), *_control_rows(state)):
        table.add_row(name, Text(value))
    return table


def _load_rows(state: SidecarState) -> list[tuple[str, str]]:
    chunk, load = state.chunk, state.load
    chunk_history = [point.chunk_tokens for point in state.history]
    history = sparkline(chunk_history, _HISTORY_WIDTH, float(chunk.max_tokens))
    why = f" ({reason_text(chunk.reason)})" if chunk.reason else ""
    used_ratio = None if load.kv_free_ratio is None else 1.0 - load.kv_free_ratio
    return [
        ("chunk", f"{with_unit(chunk.chunk_tokens, 'tokens')}{why}  {history}".rstrip()),
        ("chunk policy", _asked(chunk.policy, chunk.in_use)),
        ("demand", with_unit(load.demand_tokens_per_s, "tokens/s")),
        ("capacity", with_unit(load.capacity_tokens_per_s, "tokens/s")),
        ("bubble per stage", "  ".join(map(percent, load.bubble_ratio_per_stage)) or percent(None)),
        ("requests", _requests(load)),
        ("KV in use", percent(used_ratio)),
    ]


def _requests(load: LoadState) -> str:
    names = (
        ("waiting", load.num_waiting),
        ("running", load.num_running),
        ("held", load.num_held),
    )
    counts = ", ".join(f"{count(number)} {name}" for name, number in names)
    if load.num_waiting == 0:
        return counts
    return f"{counts}; longest wait {duration(load.oldest_wait_s)}"


def _asked(wanted: str, in_use: str) -> str:
    return wanted if in_use == wanted else f"{wanted}, now {in_use}"


def _control_rows(state: SidecarState) -> list[tuple[str, str]]:
    control, freshness = state.control, state.freshness
    in_force = _in_force(control, state.engine)
    age = "" if freshness.age_s is None else f", {duration(freshness.age_s)} old"
    return [
        ("mode", control.mode.value),
        ("policy in force", f"{in_force}; {_lease(control.lease_left_s)}"),
        ("measurements", f"{reason_text(freshness.reason)}{age}"),
        ("targets from", f"{control.source or percent(None)}, generation {control.generation}"),
        ("holding, order", f"{control.holding}, {control.order}"),
    ]


def _in_force(control: ControlState, engine: EngineState | None) -> str:
    if control.is_effective:
        return "this controller's"
    if engine is not None and engine.inactive_reason:
        return "none: the engine goes by its own rules"
    if control.is_superseded:
        return "a later controller's, which this one yields to"
    return "the engine's own, static chunk"


def _lease(left_s: float | None) -> str:
    if left_s == 0.0:
        return "no lease"
    return f"lease {duration(left_s)}" if left_s is None else f"lease {left_s:.1f} s left"


def _decisions(state: SidecarState) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("time", "decision", "why", "figures", "sent"):
        table.add_column(column)
    for decision in state.decisions[:_NUM_DECISIONS]:
        facts = ", ".join(f"{name} {value}" for name, value in decision.facts)
        sent = "sent" if decision.is_sent else "not sent"
        texts = (decision.summary, reason_text(decision.reason), facts, sent)
        table.add_row(time_of_day(decision.at_unix_s), *map(Text, texts))
    return table
