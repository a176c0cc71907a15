"""Step times from a profile and a layout.

Per layer, with P parameters and n tokens over N devices:

    linear     stairs, or lines between them, up to their last token count;
               above it max(2P / BW, 2P · tiles(n) / F), ÷ N
    others     n · element-wise, attention of prefill ÷ F_attention, of decodes ÷ BW_attention
    all-reduce two of (latency + n · bytes · (N - 1) ÷ N ÷ rate), where N > 1

A stage takes its layers' sum, the last one the head as well.
"""

from bisect import bisect_left

from pipelineserve_simulator.hardware.description import HardwareProfile, HeadCosts
from pipelineserve_simulator.hardware.layouts import Layout
from pipelineserve_simulator.pipeline.loads import StepLoad


class ProfileCosts:
    """What a profile says of one layout; see `PipelineCosts`.

    Attributes:
        prefill_layer_s: attention's seconds of one layer per unit of ½ Σ L_pre² + Σ L_past · L_pre.
        context_layer_s: attention's seconds of one layer per token of decodes' contexts.
    """

    def __init__(self, profile: HardwareProfile, layout: Layout) -> None:
        self._profile = profile
        self._layers = layout.partition.layers_per_stage
        self._shards = layout.tensor_parallel
        self._layer_s_by_tokens: dict[int, tuple[float, float]] = {}
        model, attention = profile.model, profile.attention
        shards = self._shards
        self._head_reading_s = model.embedding_bytes / profile.linear.weight_bytes_per_s
        self._head_flops = 2.0 * model.vocabulary_size * model.hidden_size
        self.prefill_layer_s = 4.0 * model.hidden_size / attention.prefill_flops_per_s / shards
        self.context_layer_s = model.kv_bytes_per_layer_token / attention.kv_bytes_per_s / shards

    @property
    def num_stages(self) -> int:
        """Stages of the layout."""
        return len(self._layers)

    @property
    def sharing_ratio(self) -> float:
        """The profile's."""
        return self._profile.sharing_ratio

    def stage_times_s(self, load: StepLoad) -> tuple[float, ...]:
        """Computation of one micro-batch on each stage."""
        layer_s = self.layer_s(load)
        times_s = [num_layers * layer_s for num_layers in self._layers]
        times_s[-1] += self.head_s(load.num_samples)
        return tuple(times_s)

    def layer_s(self, load: StepLoad) -> float:
        """Computation of one micro-batch in one layer, all-reduces included."""
        dense_s, all_reduce_s = self._of_tokens(load.num_tokens)
        launch_s = self._profile.attention.launch_s
        if load.num_decodes:
            dense_s += load.decode_context_tokens * self.context_layer_s + launch_s
            dense_s += load.num_decodes * self._profile.attention.piece_s
        if load.num_requests > load.num_decodes:
            work = 0.5 * load.squared_prefill_tokens + load.past_prefill_product
            dense_s += work * self.prefill_layer_s + launch_s
        return max(dense_s, self._profile.layer_floor_s) + all_reduce_s

    def linear_s(self, num_tokens: int) -> float:
        """Linear layers of one layer on one device."""
        linear, parameters = self._profile.linear, self._profile.model.layer_parameters
        index = bisect_left(linear.stairs, num_tokens, key=lambda stair: stair.tokens)
        if index < len(linear.stairs):
            return self._stair_s(index, num_tokens) / self._shards
        tiles = -(-num_tokens // linear.tile_tokens)
        reading_s = self._profile.model.layer_bytes / linear.weight_bytes_per_s
        computing_s = 2.0 * parameters * tiles * linear.tile_tokens / linear.flops_per_s
        return max(reading_s, computing_s) / self._shards

    def head_s(self, num_samples: int) -> float:
        """Head and sampling of so many tokens; nothing is sampled for 0."""
        if num_samples == 0:
            return 0.0
        linear, head = self._profile.linear, self._profile.head
        if head.measured:
            return _measured_head_s(head, num_samples)
        computing_s = self._head_flops * num_samples / linear.flops_per_s
        matrix_s = max(self._head_reading_s, computing_s) / self._shards
        return matrix_s + head.fixed_s + head.output_s * num_samples

    def transfer_s(self, num_tokens: int) -> float:
        """Hand-off of a micro-batch to the next stage."""
        link = self._profile.link
        return link.hop_s + num_tokens * link.hop_bytes_per_token / link.hop_bytes_per_s

    def host_s(self, num_requests: int) -> float:
        """The leader's work on a micro-batch."""
        host = self._profile.host
        return host.step_s + host.request_s * num_requests

    def return_s(self) -> float:
        """Token ids are few: the latency of a message."""
        return self._profile.link.hop_s

    def _of_tokens(self, num_tokens: int) -> tuple[float, float]:
        """What depends on tokens alone in one layer: dense work, and two all-reduces."""
        known = self._layer_s_by_tokens.get(num_tokens)
        if known is None:
            dense_s = self.linear_s(num_tokens) + self._elementwise_s(num_tokens)
            known = (dense_s, 2.0 * self._all_reduce_s(num_tokens))
            self._layer_s_by_tokens[num_tokens] = known
        return known

    def _stair_s(self, index: int, num_tokens: int) -> float:
        stairs = self._profile.linear.stairs
        above = stairs[index]
        if not self._profile.linear.has_lines or index == 0:
            return above.layer_s
        below = stairs[index - 1]
        ratio = (num_tokens - below.tokens) / (above.tokens - below.tokens)
        return below.layer_s + ratio * (above.layer_s - below.layer_s)

    def _elementwise_s(self, num_tokens: int) -> float:
        elementwise = self._profile.elementwise
        sharded = elementwise.sharded_ratio
        return num_tokens * elementwise.token_layer_s * (1.0 - sharded + sharded / self._shards)

    def _all_reduce_s(self, num_tokens: int) -> float:
        if self._shards == 1:
            return 0.0
        link = self._profile.link
        sent = num_tokens * link.all_reduce_bytes_per_token * (self._shards - 1) / self._shards
        return link.all_reduce_s + sent / link.all_reduce_bytes_per_s


def _measured_head_s(head: HeadCosts, num_samples: int) -> float:
    """On the line between two measurements; the first holds below, the slope per token beyond."""
    measured = head.measured
    index = bisect_left(measured, num_samples, key=lambda row: row.rows)
    if index == 0:
        return measured[0].head_s
    below = measured[index - 1]
    if index == len(measured):
        return below.head_s + (num_samples - below.rows) * head.output_s
    above = measured[index]
    ratio = (num_samples - below.rows) / (above.rows - below.rows)
    return below.head_s + ratio * (above.head_s - below.head_s)
