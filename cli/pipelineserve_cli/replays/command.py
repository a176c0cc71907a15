"""`pserve replay`: a sidecar's journal decided again, a recorded run served again."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_cli.option_types import (
    EXISTING_FILE,
    POSITIVE,
    chunk_tokens_option,
    json_option,
)
from pipelineserve_cli.replays.calls import read_recorded_run, require_calls
from pipelineserve_cli.replays.comparison import Comparison, compare
from pipelineserve_cli.replays.outcomes import recorded_outcome
from pipelineserve_cli.replays.tables import comparison_table, journal_table, parity_text
from pipelineserve_controller.replay import Replay
from pipelineserve_controller.replay import replay as replay_journal
from pipelineserve_simulator.baselines.options import (
    BaselineName,
    BaselineOptions,
    LatencyTargets,
)
from pipelineserve_simulator.baselines.registry import make_scheduler
from pipelineserve_simulator.hardware.catalogue import profile_from_text
from pipelineserve_simulator.hardware.description import HardwareProfile
from pipelineserve_simulator.measures.runs import RunOutcome
from pipelineserve_simulator.replay.player import Replayed
from pipelineserve_simulator.replay.player import replay as replay_calls
from pipelineserve_simulator.replay.recorded import RecordedRun
from pipelineserve_simulator.replay.rerun import Rerun, SchedulerMaker, simulate_again


@click.group()
def replay() -> None:
    """Decide a controller's journal again, or serve a recorded run again."""


@replay.command()
@click.argument("path", metavar="JOURNAL", type=click.Path(exists=True, path_type=Path))
@json_option("Print JSON instead of a table.")
def journal(*, path: Path, as_json: bool) -> None:
    """Decide every turn of a sidecar's journal (a file, or its folder) again.

    Ends with 1 if a turn comes out differently than it is recorded.
    """
    result = _replayed_journal(path)
    if as_json:
        click.echo(json.dumps(_journal_document(result), indent=2))
    else:
        Console().print(journal_table(result))
    if result.differences:
        sys.exit(1)


@replay.command()
@click.argument("record_file", metavar="RECORD.jsonl", type=EXISTING_FILE)
@click.option(
    "--profile",
    "profile_file",
    type=EXISTING_FILE,
    help="Of the machine, as `pserve profile` writes it: serve the run again on virtual time.",
)
@click.option(
    "--scheduler",
    "scheduler_name",
    type=click.Choice([name.value for name in BaselineName]),
    help="Serve it by another scheduler as well; needs --profile.",
)
@chunk_tokens_option("Static chunk of that scheduler, or its largest.")
@click.option("--ttft-ms", default=2000.0, show_default=True, type=POSITIVE, help="Its target.")
@click.option("--tpot-ms", default=200.0, show_default=True, type=POSITIVE, help="Its target.")
@click.option("--seed", default=0, show_default=True, help="Seed of the profile's noise.")
@json_option("Print JSON instead of tables.")
def run(  # one parameter per option
    *,
    record_file: Path,
    profile_file: Path | None,
    scheduler_name: str | None,
    chunk_tokens: int,
    ttft_ms: float,
    tpot_ms: float,
    seed: int,
    as_json: bool,
) -> None:
    """Make the calls of an engine's --trace-file again, and serve its requests again.

    Without --profile only the micro-batches are compared; ends with 1 if one differs.
    """
    if scheduler_name is not None and profile_file is None:
        text = "needs step times; name a profile with --profile"
        raise InvalidInputError("the replay", [Fault("--scheduler", text)])
    recorded = read_recorded_run(record_file)
    require_calls(recorded, record_file)
    replayed = _replayed_calls(recorded, record_file)
    comparison: Comparison | None = None
    if profile_file is not None:
        outcomes = {"recorded": recorded_outcome(record_file)}
        profile = profile_from_text(profile_file.read_text(encoding="utf-8"), str(profile_file))
        _require_model(recorded, profile, profile_file)
        outcomes["twin, as recorded"] = simulate_again(Rerun(recorded, profile, None, seed))
        if scheduler_name is not None:
            targets = LatencyTargets(ttft_ms / 1000.0, tpot_ms / 1000.0)
            maker = _maker(BaselineName(scheduler_name), targets, chunk_tokens)
            outcomes[f"twin, {scheduler_name}"] = _other(recorded, profile, maker, seed)
        comparison = compare(outcomes)
    _show(replayed, comparison, as_json=as_json)
    if replayed.divergence is not None:
        sys.exit(1)


def _show(replayed: Replayed, comparison: Comparison | None, *, as_json: bool) -> None:
    if as_json:
        parts = {"replayed": asdict(replayed)}
        if comparison is not None:
            parts["comparison"] = asdict(comparison)
        click.echo(json.dumps(parts, indent=2))
        return
    click.echo(parity_text(replayed))
    if comparison is not None:
        Console().print(comparison_table(comparison))


def _other(
    recorded: RecordedRun, profile: HardwareProfile, maker: SchedulerMaker, seed: int
) -> RunOutcome:
    return simulate_again(Rerun(recorded, profile, maker, seed))


def _maker(name: BaselineName, targets: LatencyTargets, chunk_tokens: int) -> SchedulerMaker:
    least = min(chunk_tokens, BaselineOptions().min_chunk_tokens)
    options = BaselineOptions(
        static_chunk_tokens=chunk_tokens,
        max_chunk_tokens=chunk_tokens,
        min_chunk_tokens=least,
        step_chunk_tokens=min(least, BaselineOptions().step_chunk_tokens),
    )
    return lambda sizes, model: make_scheduler(name, sizes, targets, model, options)


def _replayed_journal(path: Path) -> Replay:
    try:
        result = replay_journal(path)
    except (OSError, ValueError) as error:
        text = f"{error}; name a journal that a controller of this release wrote"
        raise InvalidInputError("the journal", [Fault(str(path), text)]) from error
    if not result.num_turns:
        fault = Fault(str(path), "expected at least one turn, got none; name a sidecar's journal")
        raise InvalidInputError("the journal", [fault])
    return result


def _replayed_calls(recorded: RecordedRun, path: Path) -> Replayed:
    try:
        return replay_calls(recorded)
    except ValueError as error:
        text = f"{error}; lines are missing, record it anew"
        raise InvalidInputError("the trace record", [Fault(str(path), text)]) from error


def _require_model(recorded: RecordedRun, profile: HardwareProfile, path: Path) -> None:
    num_layers = sum(recorded.layers_per_stage)
    if profile.model.num_layers != num_layers:
        text = (
            f"expected a model of {num_layers} layers as recorded, got {profile.model.num_layers}"
        )
        fault = Fault("model.num_layers", f"{text}; measure that model with `pserve profile`")
        raise InvalidInputError(f"the hardware profile {path}", [fault])


def _journal_document(result: Replay) -> dict[str, object]:
    return {
        "num_turns": result.num_turns,
        "num_different": len(result.differences),
        "differences": [
            {
                "file": d.file,
                "index": d.index,
                "recorded": str(d.recorded),
                "decided": str(d.decided),
            }
            for d in result.differences
        ],
    }
