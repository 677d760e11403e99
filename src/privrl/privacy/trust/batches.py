"""Batches for compiled programs: one public size, to which a batch is filled up; what was filled in is dropped.

**Formal guarantee.** A row is computed by the same program whoever else is in its batch and however many they are. With
several sizes it would not be: a compiled program for another number of rows may give other last bits (matrix products
do), and then one person's coming could move the whole numbers of others. That a program treats all places of a batch
of this size alike is tested, for like machines.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int

BATCH = 64  # how many rows are computed at once; a multiple of what compiled code takes in one instruction


def batches(number: int) -> Iterator[tuple[Int[np.ndarray, " size"], int]]:
    """Which rows of `number` are computed at once, filled up with the last of them, and how many of the results count.

    For functions that treat every row on its own.
    """
    for first in range(0, number, BATCH):
        some = min(BATCH, number - first)
        yield first + np.minimum(np.arange(BATCH), some - 1), some
