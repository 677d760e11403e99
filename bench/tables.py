"""Large tables of simulated people, written by several processes: the same files for the same number of rows."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import privrl
from privrl.data.tables.write import write_parquet
from privrl.envs.patients.vitals import Vitals
from privrl.executors.processes import Processes

_SAMPLED = 16_384  # people that are simulated at once
_ROWS = 530_000  # of a file: two of them are a shard

WORLDS = {
    "icu-sepsis": (privrl.envs.ICUSepsis, 65_536),
    "synthetic-linear": (privrl.envs.SyntheticLinear, 26_624),
    "vitals": (Vitals, 36_864),
}
"""What makes each world, and how many people a file has."""

_COLUMNS = {name: name for name in ("step", "action", "reward")} | {"unit": "unit_id"}


@dataclass(frozen=True)
class _File:
    """One of the files of a table."""

    folder: Path
    world: str
    number: int


def opened(world: str, folder: Path, files: int | None = None, **settings: Any) -> tuple[Any, Any]:
    """The world, and its table in a folder, or in the first files of it."""
    env = WORLDS[world][0]()
    paths = sorted((folder / world).glob("*.parquet"))[:files]
    sizes = {"horizon": env.horizon, "num_actions": env.num_actions}
    if isinstance(env, Vitals):
        states: dict[str, Any] = {"features": env.columns}
    else:
        states = {"num_states": env.num_states, "state": "state", "next_state": "next_state"}
    return env, privrl.data.read_parquet(paths, **_COLUMNS, **sizes, **states, **settings)


def files_for(rows: float) -> int:
    """How many files have about so many rows."""
    return max(1, round(rows / _ROWS))


def write_tables(folder: Path, files: dict[str, int], workers: int) -> None:
    """So many files of each world, in folders that are named after them."""
    for world in files:
        (folder / world).mkdir(parents=True)
    with Processes(workers) as processes:
        processes.start([_File(folder, world, i) for world, number in files.items() for i in range(number)])
        for _ in processes.map_shards(_write):
            pass


def _write(file: _File) -> int:
    make, people = WORLDS[file.world]
    env: Any = make()
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), file.number), math.ceil(people / _SAMPLED))
    sampled = [env.sample(env.behaviour_policy(), min(_SAMPLED, people), key) for key in keys]
    stays = jax.tree.map(lambda *parts: np.concatenate(parts)[:people], *sampled)
    units = np.arange(file.number * people, (file.number + 1) * people)
    features = env.columns if isinstance(env, Vitals) else ()
    return write_parquet(file.folder / file.world / f"{file.number:04d}.parquet", stays, units, features=features)
