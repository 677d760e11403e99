"""Batches for compiled programs. All have one public size: a shorter batch is padded, and the padding is dropped.

**Formal guarantee.** A row is computed by the same program, whichever and however many other rows are in its batch.
With several sizes it would not be: a compiled program for another number of rows may give other last bits (matrix
products do), and then the arrival of one person could move the whole numbers of others. The tests check, for machines
that are alike, that a program treats all places of a batch of this size alike.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int

BATCH = 64  # rows computed at once; a multiple of the width of vector instructions


def batches(number: int) -> Iterator[tuple[Int[np.ndarray, " size"], int]]:
    """Yields the rows of each batch, padded with the last row, and the number of results that count.

    For functions that treat every row on its own.
    """
    for first in range(0, number, BATCH):
        some = min(BATCH, number - first)
        yield first + np.minimum(np.arange(BATCH), some - 1), some
