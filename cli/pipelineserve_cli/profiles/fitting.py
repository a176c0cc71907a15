"""From timings to a profile: medians in a table, slopes by least squares, nothing else fitted."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import log
from statistics import fmean, median, pstdev

from pipelineserve_cli.profiles.compositions import Composition, Extent, decode_ladder, fresh_pieces
from pipelineserve_cli.profiles.timings import Timings
from pipelineserve_simulator.hardware.description import (
    AttentionCosts,
    ElementwiseCosts,
    HardwareProfile,
    HeadCosts,
    HeadRows,
    HostCosts,
    LinearCosts,
    LinkCosts,
    MemoryCosts,
    ModelShape,
    NoiseCosts,
    Stair,
)

# A step that takes longer than so many medians has stalled: the machine did something else.
_STALL_RATIO = 2.0
# No kernel computes faster than in this time; keeps slopes that noise made negative above 0.
_LEAST_S = 1e-12


@dataclass(frozen=True, slots=True)
class Measured:
    """What a profile is made of.

    Attributes:
        model: its sizes.
        device: what it runs on, in words.
        layers_per_stage: of the pipeline that was timed.
        kv_tokens: that the engine's pool would hold.
        timings: of that pipeline.
        extent: of the timings.
    """

    model: ModelShape
    device: str
    layers_per_stage: tuple[int, ...]
    kv_tokens: int
    timings: Timings
    extent: Extent


def fit_profile(measured: Measured) -> HardwareProfile:
    """The profile that these timings say."""
    return _Fit(measured).profile()


class _Fit:
    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._timings = measured.timings
        self._model = measured.model
        self._extent = measured.extent

    def profile(self) -> HardwareProfile:
        past_s = self._past_layer_s()
        context_s = self._context_layer_s()
        stairs = self._stairs(past_s)
        gaps_s = self._gap_line()
        hop_s, token_hop_s = self._hop_line()
        model = self._model
        sent_bytes = model.hidden_size * model.parameter_bytes
        last = stairs[-1]
        slope_s = (last.layer_s - stairs[0].layer_s) / max(1, last.tokens - stairs[0].tokens)
        return HardwareProfile(
            name=f"measured/{model.name}",
            device=self._measured.device,
            model=model,
            layer_floor_s=0.0,
            sharing_ratio=max(1.0, self._timings.sharing_ratio),
            linear=LinearCosts(
                # Beyond the table only: what a further token took within it.
                flops_per_s=2.0 * model.layer_parameters / max(slope_s, _LEAST_S),
                weight_bytes_per_s=model.layer_bytes / stairs[0].layer_s,
                tile_tokens=1,
                stairs=stairs,
                has_lines=True,
            ),
            elementwise=ElementwiseCosts(token_layer_s=0.0, sharded_ratio=1.0),
            attention=AttentionCosts(
                prefill_flops_per_s=4.0 * model.hidden_size / past_s,
                kv_bytes_per_s=model.kv_bytes_per_layer_token / context_s,
                launch_s=0.0,
                piece_s=self._piece_layer_s(stairs, context_s),
            ),
            head=self._head(),
            host=HostCosts(step_s=max(0.0, gaps_s[0] - hop_s), request_s=gaps_s[1]),
            link=LinkCosts(
                hop_s=hop_s,
                hop_bytes_per_token=sent_bytes,
                hop_bytes_per_s=sent_bytes / max(token_hop_s, _LEAST_S),
                all_reduce_s=0.0,
                all_reduce_bytes_per_token=2 * sent_bytes,
                all_reduce_bytes_per_s=sent_bytes / max(token_hop_s, _LEAST_S),
            ),
            memory=MemoryCosts(usable_bytes=self._usable_bytes()),
            noise=self._noise(),
        )

    def _layer_s(self, composition: Composition) -> float:
        """One layer's time, the mean over the stages; without samples there is no head in it."""
        layers = self._measured.layers_per_stage
        return sum(self._timings.step_s(composition, index) for index in range(len(layers))) / sum(
            layers
        )

    def _past_layer_s(self) -> float:
        """Per unit of L_past · L_pre."""
        points = [
            (
                float(composition.past_tokens * composition.prefill_tokens),
                self._layer_s(composition),
            )
            for composition in self._of(lambda c: c.past_tokens > 0)
        ]
        return max(_LEAST_S, _line(points)[1])

    def _context_layer_s(self) -> float:
        """Per token of decodes' contexts."""
        longest = max(c.context_tokens for c in self._of(lambda c: c.num_decodes > 0))
        decodes = {c.num_decodes for c in self._of(lambda c: c.context_tokens == longest)}
        points = [
            (
                float(composition.num_decodes * composition.context_tokens),
                self._layer_s(composition),
            )
            for composition in self._of(lambda c: c.num_decodes in decodes and not c.samples)
        ]
        return max(_LEAST_S, _line(points)[1])

    def _stairs(self, past_s: float) -> tuple[Stair, ...]:
        """Linear layers by tokens: whole prompts less their attention; never falling."""
        pieces = fresh_pieces(self._extent)
        layers_s = never_falling(
            max(_LEAST_S, self._layer_s(piece) - 0.5 * past_s * piece.prefill_tokens**2)
            for piece in pieces
        )
        return tuple(
            Stair(tokens=piece.prefill_tokens, layer_s=layer_s)
            for piece, layer_s in zip(pieces, layers_s, strict=True)
        )

    def _piece_layer_s(self, stairs: Sequence[Stair], context_s: float) -> float:
        """What a decode takes more than a token of a prompt, its context aside."""
        by_tokens = {stair.tokens: stair.layer_s for stair in stairs}
        rest_s = [
            (float(c.num_decodes), self._layer_s(c) - by_tokens[c.num_decodes]
             - context_s * c.num_decodes * c.context_tokens)
            for c in self._short_decodes(samples=False)
        ]  # fmt: skip
        return max(0.0, sum(n * s for n, s in rest_s) / sum(n * n for n, _ in rest_s))

    def _head(self) -> HeadCosts:
        """The same decodes with and without the head, on the last stage."""
        last = len(self._measured.layers_per_stage) - 1
        sampling = self._short_decodes(samples=True)
        heads_s = never_falling(
            max(0.0, self._timings.step_s(c, last) - self._timings.step_s(_without_head(c), last))
            for c in sampling
        )
        rows = [
            HeadRows(rows=composition.num_decodes, head_s=head_s)
            for composition, head_s in zip(sampling, heads_s, strict=True)
        ]
        slope_s = _line([(float(row.rows), row.head_s) for row in rows])[1]
        return HeadCosts(fixed_s=rows[0].head_s, output_s=max(0.0, slope_s), measured=tuple(rows))

    def _gap_line(self) -> tuple[float, float]:
        """From the last stage's end to the first one's start: fixed, and per request."""
        points = [(float(num), median(gaps_s)) for num, gaps_s in self._timings.gaps_s.items()]
        return _rising_line(points)

    def _hop_line(self) -> tuple[float, float]:
        """From stage to stage: fixed, and per token; nothing with one stage."""
        points = [(float(num), median(hops_s)) for num, hops_s in self._timings.hops_s.items()]
        if not points:
            return 0.0, 0.0
        return _rising_line(points)

    def _usable_bytes(self) -> int:
        """So that the pool is as large as the engine's, by the rule of `hardware.layouts`."""
        model, layers = self._model, self._measured.layers_per_stage
        last = len(layers) - 1
        first = list(enumerate(layers))[:2]
        weights = [
            num * model.layer_bytes + ((index == 0) + (index == last)) * model.embedding_bytes
            for index, num in first
        ]
        kv_bytes = [num * model.kv_bytes_per_layer_token for _, num in first]
        rooms = fmean(weight / kv for weight, kv in zip(weights, kv_bytes, strict=True))
        # One token more than the pool has: the rule rounds down.
        return int((self._measured.kv_tokens + 1 + rooms) / fmean(1.0 / kv for kv in kv_bytes))

    def _noise(self) -> NoiseCosts:
        ratios = [
            step_s / median(steps_s)
            for stages in self._timings.together_s.values()
            for steps_s in stages
            for step_s in steps_s
        ]
        usual = [ratio for ratio in ratios if ratio <= _STALL_RATIO]
        stalls_s = list(chain.from_iterable(self._stalls()))
        return NoiseCosts(
            sigma_ratio=min(1.0, pstdev([log(ratio) for ratio in usual])),
            stall_ratio=len(stalls_s) / len(ratios),
            stall_s=fmean(stalls_s) if stalls_s else 0.0,
        )

    def _stalls(self) -> Iterable[list[float]]:
        for stages in self._timings.together_s.values():
            for steps_s in stages:
                middle_s = median(steps_s)
                yield [s - middle_s for s in steps_s if s > _STALL_RATIO * middle_s]

    def _short_decodes(self, *, samples: bool) -> list[Composition]:
        """The ladder of decodes at the shortest context."""
        shortest = min(c.context_tokens for c in self._of(lambda c: c.num_decodes > 0))
        return [
            Composition(num, shortest, samples=samples)
            for num in decode_ladder(self._extent.chunk_tokens)
        ]

    def _of(self, is_wanted: Callable[[Composition], bool]) -> list[Composition]:
        return [composition for composition in self._timings.together_s if is_wanted(composition)]


def never_falling(values_s: Iterable[float]) -> list[float]:
    """The nearest values, by least squares, of which none is below the one before.

    Neighbours that fall are replaced by their mean, as often as it takes (pool adjacent violators).
    """
    pools: list[tuple[float, int]] = []
    for value_s in values_s:
        mean_s, num = value_s, 1
        while pools and pools[-1][0] > mean_s:
            before_s, before = pools.pop()
            mean_s = (before_s * before + mean_s * num) / (before + num)
            num += before
        pools.append((mean_s, num))
    return [mean_s for mean_s, num in pools for _ in range(num)]


def _without_head(composition: Composition) -> Composition:
    return replace(composition, samples=False)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Intercept and slope by least squares; a single point has no slope."""
    mean_x, mean_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    return mean_y - slope * mean_x, slope


def _rising_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The same where neither can be below 0: the other one is then fitted alone."""
    fixed, slope = _line(points)
    if slope < 0.0:
        return fmean(y for _, y in points), 0.0
    if fixed < 0.0:
        return 0.0, sum(x * y for x, y in points) / sum(x * x for x, _ in points)
    return fixed, slope
