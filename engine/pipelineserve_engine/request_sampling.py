"""What the stages must know to choose one live request's tokens, kept by the server.

The history of tokens that penalties look at is here and not in the stages. It follows the output
alone, so preemption, a swap or a restarted pipeline cannot change the text.
"""

import sys
from array import array
from collections.abc import Callable

from pipelineserve_engine.generation import GenerationRequest, SamplingParameters
from pipelineserve_engine.stage_messages import LogitAdjustments, SamplingSpec


class RequestSampling:
    """One request's parameters and, if a penalty needs them, its tokens so far.

    Args:
        request: as it was accepted.
        draw_seed: called once if the request draws and brought no seed.
    """

    def __init__(self, request: GenerationRequest, draw_seed: Callable[[], int]) -> None:
        parameters = request.sampling
        self._parameters = parameters
        self._num_top_logprobs = request.num_top_logprobs
        self._seed = 0
        if not parameters.is_greedy:
            self._seed = draw_seed() if parameters.seed is None else parameters.seed
        self._is_plain = parameters.is_greedy and request.num_top_logprobs is None
        self._history: _History | None = None
        if parameters.adjusts_logits:
            self._is_plain = False
            self._history = _History(parameters, request.prompt_token_ids)

    def append(self, token_id: int) -> None:
        """Note a token of the output."""
        if self._history is not None:
            self._history.append(token_id)

    def spec(self, output_index: int) -> SamplingSpec | None:
        """How to choose the output's token at `output_index`; None is plain greedy."""
        if self._is_plain:
            return None
        parameters = self._parameters
        return SamplingSpec(
            temperature=parameters.temperature,
            top_k=parameters.top_k,
            top_p=parameters.top_p,
            seed=self._seed,
            output_index=output_index,
            min_p=parameters.min_p,
            adjustments=None if self._history is None else self._history.adjustments(),
            num_top_logprobs=self._num_top_logprobs,
        )


class _History:
    """Distinct tokens in arrays that only grow, so that a step costs one copy of their bytes."""

    def __init__(self, parameters: SamplingParameters, prompt_token_ids: tuple[int, ...]) -> None:
        self._parameters = parameters
        self._looks_at_prompt = parameters.repetition_penalty != 1.0
        self._seen = set(prompt_token_ids) if self._looks_at_prompt else set()
        self._seen_token_ids = array("i", sorted(self._seen))
        self._output_places: dict[int, int] = {}
        self._output_token_ids = array("i")
        self._output_counts = array("i")
        self._bias_token_ids = _bytes(array("i", [i for i, _ in parameters.logit_bias]))
        self._bias = _bytes(array("f", [bias for _, bias in parameters.logit_bias]))

    def append(self, token_id: int) -> None:
        if self._looks_at_prompt and token_id not in self._seen:
            self._seen.add(token_id)
            self._seen_token_ids.append(token_id)
        if self._parameters.counts_output:
            place = self._output_places.setdefault(token_id, len(self._output_token_ids))
            if place == len(self._output_token_ids):
                self._output_token_ids.append(token_id)
                self._output_counts.append(0)
            self._output_counts[place] += 1

    def adjustments(self) -> LogitAdjustments:
        return LogitAdjustments(
            repetition_penalty=self._parameters.repetition_penalty,
            frequency_penalty=self._parameters.frequency_penalty,
            presence_penalty=self._parameters.presence_penalty,
            seen_token_ids=_bytes(self._seen_token_ids),
            output_token_ids=_bytes(self._output_token_ids),
            output_counts=_bytes(self._output_counts),
            bias_token_ids=self._bias_token_ids,
            bias=self._bias,
        )


def _bytes(numbers: "array[int] | array[float]") -> bytes:
    """Little-endian, whatever this machine is."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()
