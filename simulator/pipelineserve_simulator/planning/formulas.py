"""Closed formulas of pipeline parallelism: pure, small, each with its source.

They say why a layout is good or bad; what is ranked in the end is simulated. Sources:

    GPipe          Huang et al., NeurIPS 2019, section 2.3
    Megatron-2     Narayanan et al., SC 2021, section 2.2
    Megatron-LM    Shoeybi et al., 2019, section 3: two all-reduces per layer in a forward pass
    ring           Patarasuk and Yuan, JPDC 2009: each of N sends 2 (N - 1) ÷ N of the data
    GQA            Ainslie et al., EMNLP 2023
    P-K, Little    Pollaczek-Khinchine's mean wait of an M/G/1 queue; Little's law
"""

import math


def pipeline_efficiency(num_micro_batches: int, num_stages: int, num_rounds: int = 1) -> float:
    """The share of a stage's time in which it works: v m ÷ (v m + p - 1).

    A batch of m equal micro-batches fills p stages and drains them again. With v rounds (virtual
    stages per worker) each fill and drain takes 1/v of the time. GPipe for v = 1; Megatron-2 for
    interleaving, whose (p - 1) ÷ (v m) is idle over ideal time. A server never drains, so this is
    the efficiency of bursts and of `FillDrain`; under steady load m grows without bound.

    Args:
        num_micro_batches: m, at least 1.
        num_stages: p, at least 1.
        num_rounds: v, at least 1.
    """
    work = num_rounds * num_micro_batches
    return work / (work + num_stages - 1)


def bubble_ratio(num_micro_batches: int, num_stages: int, num_rounds: int = 1) -> float:
    """The rest: (p - 1) ÷ (v m + p - 1), from 0 to below 1."""
    return 1.0 - pipeline_efficiency(num_micro_batches, num_stages, num_rounds)


def fewest_micro_batches(efficiency_ratio: float, num_stages: int, num_rounds: int = 1) -> int:
    """The smallest m with at least this efficiency: (p - 1) e ÷ (v (1 - e)), rounded up.

    `pipeline_efficiency` solved for m. GPipe's rule of thumb, m ≥ 4 p, gives 80 % and more.

    Args:
        efficiency_ratio: e, from 0 to below 1.
        num_stages: p, at least 1.
        num_rounds: v, at least 1.
    """
    exact = (num_stages - 1) * efficiency_ratio / (num_rounds * (1.0 - efficiency_ratio))
    # 0.8 ÷ 0.2 is a little more than 4 in floating point; m is not to jump for it.
    return max(1, math.ceil(exact - 1e-9))


def batch_time_s(
    work_s: float, step_overhead_s: float, num_stages: int, num_micro_batches: int
) -> float:
    """Time of a batch cut into m: (m + p - 1) (W ÷ m + o).

    GPipe's schedule, with an overhead for each micro-batch.

    Args:
        work_s: W, what all of the batch takes on one stage.
        step_overhead_s: o, what each micro-batch takes beside that.
        num_stages: p.
        num_micro_batches: m, at least 1.
    """
    step_s = work_s / num_micro_batches + step_overhead_s
    return (num_micro_batches + num_stages - 1) * step_s


def optimal_micro_batches(work_s: float, step_overhead_s: float, num_stages: int) -> int:
    """The m with the least `batch_time_s`: √((p - 1) W ÷ o), rounded to the better neighbour.

    More pieces fill the pipeline sooner, and each costs its overhead. Derivative of `batch_time_s`
    set to 0; the function is convex in m. It holds while W does not depend on m, so not for pieces
    so small that reading the weights takes longer than computing with them.

    Args:
        work_s: W, at least 0.
        step_overhead_s: o, above 0; without any, ever smaller pieces would be better.
        num_stages: p, at least 1.
    """
    exact = math.sqrt((num_stages - 1) * work_s / step_overhead_s)
    below = max(1, math.floor(exact))

    def time_s(num: int) -> float:
        return batch_time_s(work_s, step_overhead_s, num_stages, num)

    return min((below, below + 1), key=time_s)


def all_reduce_s(
    sent_bytes: float, num_devices: int, latency_s: float, bytes_per_s: float
) -> float:
    """One all-reduce in a ring: a + 2 (N - 1) ÷ N · bytes ÷ rate; 0 for one device (ring).

    Args:
        sent_bytes: of the tensor that is summed up.
        num_devices: N, at least 1.
        latency_s: a, of one all-reduce.
        bytes_per_s: that a device sends.
    """
    if num_devices == 1:
        return 0.0
    return latency_s + 2.0 * (num_devices - 1) / num_devices * sent_bytes / bytes_per_s


def pipeline_gain(
    compute_s: float, exchange_s: float, hand_off_s: float, num_devices: int, efficiency: float
) -> float:
    """Throughput of N stages over that of N shards: e (C ÷ N + A) ÷ (C ÷ N + H).

    Either way a device computes C ÷ N of a micro-batch. Shards add the layers' all-reduces A to it
    (Megatron-LM); stages add what of a hand-off H is not hidden, and idle 1 - e of their time.
    Above 1 stages serve more. It says nothing of latency: a request passes all stages.

    Args:
        compute_s: C, of one micro-batch on one device, above 0.
        exchange_s: A, of all layers; see `all_reduce_s`.
        hand_off_s: H, of one stage, where a stage has to wait for it.
        num_devices: N, at least 1.
        efficiency: e, see `pipeline_efficiency`; 1 under steady load.
    """
    share_s = compute_s / num_devices
    return efficiency * (share_s + exchange_s) / (share_s + hand_off_s)


def kv_bytes_per_token(
    num_layers: int, num_kv_heads: int, head_size: int, element_bytes: int
) -> int:
    """Keys and values of one token: 2 · layers · KV heads · head size · bytes (GQA).

    Of a whole model, or of a stage with that stage's layers.
    """
    return 2 * num_layers * num_kv_heads * head_size * element_bytes


def stage_weights_bytes(
    num_layers: int, layer_bytes: int, ends_bytes: int, tensor_parallel: int
) -> float:
    """Weights on each device of a stage: (layers · layer + embedding, head) ÷ shards (Megatron-LM).

    Args:
        num_layers: of the stage.
        layer_bytes: of one layer.
        ends_bytes: the embedding's on the first stage, the head's on the last one, else 0.
        tensor_parallel: devices that share the stage, at least 1.
    """
    return (num_layers * layer_bytes + ends_bytes) / tensor_parallel


def mean_wait_s(load_ratio: float, mean_service_s: float, squared_service_s2: float) -> float:
    """Mean wait in a queue with random arrivals: u ÷ (1 - u) · E[S²] ÷ (2 E[S]) (P-K).

    Args:
        load_ratio: u; from 1 on the wait has no bound, which is infinity.
        mean_service_s: E[S], above 0.
        squared_service_s2: E[S²], in square seconds.
    """
    if load_ratio >= 1.0:
        return math.inf
    return load_ratio / (1.0 - load_ratio) * squared_service_s2 / (2.0 * mean_service_s)


def end_to_end_s(
    wait_s: float, prefill_s: float, passage_s: float, tpot_s: float, output_tokens: float
) -> float:
    """A request from its arrival to its last token: wait + prefill + passage + (out - 1) TPOT.

    The definitions of TTFT and TPOT put together. The passage is that of the prompt's last piece
    through all stages; the wait is `mean_wait_s` for the mean.
    """
    return wait_s + prefill_s + passage_s + max(0.0, output_tokens - 1.0) * tpot_s


def requests_inside(rate_per_s: float, stay_s: float) -> float:
    """Requests in the system at once: rate · stay (Little); what KV has to hold."""
    return rate_per_s * stay_s
