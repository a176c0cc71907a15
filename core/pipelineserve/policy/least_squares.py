"""One step of recursive least squares with forgetting."""

from collections.abc import Sequence

Matrix = tuple[tuple[float, ...], ...]


def diagonal(size: int, value: float) -> Matrix:
    """A square matrix with `value` on its diagonal and 0 elsewhere."""
    return tuple(
        tuple(value if row == column else 0.0 for column in range(size)) for row in range(size)
    )


def least_squares_step(
    covariance: Matrix, values: Sequence[float], forgetting: float
) -> tuple[list[float], Matrix]:
    """Gains by which each coefficient follows the error of one sample, and the new covariance.

    Args:
        covariance: symmetric, in units of the samples' variance.
        values: the sample's features.
        forgetting: weight of a sample one sample later, above 0 and at most 1.
    """
    products = [sum(p * x for p, x in zip(row, values, strict=True)) for row in covariance]
    variance = sum(p * x for p, x in zip(products, values, strict=True))
    denominator = forgetting + max(0.0, variance)  # rounding may leave it just below 0
    gains = [product / denominator for product in products]
    after = tuple(
        tuple(
            (old - gain * product) / forgetting for old, product in zip(row, products, strict=True)
        )
        for row, gain in zip(covariance, gains, strict=True)
    )
    return gains, after
