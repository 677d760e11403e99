"""Functions that tests let executors run: they must be importable by the processes that run them."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from privrl.data.schema.table_schema import TableError

CANARY = "canary-8316257"


class Shard:
    """Counts how often it was used by the process that holds it."""

    def __init__(self, number: int) -> None:
        self.number, self.used = number, 0


class Sized(Shard):
    """Says how large it is, so that workers get equal shares."""

    def __init__(self, number: int, kept_rows: int) -> None:
        super().__init__(number)
        self.kept_rows = kept_rows


def square(shard: Shard, plus: int, own: int = 0) -> int:
    shard.used += 1
    return shard.number**2 + plus + own


def used(shard: Shard) -> tuple[int, int]:
    shard.used += 1
    return os.getpid(), shard.used


def meet(shard: Shard, folder: Path, workers: int) -> int:
    """Waits until so many processes work on shards, however slowly they start."""
    (folder / str(os.getpid())).touch()
    end = time.monotonic() + 120.0
    while len(list(folder.iterdir())) < workers and time.monotonic() < end:
        time.sleep(0.01)
    return os.getpid()


def pair(shard: Shard) -> tuple[np.ndarray, int]:
    return np.arange(3, dtype=np.int64) + shard.number, 1


def kill_once(shard: Shard, folder: Path, who: int) -> tuple[np.ndarray, int]:
    """Ends its process the first time that it comes to shard `who`."""
    mark = folder / "killed"
    if shard.number == who and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return pair(shard)


def kill_always(shard: Shard, who: int) -> int:
    if shard.number == who:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0


def fail(shard: Shard, who: int, ours: bool) -> int:
    """Raises an error of our own, or one that quotes a value."""
    if shard.number >= who:
        raise TableError(f"Column `x` is out of range at row {shard.number}.") if ours else ValueError(CANARY)
    return 0


def slow(shard: Shard, seconds: float) -> int:
    time.sleep(seconds)
    return shard.number


def environment(shard: Shard) -> tuple[Any, ...]:
    del shard
    return os.environ.get("OMP_NUM_THREADS"), "intra_op_parallelism_threads=1" in os.environ.get("XLA_FLAGS", "")
