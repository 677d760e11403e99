"""`python -m bench.store`: how many contributions a second a store acknowledges, each batch after its commit."""

import itertools
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.timing import Row
from privrl.privacy.store.release_store import ReleaseStore

WIDTH = 64  # integers per contribution


@contextmanager
def fresh() -> Iterator[ReleaseStore]:
    """A new store on disk, removed afterwards."""
    with tempfile.TemporaryDirectory() as folder, ReleaseStore(Path(folder) / "bench.db") as store:
        yield store


def contribute(store: ReleaseStore, number: int, size: int, start: int = 0) -> list[float]:
    """Adds so many contributions in batches of a size; seconds per batch."""
    units = np.random.default_rng(0).integers(-(2**40), 2**40, (size, WIDTH))
    spent = []
    for first in range(start, start + number, size):
        keys = [f"person {i}" for i in range(first, first + size)]
        began = time.perf_counter()
        store.contribute("sums", keys, units)
        spent.append(time.perf_counter() - began)
    return spent


def contributions() -> Row:
    """A thousand durable contributions: committed one by one, against in one batch."""
    with fresh() as one_by_one, fresh() as together:
        plain = sum(contribute(one_by_one, 1_000, 1))
        starts = itertools.count(0, 1_000)
        ours = min(sum(contribute(together, 1_000, 1_000, next(starts))) for _ in range(5))
    return "1,000 durable contributions: one by one / in one batch", plain, ours


def main() -> None:
    for size, number in ((1_000, 200_000), (100, 50_000)):
        with fresh() as store:
            spent = contribute(store, number, size)
        tenth = len(spent) // 10
        first, last = (tenth * size / sum(part) for part in (spent[:tenth], spent[-tenth:]))
        print(
            f"batches of {size:>5,}: {number / sum(spent):>9,.0f} contributions a second over {number:,} of {WIDTH} "
            f"integers (first tenth {first:,.0f}, last tenth {last:,.0f})"
        )


if __name__ == "__main__":
    main()
