"""Compression of large sums on their way between processes: if few entries are not zero, only these are sent."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

_MIN_ENTRIES = 2**16  # smaller arrays are sent as they are
_MIN_RATIO = 4  # entries per nonzero entry. An entry sent by place takes twice the space, so 4 halves the bytes


@dataclass(frozen=True, repr=False)
class Sparse:
    """An array of whole numbers by its entries that are not zero."""

    shape: tuple[int, ...]
    cells: Int[np.ndarray, " n"]
    entries: Int[np.ndarray, " n"]

    def to_array(self) -> Int[np.ndarray, "..."]:
        # Places that are not listed were zero, so this is the array itself, bit by bit, and sums do not change.
        whole = np.zeros(math.prod(self.shape), self.entries.dtype)
        whole[self.cells] = self.entries
        return whole.reshape(self.shape)


def compress(total: object) -> object:
    """Replaces large arrays of whole numbers that are nearly empty by `Sparse`, also inside a tuple."""
    if isinstance(total, tuple):
        return tuple(map(compress, total))
    if not isinstance(total, np.ndarray) or total.dtype.kind not in "iu" or total.size < _MIN_ENTRIES:
        return total
    # Only whole numbers get here: a float sum could hold -0.0, which is not "nonzero" and would arrive as 0.0.
    flat = total.reshape(-1)  # a view, so that nothing is copied unless the sum is sparse
    cells = np.flatnonzero(flat)
    return total if _MIN_RATIO * len(cells) > total.size else Sparse(total.shape, cells, flat[cells])


def decompress(total: object) -> object:
    """The sum that `compress` received."""
    if isinstance(total, tuple):
        return tuple(map(decompress, total))
    return total.to_array() if isinstance(total, Sparse) else total
