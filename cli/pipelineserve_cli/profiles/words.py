"""A profile in words: the file's first lines, and what a person is told."""

from rich.table import Table

from pipelineserve_cli.profiles.fitting import Measured
from pipelineserve_simulator.hardware.description import HardwareProfile


def comment_of(measured: Measured, rounds: int) -> str:
    """How the file came about, as YAML comments."""
    layers = ", ".join(map(str, measured.layers_per_stage))
    return (
        f"# Measured by `pserve profile`: {measured.model.name}, stages of {layers} layers, "
        f"{rounds} rounds, medians.\n"
        f"# Up to {measured.extent.chunk_tokens} tokens a micro-batch and contexts of "
        f"{measured.extent.context_tokens}; beyond, slopes go on.\n"
        "# Steps were timed while every stage computes. Speeds of linear layers, weights and\n"
        "# links are what these times come to, not what the device could do. No all-reduce was\n"
        "# timed.\n"
    )


def summary_of(result: HardwareProfile, measured: Measured) -> Table:
    """The figures that say most."""
    table = Table(title=f"{result.model.name} on {result.device}")
    table.add_column("")
    table.add_column("measured", justify="right")
    for tokens in _some(result):
        steps_ms = [1000.0 * num * _layer_s(result, tokens) for num in measured.layers_per_stage]
        text = " / ".join(f"{step_ms:.1f} ms" for step_ms in steps_ms)
        table.add_row(f"layers of each stage, {tokens} tokens", text)
    for row in result.head.measured[:: max(1, len(result.head.measured) - 1)]:
        table.add_row(f"head, {row.rows} tokens", f"{1000.0 * row.head_s:.1f} ms")
    table.add_section()
    table.add_row("from stage to stage", f"{1e6 * result.link.hop_s:.0f} us")
    table.add_row("server, per micro-batch", f"{1e6 * result.host.step_s:.0f} us")
    table.add_row("server, per request in it", f"{1e6 * result.host.request_s:.1f} us")
    table.add_row("spread of a step", f"{result.noise.sigma_ratio:.1%}")
    table.add_row("all stages at once / one alone", f"{result.sharing_ratio:.2f}")
    table.add_row("KV pool", f"{measured.kv_tokens:,} tokens")
    return table


def _some(result: HardwareProfile) -> list[int]:
    tokens = [stair.tokens for stair in result.linear.stairs]
    return sorted({tokens[0], tokens[len(tokens) // 2], tokens[-1]})


def _layer_s(result: HardwareProfile, tokens: int) -> float:
    return next(stair.layer_s for stair in result.linear.stairs if stair.tokens == tokens)
