"""What shards cost two workers, and what that says about large clusters: `python -m bench.cluster FOLDER`.

The folder is one that `bench/tables.py` wrote; `bench/scale.py` starts this with one thread. Releases are sums without
noise, after one that holds the rows and compiles: CPU of one process, of two processes and of two Dask workers, and of
the driver. Fits are run twice in the same workers; the second has only its passes. One JSON object is printed.
"""

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import privrl
from bench.one_release import lattice_of, queries
from bench.tables import opened
from privrl.data.schema.table_schema import TableError
from privrl.data.tables.shards import SHARD_ROWS, Shard, ShardedEpisodes
from privrl.executors.dask import Dask
from privrl.executors.executor import AbstractExecutor
from privrl.executors.processes import Processes
from privrl.executors.threads import single_threads
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import Problem
from privrl.studies.offline.curated_records import Records
from privrl.studies.offline.sharded_records import ShardedRecords

RELEASES = ("gradients", "Differences", "transitions, 17,900 pairs")
RECIPES = ("dp-tdfp", "dp-apvi", "dp-fqi")
TASK = 0.003  # seconds of a scheduler for a shard; taken, not measured
LARGE, MANY = 10**9, 100
_REPEATS = 3


def cpu(shard: Shard) -> tuple[int, float]:
    del shard
    return os.getpid(), time.process_time()


def spent(data: ShardedEpisodes) -> dict[int, float]:
    """CPU seconds of every worker so far."""
    return dict(dict(data.start_executor().map_shards(cpu)).values())


@contextlib.contextmanager
def dask() -> Iterator[AbstractExecutor]:
    """Two workers of a cluster on this machine, with nannies, as `dask worker` starts them."""
    import dask as settings
    from distributed import Client, LocalCluster

    off = {f"distributed.worker.memory.{name}": False for name in ("target", "spill", "pause", "terminate")}
    with settings.config.set({**off, "distributed.worker.profile.enabled": False}), single_threads():
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=0, dashboard_address=None)
    with cluster, Client(cluster) as client, Dask(client) as executor:
        yield executor


def alone(whole: Any) -> dict[str, tuple[float, Any]]:
    """CPU seconds of a release in this process, and its sum."""
    records, found = Records(whole), {}
    for name, statistic in queries():
        if name in RELEASES:
            lattice = lattice_of(records, statistic)
            total = records.total(statistic, None, lattice)
            started = time.process_time()
            for _ in range(_REPEATS):
                records.total(statistic, None, lattice)
            found[name] = (time.process_time() - started) / _REPEATS, total
    return found


def shared(whole: Any, executor: AbstractExecutor, one: dict[str, tuple[float, Any]]) -> dict[str, Any]:
    """The same in two workers: CPU of the busier one, of both, and of the driver; all sums must be the same."""
    data = ShardedEpisodes.from_dataset(whole, executor)
    before = spent(data)
    records = ShardedRecords.of(Records(data), data)
    checked = sum(spent(data).values()) - sum(before.values())
    answer: dict[str, Any] = {"checked": checked / data.check().num_rows, "shards": len(data.shards)}
    for name, statistic in queries():
        if name in RELEASES:
            lattice = lattice_of(records, statistic)
            if not np.array_equal(records.total(statistic, None, lattice), one[name][1]):
                raise SystemExit("the whole numbers of two workers are not those of one process")
            workers, driver = spent(data), time.process_time()
            for _ in range(_REPEATS):
                records.total(statistic, None, lattice)
            driver, after = time.process_time() - driver, spent(data)
            each = [(after[pid] - workers[pid]) / _REPEATS for pid in workers]
            answer[name] = {"busier": max(each), "both": sum(each), "driver": driver / _REPEATS}
    return answer


def fits(whole: Any, env: Any, executor: AbstractExecutor, check: float) -> dict[str, Any]:
    """CPU of a release of whole fits, and the model of large clusters."""
    data, answer = ShardedEpisodes.from_dataset(whole, executor), {}
    for name in RECIPES:
        recipe = get(name)
        learner, private = recipe.learner(Problem.of(env)), recipe.privatizer(epsilon=1.0, delta=1e-8)
        result = privrl.fit(data, learner, private)
        before = sum(spent(data).values())
        privrl.fit(data, learner, private)
        both = sum(spent(data).values()) - before
        releases = sum(release["counted"] for release in result.certificate.releases)
        each = both / data.check().num_rows / releases
        seconds = (check + releases * each) * LARGE / MANY + (releases + 1) * math.ceil(LARGE / SHARD_ROWS) * TASK
        answer[name] = {"releases": releases, "each": each, "minutes": seconds / 60}
    return answer


def refused(whole: Any, executor: AbstractExecutor) -> bool:
    """Whether workers notice that a file was written to between two releases."""
    data = ShardedEpisodes.from_dataset(whole, executor)
    records = ShardedRecords.of(Records(data), data)
    statistic = dict(queries())["rewards"]
    lattice = lattice_of(records, statistic)
    records.total(statistic, None, lattice)
    path = whole.table.files[-1]
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))
    try:
        records.total(statistic, None, lattice)
    except TableError:
        return True
    return False


def main(folder: Path, files: int | None) -> None:
    """Prints what was found as one JSON object."""
    env, whole = opened("icu-sepsis", folder, files)
    one = alone(whole)
    answer: dict[str, Any] = {"rows": whole.check().num_rows, "one": {name: found[0] for name, found in one.items()}}
    with dask() as executor:
        answer["two Dask workers"] = shared(whole, executor, one)
    with Processes(2) as executor:
        answer["two processes"] = shared(whole, executor, one)
        answer["fits"] = fits(whole, env, executor, answer["two processes"]["checked"])
        answer["refused"] = refused(whole, executor)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else None)
