"""A fit whose noise follows from the names of its releases, so that it can be killed, repeated and compared.

As a script, a driver in a process of its own: TABLE STORE DRAWS ADDRESS, and the pass in which it kills itself.
"""

import hashlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sharded_tables import A, H, S, opened

import privrl
from privrl.data.tables.shards import ShardedEpisodes
from privrl.executors.connection import connect
from privrl.executors.dask import Dask
from privrl.executors.executor import AbstractExecutor
from privrl.privacy.noise.lattice import Lattice
from privrl.privacy.noise.random_words import Words
from privrl.privacy.noise.sources import System

LEARNER = privrl.TDFP(S, A, H, (2,))
PRIVATE = privrl.Central(epsilon=1.0, delta=1e-6)


def _randomness(self: System, label: Any) -> Words:
    self._claim(label)
    return Words(hashlib.sha256(repr(label).encode()).digest())


def fitted(
    table: Path,
    store: Path | None,
    draws: Path,
    executor: AbstractExecutor | None,
    in_pass: Callable[[int], None] = lambda number: None,
) -> Any:
    """The policy; every draw of noise adds a line to `draws`, and `in_pass` is told whenever a pass begins."""
    shipped = System.randomness, Lattice.add_noise

    def noisy(self: Lattice, *args: Any) -> Any:
        with draws.open("a") as file:
            file.write("drawn\n")
        return shipped[1](self, *args)

    passes = 0

    def watch(done: int, of: int) -> None:
        nonlocal passes
        if done == 1:
            passes += 1
            in_pass(passes)

    System.randomness, Lattice.add_noise = _randomness, noisy  # type: ignore[method-assign, assignment]
    try:
        data: Any = opened(table, max_episodes_per_unit=1)
        if executor is not None:
            data, executor.watch = ShardedEpisodes.from_dataset(data, executor, 40), watch
        if store is None:
            return privrl.fit(data, LEARNER, PRIVATE)
        with privrl.ReleaseStore(store) as kept:
            return privrl.fit(data, LEARNER, PRIVATE, store=kept)
    finally:
        System.randomness, Lattice.add_noise = shipped  # type: ignore[method-assign]
        if executor is not None:
            executor.watch = None


def drawn(draws: Path) -> int:
    return len(draws.read_text().splitlines()) if draws.exists() else 0


if __name__ == "__main__":
    where, kept_in, lines, address, last = sys.argv[1:]

    def in_pass(number: int) -> None:
        if number == int(last):
            os.kill(os.getpid(), signal.SIGKILL)

    with connect(address) as client, Dask(client) as dask:
        result = fitted(Path(where), Path(kept_in), Path(lines), dask, in_pass)
        np.save(Path(lines).with_suffix(".npy"), np.asarray(result.policy.probabilities))
