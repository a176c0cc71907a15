"""What a person reads of a replay."""

from rich.table import Table

from pipelineserve_cli.replays.comparison import Comparison, Row
from pipelineserve_controller.replay import Difference, Replay
from pipelineserve_simulator.replay.player import Divergence, Replayed
from pipelineserve_simulator.replay.recorded import Sent

_MAX_SHOWN = 10
_MAX_PIECES = 8


def comparison_table(comparison: Comparison) -> Table:
    """Runs side by side; each figure with its difference from the first run's."""
    table = Table()
    table.add_column("")
    for name in comparison.runs:
        table.add_column(name, justify="right")
    for row in comparison.rows:
        table.add_row(row.name, *_cells(row))
    return table


def journal_table(replay: Replay) -> Table:
    """Turns that come out differently now, the first ones of them."""
    num_different = len(replay.differences)
    table = Table(title=f"{replay.num_turns} turns, {num_different} of them decided differently")
    for title in ("file", "turn", "recorded", "decided now"):
        table.add_column(title)
    for difference in replay.differences[:_MAX_SHOWN]:
        recorded, decided = _turns(difference)
        table.add_row(difference.file, str(difference.index), recorded, decided)
    if num_different > _MAX_SHOWN:
        table.caption = f"and {num_different - _MAX_SHOWN} more"
    return table


def parity_text(replayed: Replayed) -> str:
    """Whether the scheduler of this release composes what was recorded."""
    if replayed.divergence is None:
        return f"{replayed.num_equal} micro-batches composed again, all as recorded"
    recorded, composed = _sides(replayed.divergence)
    return (
        f"{replayed.num_equal} micro-batches composed again as recorded, then another one:\n"
        f"  recorded  {recorded}\n  composed  {composed}"
    )


def _cells(row: Row) -> list[str]:
    cells = []
    for index, (value, difference) in enumerate(zip(row.values, row.differences, strict=True)):
        text = "-" if value is None else f"{value:,.1f} {row.unit}".rstrip()
        change = "" if index == 0 or difference is None else f" ({difference:+.0%})"
        cells.append(text + change)
    return cells


def _turns(difference: Difference) -> tuple[str, str]:
    """Both sides in a few words: what differs, else all of it."""
    sides = (difference.recorded, difference.decided)
    names = [
        name for name in sides[0].__slots__ if getattr(sides[0], name) != getattr(sides[1], name)
    ]
    recorded, decided = (
        "\n".join(f"{name}: {getattr(side, name)}" for name in names) for side in sides
    )
    return recorded, decided


def _sides(divergence: Divergence) -> tuple[str, str]:
    return _micro_batch(divergence.recorded), _micro_batch(divergence.composed)


def _micro_batch(sent: Sent | None) -> str:
    if sent is None:
        return "nothing"
    pieces = [
        f"{piece.request_id} {'decode' if piece.is_decode else 'prefill'} "
        f"{piece.start}+{piece.num_tokens}"
        for piece in sent.pieces[:_MAX_PIECES]
    ]
    more = len(sent.pieces) - len(pieces)
    rest = f" and {more} more" if more > 0 else ""
    head = f"#{sent.sequence} slot {sent.slot_index}, chunk of {sent.chunk_tokens}"
    return f"{head}: {', '.join(pieces)}{rest}"
