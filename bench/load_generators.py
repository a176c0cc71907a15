"""Does `pserve load` report what other load generators report for the same server and load?

    python -m bench.load_generators [--tools guidellm,aiperf] [--url URL --model NAME]

Each tool gets a virtual environment of its own in a cache folder (the first run downloads about
1 GB per tool; one that cannot be installed is named and left out). Then each sends the same load,
one after another, to an endpoint with known latencies (bench/fixed_endpoint.py), or to the server
at `--url`: completions of 64 prompt tokens and 20 output tokens at a constant rate. Each tool's
records of single requests are read, not its summaries, and converted to our definitions:

- TTFT: send to first chunk with text. The same quantity in all of them.
- TPOT: (last - first token) / (output tokens - 1). guidellm's "inter token latency" (its "TPOT"
  contains the first token); aiperf's "inter token latency"; of inference-perf the token times.
- E2E: send to last token. aiperf's and guidellm's request latency end with the stream, which comes
  a fraction of a millisecond later; of inference-perf the last token's time.

inference-perf draws the gaps of its "constant" load at random, so its number of requests differs.
A figure agrees within 2 % or 2 ms. Run it on an idle machine: what else runs is measured as well.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import yaml
from bench.environments import TORCH, ToolError, environment, say

from pipelineserve.load.summaries import percentile, summarise

LARGEST_DIFFERENCE_RATIO = 0.02
LARGEST_DIFFERENCE_S = 0.002
TOOL_TIMEOUT_S = 600
TOKENIZER = "local/bytes"


@dataclass(frozen=True)
class Workload:
    """The one load that all tools send."""

    url: str
    model: str
    num_requests: int = 60
    rate_per_s: float = 4.0
    prompt_tokens: int = 64
    output_tokens: int = 20


@dataclass(frozen=True)
class Sample:
    """One request, in our definitions."""

    ttft_s: float
    tpot_s: float
    e2e_s: float


@dataclass(frozen=True)
class Place:
    """Where a tool runs.

    Attributes:
        programs: the folder of its virtual environment's commands.
        folder: for what it writes.
        hub: a cache of the Hugging Face hub that holds the tokenizer `TOKENIZER`.
    """

    programs: Path
    folder: Path
    hub: Path

    @property
    def tokenizer_folder(self) -> Path:
        """The same tokenizer as a plain folder."""
        return self.hub / "hub" / "models--local--bytes" / "snapshots" / "1"

    def run(self, program: str, *arguments: object) -> None:
        """Run a command of the tool; its output is shown only if it fails."""
        command = [str(self.programs / program), *map(str, arguments)]
        offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(self.hub), "TRANSFORMERS_OFFLINE": "1"}
        finished = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **offline},
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        if finished.returncode != 0:
            tail = "\n".join((finished.stdout + finished.stderr).splitlines()[-30:])
            raise ToolError(f"{program} ended with {finished.returncode}:\n{tail}")


def pserve_load(place: Place, load: Workload) -> list[Sample]:
    output = place.folder / "requests.json"
    place.run(
        "pserve", "load", f"--url={load.url}", f"--model={load.model}", "--arrivals=constant",
        f"--rate={load.rate_per_s}", f"--requests={load.num_requests}", "--json",
        f"--input-tokens={load.prompt_tokens}", f"--output-tokens={load.output_tokens}",
        "--vocabulary=256", f"--output={output}",
    )  # fmt: skip
    records = json.loads(output.read_text())["requests"]
    return [Sample(record["ttft_s"], record["tpot_s"], record["e2e_s"]) for record in records]


def guidellm(place: Place, load: Workload) -> list[Sample]:
    output = place.folder / "guidellm.json"
    place.run(
        "guidellm", "run", "--disable-progress",
        "--backend", f"kind=openai_http,target={load.url},model={load.model},"
        "request_format=/v1/completions",
        "--profile", f"kind=constant,rate={load.rate_per_s}",
        "--constraint", f"kind=max_requests,count={load.num_requests}",
        "--tokenizer", f"kind=hf_auto,model={place.tokenizer_folder}",
        "--data", f"kind=synthetic_text,prompt_tokens={load.prompt_tokens},"
        f"output_tokens={load.output_tokens}",
        "--output", f"kind=json,path={output}",
    )  # fmt: skip
    requests = json.loads(output.read_text())["benchmarks"][0]["requests"]["successful"]
    return [
        Sample(
            request["time_to_first_token_ms"] / 1000,
            request["inter_token_latency_ms"] / 1000,
            request["request_latency"],
        )
        for request in requests
    ]


def aiperf(place: Place, load: Workload) -> list[Sample]:
    place.run(
        "aiperf", "profile", "--ui", "none", "--endpoint-type", "completions", "--streaming",
        "--use-server-token-count", "--model", load.model, "--url", load.url,
        "--tokenizer", TOKENIZER, "--request-rate", load.rate_per_s,
        "--arrival-pattern", "constant", "--request-count", load.num_requests,
        "--isl", load.prompt_tokens, "--osl", load.output_tokens, "--extra-inputs",
        "ignore_eos:true", "--random-seed", 1, "--output-artifact-dir", place.folder,
    )  # fmt: skip
    lines = (place.folder / "profile_export.jsonl").read_text().splitlines()
    return [_of_aiperf(json.loads(line)["metrics"]) for line in lines]


def _of_aiperf(metrics: Mapping[str, Any]) -> Sample:
    names = ("time_to_first_token", "inter_token_latency", "request_latency")
    ttft_s, tpot_s, e2e_s = (metrics[name]["value"] / 1000 for name in names)
    return Sample(ttft_s, tpot_s, e2e_s)


def inference_perf(place: Place, load: Workload) -> list[Sample]:
    config = place.folder / "config.yaml"
    config.write_text(yaml.safe_dump(_inference_perf_config(place, load)))
    place.run("inference-perf", "--config_file", config)
    (records,) = place.folder.glob("**/per_request_lifecycle_metrics.json")
    return [_of_inference_perf(record) for record in json.loads(records.read_text())]


def _inference_perf_config(place: Place, load: Workload) -> dict[str, Any]:
    def always(tokens: int) -> dict[str, Any]:
        return {
            "min": tokens, "max": tokens, "mean": tokens, "std_dev": 0,
            "total_count": load.num_requests,
        }  # fmt: skip

    duration_s = round(load.num_requests / load.rate_per_s)
    return {
        "api": {"type": "completion", "streaming": True},
        "data": {
            "type": "random",
            "input_distribution": always(load.prompt_tokens),
            "output_distribution": always(load.output_tokens),
        },
        "load": {
            "type": "constant",
            "stages": [{"rate": load.rate_per_s, "duration": duration_s}],
            "num_workers": 1,
        },
        "server": {
            "type": "vllm",
            "model_name": load.model,
            "base_url": load.url,
            "ignore_eos": True,
        },
        "tokenizer": {"pretrained_model_name_or_path": str(place.tokenizer_folder)},
        "report": {"request_lifecycle": {"summary": True, "per_request": True}},
        "storage": {"local_storage": {"path": str(place.folder / "reports")}},
    }


def _of_inference_perf(record: Mapping[str, Any]) -> Sample:
    times_s = record["info"]["response_metrics"]["output_token_times"]
    return Sample(
        times_s[0] - record["start_time"],
        (times_s[-1] - times_s[0]) / (len(times_s) - 1),
        times_s[-1] - record["start_time"],
    )


@dataclass(frozen=True)
class Tool:
    """A load generator from PyPI."""

    name: str
    requirements: tuple[str, ...]
    pythons: tuple[str, ...]
    measure: Callable[[Place, Workload], list[Sample]]


TOOLS = (
    Tool("guidellm", (TORCH, "guidellm==0.8.1"), ("3.11", "3.12", "3.13"), guidellm),
    Tool("aiperf", ("aiperf==0.13.0",), ("3.11", "3.12", "3.13"), aiperf),
    Tool("inference-perf", ("inference-perf==0.7.0",), ("3.12", "3.13"), inference_perf),
)


def save_tokenizer(hub: Path) -> None:
    """One token per byte, as a folder and in the layout of the hub's cache."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415 - slow
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 - slow

    symbols = ["<|end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocabulary = {symbol: token_id for token_id, symbol in enumerate(symbols)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    repository = hub / "hub" / "models--local--bytes"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>")  # noqa: S106 - no password
    tokenizer.save_pretrained(repository / "snapshots" / "1")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("1")


@contextlib.contextmanager
def fixed_endpoint() -> Iterator[tuple[str, str]]:
    """The endpoint with known latencies as a process; its model and address."""
    script = Path(__file__).with_name("fixed_endpoint.py")
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            # Its one line: serving MODEL on URL.
            words = process.stdout.readline().split() if process.stdout else []
            yield words[1], words[3]
        finally:
            process.terminate()


def compare(samples: Mapping[str, list[Sample]]) -> list[str]:
    """A table: each tool's figures, and whether they agree with ours."""
    lines = [f"{'tool':16}{'n':>5}" + "".join(f"{name:>24}" for name in ("TTFT", "TPOT", "E2E"))]
    ours = _columns(next(iter(samples.values())))
    for tool, theirs in samples.items():
        cells = map(_cell, ours, _columns(theirs))
        lines.append(f"{tool:16}{len(theirs):5}" + "".join(f"{cell:>24}" for cell in cells))
    return [*lines, "P50 / mean / P90 in ms; ! where P50 differs by more than 2 % and 2 ms"]


def _columns(samples: Sequence[Sample]) -> list[list[float]]:
    return [list(column) for column in zip(*map(astuple, samples), strict=True)]


def _cell(ours_s: Sequence[float], theirs_s: Sequence[float]) -> str:
    ordered = sorted(theirs_s)
    summary = summarise(ordered)
    if summary is None:
        return "no request"
    difference_s = abs(summary.p50 - percentile(sorted(ours_s), 50))
    allowed_s = max(LARGEST_DIFFERENCE_S, LARGEST_DIFFERENCE_RATIO * summary.p50)
    figures = " / ".join(
        f"{value * 1000:.1f}" for value in (summary.p50, summary.mean, summary.p90)
    )
    return figures + (" !" if difference_s > allowed_s else "")


def measure_all(tools: Sequence[Tool], cache: Path, load: Workload) -> dict[str, list[Sample]]:
    """Ours first, then each tool that can be had."""
    samples: dict[str, list[Sample]] = {}
    with tempfile.TemporaryDirectory(prefix="load-generators-") as name:
        work = Path(name)
        save_tokenizer(work / "hub")
        own = Tool("pserve load", (), (), pserve_load)
        for tool in (own, *tools):
            try:
                programs = (
                    Path(sys.executable).parent
                    if tool is own
                    else environment(cache / tool.name, tool.requirements, tool.pythons)
                )
                place = Place(programs, work / tool.name.replace(" ", "-"), work / "hub")
                place.folder.mkdir()
                say(f"running {tool.name}")
                samples[tool.name] = tool.measure(place, load)
            except ToolError as error:
                if tool is own:
                    raise
                say(f"{tool.name} left out: {error}")
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    names = [tool.name for tool in TOOLS]
    default_cache = Path.home() / ".cache" / "pipelineserve" / "load-generators"
    parser.add_argument("--tools", default=",".join(names), help=f"of {', '.join(names)}")
    parser.add_argument("--cache", type=Path, default=default_cache, help="for the environments")
    parser.add_argument("--url", help="a running server instead of the fixed endpoint")
    parser.add_argument("--model", help="that server's model")
    options = parser.parse_args()
    wanted = options.tools.split(",")
    tools = [tool for tool in TOOLS if tool.name in wanted]
    given = contextlib.nullcontext((options.model, options.url))
    with given if options.url else fixed_endpoint() as (model, url):
        samples = measure_all(tools, options.cache, Workload(url, model))
    print("\n".join(compare(samples)))


if __name__ == "__main__":
    main()
