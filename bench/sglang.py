"""What the add-on costs inside a real SGLang, and chunk policies there beside SGLang's own.

    python -m bench.sglang [costs] [policies] [--rounds 3] [--json]

Needs `make sglang-env`. The model is a random Llama of 12 million weights, whose micro-batches last
milliseconds: on a real one the same costs are a smaller share. SGLang runs in two stages of one
thread each. On two cores the clients share them with the stages, in every mode alike. Run it on an
idle machine: where others take the cores, loads last longer and the shares come out too small.

costs: ten streams of decodes and four long prompts start together, in four modes: without the
add-on; with it, nobody calling; watched, with a Predictive policy evaluated for each micro-batch;
and with one that also holds decodes. The first has a server of its own, the others take turns on a
second one; both are started in every round, in turns, and which mode begins changes too. Figures
are medians over the rounds, with the lowest and the highest in brackets:

- output tokens/s, and their ratio to the mode without the add-on in the same round.
- hooks: CPU time of stage 0's scheduling thread in our hooks, per micro-batch and as a share of the
  time that the load took; and the largest share of any other rank. See `bench.sglang_probe`.
- threads: CPU time of all other threads of stage 0's process, gRPC's and SGLang's own, as a share
  of the same time.

policies: the mixed load of `bench.control` (chats, and bursts of long prompts) on SGLang with a
static chunk and with Predictive, both by a whole sidecar on one server, and on another one with
SGLang's own `--enable-dynamic-chunking` and no add-on. TTFT and TPOT as clients see them; a request
attains if it meets both targets. On a CPU this shows that all of them work, and little more:
prefill of random weights on one core says nothing about chunks on a GPU.

On a GPU: `--device cuda --python ENVIRONMENT/bin/python --model FOLDER policies`, with an
environment that has SGLang and `pipelineserve[sglang]`; loads and targets to fit by the options.
This has never been run: no GPU was at hand.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from bench.control.contestants import Sizes
from bench.control.load import MixedLoad
from bench.environments import ToolError
from bench.sglang_costs import measure_costs, print_costs
from bench.sglang_policies import compare_policies, print_policies
from bench.sglang_servers import Setup, save_random_model
from tools.sglang_environment import DEFAULT_VENV

PARTS = ("costs", "policies")


def main() -> int:
    """Measure and print."""
    options = _parse_options()
    sizes = Sizes(
        max_tokens=options.max_tokens,
        static_tokens=options.static_tokens,
        min_tokens=options.max_tokens // 16,
        unit_tokens=options.max_tokens // 16,
        ttft_target_s=options.ttft_s,
        tpot_target_s=options.tpot_s,
    )
    load = MixedLoad(
        options.duration_s, chats_per_s=options.chats_per_s, burst_prompts=options.burst_prompts
    )
    results = {}
    with tempfile.TemporaryDirectory(prefix="sglang-") as folder:
        work = Path(folder)
        model = options.model or save_random_model(work / "model")
        setup = Setup(options.python, model, options.device, sizes, work)
        try:
            if "costs" in options.parts:
                costs = measure_costs(setup, options.rounds)
                results["costs"] = [asdict(figures) for figures in costs]
            if "policies" in options.parts:
                policies = compare_policies(setup, load, options.rounds)
                results["policies"] = [asdict(figures) for figures in policies]
        except ToolError as error:
            sys.exit(f"no figures: {error}")
    if options.json:
        print(json.dumps(results, indent=2))
        return 0
    if "costs" in options.parts:
        print_costs(costs)
    if "policies" in options.parts:
        print_policies(policies)
    return 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{' or '.join(PARTS)}, else both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu", help="cpu, the tests' reference, or cuda")
    parser.add_argument("--python", type=Path, default=DEFAULT_VENV / "bin" / "python")
    parser.add_argument("--model", type=Path, help="folder of a model; else a random one is made")
    parser.add_argument("--max-tokens", type=int, default=256, help="ceiling of the chunk")
    parser.add_argument("--static-tokens", type=int, default=64, help="the static chunk")
    parser.add_argument("--duration-s", type=float, default=30.0, help="of the mixed load")
    parser.add_argument("--chats-per-s", type=float, default=2.0)
    parser.add_argument("--burst-prompts", type=int, default=MixedLoad.burst_prompts)
    parser.add_argument("--ttft-s", type=float, default=1.0, help="target")
    parser.add_argument("--tpot-s", type=float, default=0.05, help="target")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.parts = options.parts or list(PARTS)
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"expected {' or '.join(PARTS)}, got {', '.join(unknown)}")
    if not options.python.exists():
        parser.error(f"{options.python} is missing; run make sglang-env")
    if options.device != "cpu" and options.model is None:
        parser.error(f"--device {options.device} needs --model FOLDER")
    return options


if __name__ == "__main__":
    sys.exit(main())
