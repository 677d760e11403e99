"""Sizes of batches for compiled programs: a batch is filled up to the next size, and what was filled in is dropped."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int

BATCHES = (1, 8, 64, 256)  # how many rows are computed at once; a service compiles these before it answers


def batches(number: int) -> Iterator[tuple[Int[np.ndarray, " size"], int]]:
    """Which rows of `number` are computed at once, filled up with the last of them, and how many of the results count.

    For functions that treat every row on its own.
    """
    for first in range(0, number, BATCHES[-1]):
        some = min(BATCHES[-1], number - first)
        size = next(size for size in BATCHES if size >= some)
        yield first + np.minimum(np.arange(size), some - 1), some
