"""Runs one stage's part of a micro-batch: commands in, hidden states or tokens out."""

from dataclasses import dataclass

import numpy as np
import torch

from pipelineserve_engine.attention import PieceLayout, pack
from pipelineserve_engine.sampling import Samples, sample
from pipelineserve_engine.stage_messages import SampleExtras, StepCommand, unpack_copies
from pipelineserve_engine.stage_model import StageModel


@dataclass(frozen=True, slots=True)
class StageOutput:
    """What a stage made of a micro-batch: hidden states for the next one, or the tokens."""

    hidden: torch.Tensor | None
    token_ids: tuple[int, ...] | None
    extras: SampleExtras | None = None


class StageRunner:
    """A stage without its process: what the worker and the in-process executor share."""

    def __init__(self, model: StageModel, block_tokens: int) -> None:
        self._model = model
        self._block_tokens = block_tokens

    @torch.inference_mode()
    def run(self, command: StepCommand, hidden: torch.Tensor | None) -> StageOutput:
        """Run one micro-batch: its copies, then its pieces.

        Args:
            command: what to run; commands come in order of their sequence.
            hidden: [tokens, hidden] of the stage before; None on the first stage.

        Returns:
            Hidden states of every token, or, on the last stage, one token per sampling piece.
        """
        self._model.copy_blocks(unpack_copies(command.copies))
        shape = self._model.shape
        pieces = command.pieces
        lengths = [len(piece.token_ids) for piece in pieces]
        layouts = [
            PieceLayout(p.start, len(p.token_ids), np.frombuffer(p.block_ids, dtype="<i4"))
            for p in pieces
        ]
        packed = pack(layouts, self._block_tokens, shape.dtype, shape.device)
        positions = torch.cat(
            [torch.arange(p.start, p.start + n) for p, n in zip(pieces, lengths, strict=True)]
        ).to(shape.device)
        if hidden is None:
            token_ids = [token_id for piece in pieces for token_id in piece.token_ids]
            hidden = self._model.embed(torch.tensor(token_ids, device=shape.device))
        output = self._model.run_layers(hidden, positions, packed)
        if not shape.is_last:
            return StageOutput(output, None)
        samples = self._sample(command, output, lengths)
        return StageOutput(None, samples.token_ids, samples.extras)

    def _sample(self, command: StepCommand, hidden: torch.Tensor, lengths: list[int]) -> Samples:
        ends = torch.tensor(lengths).cumsum(dim=0) - 1
        is_sampling = torch.tensor([piece.samples for piece in command.pieces])
        rows = ends[is_sampling]
        if len(rows) == 0:
            return Samples(())
        specs = [piece.sampling for piece in command.pieces if piece.samples]
        return sample(self._model.logits(hidden[rows]), specs)
