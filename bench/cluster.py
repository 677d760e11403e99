"""`python -m bench.cluster [ROWS]`: what shards cost two processes here, and what that says about large clusters.

Every fit is run twice in the same workers. The first run checks, holds and compiles; the second has only its passes.
"""

import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import privrl
from privrl.data.shards import ROWS, Shard, ShardedEpisodes
from privrl.executors.processes import Processes
from privrl.recipes.recipe import Problem
from privrl.recipes.registry import get

RECIPES = ("dp-tdfp", "dp-apvi", "dp-fqi")
COLUMNS = {name: name for name in ("step", "state", "action", "reward", "next_state")}
COLUMNS |= {"unit": "unit_id", "episode": "episode_id"}
TASK = 0.003  # seconds of a scheduler for a shard; taken, not measured
LARGE, MANY = 10**9, 100


def table(folder: Path, rows: int) -> Any:
    """Stays of ICU-Sepsis, in a file for every 50,000 people."""
    env = privrl.envs.make("icu-sepsis")
    policy, written, number, people = env.behaviour_policy(), 0, 0, 50_000
    while written < rows:
        stays = env.sample(policy, people, jax.random.key(number))
        units = np.arange(number * people, (number + 1) * people)
        written += privrl.data.write_parquet(folder / f"{number:04d}.parquet", stays, units)
        number += 1
    sizes = {"horizon": env.horizon, "num_states": env.num_states, "num_actions": env.num_actions}
    return env, privrl.data.read_parquet(folder, **COLUMNS, **sizes)


def cpu(shard: Shard) -> tuple[int, float]:
    del shard
    return os.getpid(), time.process_time()


def spent(data: ShardedEpisodes) -> dict[int, float]:
    """CPU seconds of every worker so far."""
    return dict(dict(data.started().each(cpu)).values())


def alone(whole: Any, learner: Any, private: Any) -> float:
    """CPU seconds of one process in a fit that compiles nothing new."""
    privrl.fit(whole, learner, private)
    started = time.process_time()
    privrl.fit(whole, learner, private)
    return time.process_time() - started


def measured(data: ShardedEpisodes, learner: Any, private: Any) -> tuple[int, dict[int, float], float]:
    """Releases, and CPU seconds of every worker and of the driver in a fit that compiles nothing new."""
    result = privrl.fit(data, learner, private)
    workers, driver = spent(data), time.process_time()
    privrl.fit(data, learner, private)
    driver, after = time.process_time() - driver, spent(data)
    releases = sum(release["counted"] for release in result.certificate.releases)
    return releases, {pid: after[pid] - workers[pid] for pid in workers}, driver


def main(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder, Processes(2) as workers:
        env, whole = table(Path(folder), rows)
        data = ShardedEpisodes.of(whole, workers, min(ROWS, rows // 8))
        started, number = spent(data), data.check().num_rows
        checked = spent(data)
        check = sum(checked[pid] - started.get(pid, 0.0) for pid in checked) / number
        print(f"{number:,} rows in {len(data.shards)} shards and two processes: checked in {1e6 * check:.3f} us a row")
        print(
            f"us of CPU a row and release, and the model for {LARGE:.0e} rows on {MANY} workers, with {TASK} s a task:"
        )
        for name in RECIPES:
            recipe = get(name)
            private = recipe.privatizer(epsilon=1.0, delta=1e-8)
            learner = recipe.learner(Problem.of(env))
            releases, workers_took, driver = measured(data, learner, private)
            both, busier, one = sum(workers_took.values()), max(workers_took.values()), alone(whole, learner, private)
            each = both / number / releases
            model = (check + releases * each) * LARGE / MANY + (releases + 1) * math.ceil(LARGE / ROWS) * TASK
            ratios = f"busier worker {busier / one:.2f} of one process, driver {driver / both:.2f} of both workers"
            print(f"{name}: {releases} releases, {1e6 * each:.3f}; {ratios}; {model / 60:.1f} min", flush=True)


if __name__ == "__main__":
    main(int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000)
