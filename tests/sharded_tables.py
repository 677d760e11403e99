"""Small tables in several files with small row groups, for shards."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privrl.data.tables.parquet import read_parquet

S, A, H = 3, 2, 3
TABLE = {name: name for name in ("unit", "episode", "step", "state", "action", "reward", "next_state")}


def rows(people: int = 90, seed: int = 0, *, sorted_ids: bool = False) -> dict[str, Any]:
    """Stays of 1 to H steps of people with up to three of them."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(people) + 1000
    stays = rng.integers(1, 4, people)
    lengths = rng.integers(1, H + 1, int(stays.sum()))
    unit = np.repeat(np.repeat(np.sort(names) if sorted_ids else names, stays), lengths)
    n = len(unit)
    return {
        "unit": np.array([f"p{i}" for i in unit]),
        "episode": np.repeat(np.arange(len(lengths)), lengths),
        "step": np.concatenate([np.arange(length) for length in lengths]),
        "state": rng.integers(0, S, n),
        "action": rng.integers(0, A, n),
        "reward": rng.random(n),
        "next_state": rng.integers(-1, S, n),
        "pressure": pa.array(rng.uniform(20.0, 140.0, n), mask=rng.random(n) < 0.2),
        "lactate": rng.uniform(0.1, 22.0, n),
        "ward": pa.array(rng.choice(["icu", "step-down"], n), mask=rng.random(n) < 0.2),
    }


def written(folder: Path, columns: dict[str, Any], files: int = 3, group: int = 16) -> Path:
    folder.mkdir()
    table = pa.table(columns)
    edges = np.linspace(0, table.num_rows, files + 1).astype(int)
    for i, (first, end) in enumerate(itertools.pairwise(edges)):
        pq.write_table(table.slice(first, end - first), folder / f"{i}.parquet", row_group_size=group)
    return folder


def opened(path: Path, **more: Any) -> Any:
    settings = {"horizon": H, "num_states": S, "num_actions": A, "max_episodes_per_unit": 2} | more
    return read_parquet(path, **TABLE, **settings)
