"""The links of a pipeline with one stage: there are none."""

import torch

from pipelineserve_engine.transport.protocol import Reception


class NoTransport:
    """Never asked for anything: the only stage is the first and the last."""

    def post_receive(self, num_tokens: int) -> Reception:
        """Never called: the only stage is the first."""
        raise RuntimeError(f"the first stage receives no hidden states (asked for {num_tokens})")

    def send(self, hidden: torch.Tensor) -> None:
        """Never called: the only stage is the last."""
        raise RuntimeError(f"the last stage sends no hidden states (got {tuple(hidden.shape)})")

    def close(self) -> None:
        """Nothing to give up."""
