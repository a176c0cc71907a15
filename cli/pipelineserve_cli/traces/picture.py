"""A window of a record as an SVG: stages as rows, micro-batches as slices, bubbles hatched."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from xml.sax.saxutils import escape

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_cli.traces.record import Step, TracedMicroBatch, TraceRecord
from pipelineserve_cli.traces.timeline import Span, bubbles, steps_of

_WIDTH = 1120
_LEFT = 92
_RIGHT = 24
_TOP = 136
_ROW_HEIGHT = 68
_ROW_PITCH = 92
_MARGIN_RATIO = 0.12
_MIN_BAND_HEIGHT = 13
_LETTER_WIDTH = 6.4
_TICK_COUNT = 10

_HIGHLIGHT, _HIGHLIGHT_TEXT = "#e8871e", "#3d2100"
_PREFILL, _PREFILL_TEXT = "#b9d3ea", "#17324a"
_DECODE, _DECODE_TEXT = "#3f7f93", "#ffffff"
_ARRIVAL_INK = "#9a5200"
_INK, _SOFT_INK = "#1f2933", "#5b6770"


@dataclass(frozen=True, slots=True)
class _Band:
    """A part of a slice: tokens of one kind; of the labels the first that fits is shown."""

    num_tokens: int
    fill: str
    ink: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where times and stages are on the page."""

    window: Span
    num_stages: int

    def x(self, at_s: float) -> float:
        """Of a time; those outside the window are on its edge."""
        inside_s = min(max(at_s, self.window.start_s), self.window.end_s) - self.window.start_s
        return _LEFT + inside_s / self.window.duration_s * (_WIDTH - _LEFT - _RIGHT)

    def y(self, stage_index: int) -> float:
        """Top of a stage's row."""
        return _TOP + stage_index * _ROW_PITCH

    @property
    def bottom(self) -> float:
        """Where the time axis is."""
        return self.y(self.num_stages) - (_ROW_PITCH - _ROW_HEIGHT) + 14


def longest_prompt(record: TraceRecord) -> str | None:
    """The request with the most prefilled tokens; None if nothing was prefilled."""
    tokens: Counter[str] = Counter()
    for batch in record.micro_batches:
        for piece in batch.prefill_pieces:
            tokens[piece.request_id] += piece.num_tokens
    return max(tokens, key=lambda name: tokens[name]) if tokens else None


def window_around(record: TraceRecord, request_id: str) -> Span:
    """From its arrival, or a little before its first piece, to a little after the last piece."""
    batches = [
        batch
        for batch in record.micro_batches
        if batch.steps and any(p.request_id == request_id for p in batch.prefill_pieces)
    ]
    start_s = min((batch.entry_s for batch in batches), default=0.0)
    end_s = max((batch.back_s for batch in batches), default=0.0)
    margin_s = _MARGIN_RATIO * (end_s - start_s)
    if (request := record.ended.get(request_id)) is not None:
        # A long wait in the queue would leave no room for what the picture is about.
        start_s = max(min(start_s, request.arrival_s), start_s - 2 * margin_s)
    return Span(max(0.0, start_s - margin_s), end_s + margin_s)


def picture(record: TraceRecord, from_s: float | None = None, to_s: float | None = None) -> str:
    """Draw a window; without times the one around the longest prompt, which is highlighted.

    Args:
        record: as read.
        from_s: since the record's start.
        to_s: since the record's start.

    Raises:
        InvalidInputError: no stage ran anything in the window.
    """
    prompt = longest_prompt(record)
    around = Span(0.0, 0.0) if prompt is None else window_around(record, prompt)
    window = Span(
        around.start_s if from_s is None else from_s, around.end_s if to_s is None else to_s
    )
    last_s = max((batch.back_s for batch in record.micro_batches), default=0.0)
    if not any(_is_seen(step, window) for b in record.micro_batches for step in b.steps):
        text = f"nothing ran from {window.start_s:.3f} s to {window.end_s:.3f} s"
        advice = f"choose --from-s < --to-s within 0 and {last_s:.3f}"
        raise InvalidInputError("the picture", [Fault("window", f"{text}; {advice}")])
    frame = _Frame(window, record.num_stages)
    parts = [*_head(frame), *_title(record, prompt), *_legend(has_prompt=prompt is not None)]
    for stage_index in range(record.num_stages):
        parts += _row(record, stage_index, prompt, frame)
    parts += _connections(record, prompt, frame)
    parts += _arrival(record, prompt, frame)
    parts += _axis(frame)
    return "\n".join([*parts, "</svg>", ""])


def _is_seen(step: Step, window: Span) -> bool:
    return step.start_s < window.end_s and step.end_s > window.start_s


def _head(frame: _Frame) -> list[str]:
    height = frame.bottom + 58
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}"',
        f'width="{_WIDTH}" height="{height:g}"',
        'font-family="Helvetica, Arial, sans-serif" font-size="12">',
        '<defs><pattern id="bubble" width="7" height="7" patternUnits="userSpaceOnUse"',
        'patternTransform="rotate(45)"><rect width="7" height="7" fill="#f1f3f5"/>',
        '<line x1="0" y1="0" x2="0" y2="7" stroke="#b8c0c7" stroke-width="2"/></pattern></defs>',
        f'<rect width="{_WIDTH}" height="{height:g}" fill="#ffffff"/>',
    ]


def _title(record: TraceRecord, prompt: str | None) -> list[str]:
    title = f"Micro-batches on {record.num_stages} stages"
    below = "A slice is one micro-batch on one stage; its bands show what it carries."
    if prompt is not None:
        batches = [
            piece.num_tokens
            for batch in record.micro_batches
            for piece in batch.prefill_pieces
            if piece.request_id == prompt
        ]
        title = (
            f"A prompt of {sum(batches)} tokens goes through {record.num_stages} stages "
            f"in {len(batches)} pieces, among running answers"
        )
        below += " While one piece is in a stage, the next is in the stage before."
    return [
        _text(_LEFT, 32, title, size=18, weight="bold"),
        _text(_LEFT, 54, below, fill=_SOFT_INK),
    ]


def _legend(*, has_prompt: bool) -> Iterator[str]:
    entries = [(_DECODE, "decodes"), (_PREFILL, "pieces of other prompts")]
    entries += [("url(#bubble)", "bubble: idle while another stage works")]
    if has_prompt:
        entries = [(_HIGHLIGHT, "pieces of the long prompt"), *entries]
    x = float(_LEFT)
    for fill, label in entries:
        yield f'<rect x="{x:g}" y="70" width="14" height="14" rx="2" fill="{fill}"/>'
        yield _text(x + 20, 81.5, label)
        x += 20 + _LETTER_WIDTH * len(label) + 22


def _row(record: TraceRecord, stage_index: int, prompt: str | None, frame: _Frame) -> Iterator[str]:
    y = frame.y(stage_index)
    yield _text(_LEFT - 14, y + _ROW_HEIGHT / 2 + 4, f"stage {stage_index}", anchor="end", size=13)
    for bubble in bubbles(record, stage_index):
        x, width = frame.x(bubble.start_s), frame.x(bubble.end_s) - frame.x(bubble.start_s)
        if width > 0:
            yield _rect(x, y, width, _ROW_HEIGHT, "url(#bubble)")
    for batch, step in steps_of(record, stage_index):
        if _is_seen(step, frame.window):
            yield from _slice(batch, step, prompt, frame)


def _slice(batch: TracedMicroBatch, step: Step, prompt: str | None, frame: _Frame) -> Iterator[str]:
    x, y = frame.x(step.start_s), frame.y(step.stage_index)
    width = frame.x(step.end_s) - x
    bands = _bands(batch, prompt)
    room = _ROW_HEIGHT - _MIN_BAND_HEIGHT * len(bands)
    below = y
    for band in bands:
        height = _MIN_BAND_HEIGHT + room * band.num_tokens / batch.num_tokens
        yield _rect(x, below, width, height, band.fill)
        label = next((text for text in band.labels if len(text) * _LETTER_WIDTH < width), None)
        if label is not None:
            middle = below + height / 2 + 3.8
            yield _text(x + width / 2, middle, label, fill=band.ink, anchor="middle", size=11)
        below += height
    yield (
        f'<rect x="{x:.2f}" y="{y:g}" width="{width:.2f}" height="{_ROW_HEIGHT}" '
        'fill="none" stroke="#ffffff" stroke-width="1"/>'
    )
    label = f"#{batch.sequence}"
    if len(label) * _LETTER_WIDTH < width:
        yield _text(x + width / 2, y - 4, label, fill=_SOFT_INK, anchor="middle", size=10)


def _bands(batch: TracedMicroBatch, prompt: str | None) -> list[_Band]:
    """Decodes on top, as they come first in the micro-batch."""
    own = [p for p in batch.prefill_pieces if p.request_id == prompt]
    own_tokens = sum(piece.num_tokens for piece in own)
    other_tokens = batch.num_prefill_tokens - own_tokens
    bands = []
    if (count := batch.num_decodes) > 0:
        labels = (f"{count} decode{'s' if count > 1 else ''}", str(count))
        bands.append(_Band(count, _DECODE, _DECODE_TEXT, labels))
    if own_tokens:
        positions = f"{own[0].start}–{own[0].start + own_tokens - 1}"  # noqa: RUF001 - a range
        labels = (f"tokens {positions}", positions)
        bands.append(_Band(own_tokens, _HIGHLIGHT, _HIGHLIGHT_TEXT, labels))
    if other_tokens:
        labels = (f"{other_tokens} tokens", str(other_tokens))
        bands.append(_Band(other_tokens, _PREFILL, _PREFILL_TEXT, labels))
    return bands


def _connections(record: TraceRecord, prompt: str | None, frame: _Frame) -> Iterator[str]:
    """From the end of a piece on one stage to its start on the next."""
    for batch in record.micro_batches:
        if not any(piece.request_id == prompt for piece in batch.prefill_pieces):
            continue
        for step, following in pairwise(batch.steps):
            if not frame.window.start_s < step.end_s < frame.window.end_s:
                continue
            top, bottom = frame.y(step.stage_index) + _ROW_HEIGHT, frame.y(following.stage_index)
            x, next_x = frame.x(step.end_s), frame.x(following.start_s)
            yield (
                f'<path d="M{x:.2f} {top:g} L{next_x:.2f} {bottom:g}" fill="none" '
                f'stroke="{_HIGHLIGHT}" stroke-width="2"/>'
            )


def _arrival(record: TraceRecord, prompt: str | None, frame: _Frame) -> Iterator[str]:
    request = record.ended.get(prompt or "")
    window = frame.window
    if request is None or not window.start_s < request.arrival_s < window.end_s:
        return
    x, tip = frame.x(request.arrival_s), frame.y(0) - 17
    yield f'<path d="M{x:.2f} {tip:g} l-5 -8 h10 z" fill="{_HIGHLIGHT}"/>'
    label = "the long prompt arrives"
    # Beside the arrow, on the side that has room.
    is_right = x + 10 + _LETTER_WIDTH * len(label) < _WIDTH - _RIGHT
    place, anchor = (x + 9, "start") if is_right else (x - 9, "end")
    yield _text(place, tip - 1, label, fill=_ARRIVAL_INK, anchor=anchor, size=11)


def _axis(frame: _Frame) -> Iterator[str]:
    y, right = frame.bottom, _WIDTH - _RIGHT
    yield f'<line x1="{_LEFT}" y1="{y:g}" x2="{right}" y2="{y:g}" stroke="{_SOFT_INK}"/>'
    duration_ms = frame.window.duration_s * 1000
    step_ms = _round_step(duration_ms / _TICK_COUNT)
    for index in range(int(duration_ms / step_ms) + 1):
        x = frame.x(frame.window.start_s + index * step_ms / 1000)
        yield f'<line x1="{x:.2f}" y1="{y:g}" x2="{x:.2f}" y2="{y + 5:g}" stroke="{_SOFT_INK}"/>'
        yield _text(x, y + 19, f"{index * step_ms:g}", anchor="middle", fill=_SOFT_INK)
    yield _text((_LEFT + right) / 2, y + 42, "time in ms", anchor="middle", fill=_SOFT_INK)


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, ... (and tenths of them) that is not below `least`."""
    step = 0.001
    while step < least:
        step *= 2.5 if f"{step:.0e}".startswith("2") else 2.0
    return float(f"{step:.3g}")


def _rect(x: float, y: float, width: float, height: float, fill: str) -> str:
    place = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    return f'<rect {place} fill="{fill}"/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    fill: str = _INK,
    anchor: str = "start",
    size: int = 12,
    weight: str = "normal",
) -> str:
    return (
        f'<text x="{x:.2f}" y="{y:.2f}" fill="{fill}" text-anchor="{anchor}" '
        f'font-size="{size}" font-weight="{weight}">{escape(text)}</text>'
    )
