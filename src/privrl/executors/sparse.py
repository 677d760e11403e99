"""Large sums of whole numbers on their way from one process to another: only the entries that are not zero, if few."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

_LARGE = 2**16  # entries
_FEW = 4  # one in so many at most


@dataclass(frozen=True, repr=False)
class Sparse:
    """An array of whole numbers by its entries that are not zero."""

    shape: tuple[int, ...]
    cells: Int[np.ndarray, " n"]
    entries: Int[np.ndarray, " n"]

    def array(self) -> Int[np.ndarray, "..."]:
        whole = np.zeros(math.prod(self.shape), self.entries.dtype)
        whole[self.cells] = self.entries
        return whole.reshape(self.shape)


def packed(total: Any) -> Any:
    """The same sum for the way: a large array that is nearly empty as `Sparse`, anything else as it is."""
    if isinstance(total, tuple):
        return tuple(map(packed, total))
    if not _is_whole(total) or total.size < _LARGE:
        return total
    flat = total.reshape(-1)
    cells = np.flatnonzero(flat)
    return total if _FEW * len(cells) > total.size else Sparse(total.shape, cells, flat[cells])


def unpacked(total: Any) -> Any:
    """What `packed` was given."""
    if isinstance(total, tuple):
        return tuple(map(unpacked, total))
    return total.array() if isinstance(total, Sparse) else total


def _is_whole(total: Any) -> bool:
    return isinstance(total, np.ndarray) and total.dtype.kind in "iu"
