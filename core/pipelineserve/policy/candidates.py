"""Candidate chunk sizes: what a chunk policy may choose from."""


def candidate_sizes(min_tokens: int, max_tokens: int, step_tokens: int) -> tuple[int, ...]:
    """From the smallest size in steps up to the largest, which is always one of them.

    Raises:
        ValueError: not 1 ≤ min ≤ max, or the step is below 1.
    """
    if not (1 <= min_tokens <= max_tokens and step_tokens >= 1):
        raise ValueError(
            f"candidate sizes: expected 1 <= min <= max and a step of at least 1, "
            f"got min {min_tokens}, max {max_tokens}, step {step_tokens}"
        )
    return (*range(min_tokens, max_tokens, step_tokens), max_tokens)
