"""Means over repetitions with their standard errors, and how privrl writes them."""

import math
from collections.abc import Sequence

import numpy as np

Numbers = Sequence[float] | np.ndarray


def mean_and_error(values: Numbers) -> tuple[float, float | None]:
    """Return the mean and its standard error, which is `None` for a single value."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1) / n)


def format_mean(values: Numbers, digits: int = 4) -> str:
    """Write the mean with its standard error, for example "0.7432 ± 0.0011"."""
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f}" if error is None else f"{mean:.{digits}f} ± {error:.{digits}f}"
