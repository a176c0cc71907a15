"""What no predictor can know: a log-normal spread, and rare stalls."""

from random import Random

from pipelineserve_simulator.hardware.description import NoiseCosts


class ProfileNoise:
    """A profile's noise, drawn from one stream; see `Noise`.

    The spread belongs to a micro-batch, not to a stage: what predictors miss is in its composition
    and in the clocks of the whole machine. Drawn for each stage anew, a maximum over stages would
    turn it into a bias.
    """

    def __init__(self, costs: NoiseCosts, stream: Random) -> None:
        self._costs = costs
        self._stream = stream
        # The mean of the factor is 1.
        self._mu = -0.5 * costs.sigma_ratio**2

    def factor(self) -> float:
        """Log-normal with mean 1."""
        return self._stream.lognormvariate(self._mu, self._costs.sigma_ratio)

    def stall(self, num_stages: int) -> tuple[int, float]:
        """Exponential with the profile's mean, on any stage alike."""
        if self._stream.random() >= self._costs.stall_ratio or self._costs.stall_s == 0.0:
            return 0, 0.0
        return self._stream.randrange(num_stages), self._stream.expovariate(
            1.0 / self._costs.stall_s
        )
