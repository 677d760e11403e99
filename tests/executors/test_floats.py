"""The floats of one record are the same, to the last bit, for every executor, partitioning, and batch of rows read.

Sums of whole numbers would hide most differences: a last bit survives truncation about once in a million entries. How
many records are summed at once follows from public sizes alone (`batch_size`) and cannot be chosen: another number of
them would be another program, with other last bits.
"""

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from executors.cluster import Cluster
from executors.float_tasks import record_floats
from sharded_tables import TABLE, rows, written
from statistic_cases import CASES, COLUMNS, A, S
from tests.test_sums import LONG, longer

from privrl.data.tables.parquet import read_parquet
from privrl.data.tables.shards import ShardedEpisodes
from privrl.executors.dask import Dask
from privrl.executors.executor import AbstractExecutor, InProcess
from privrl.executors.processes import Processes

OFFLINE = {
    kind.__name__: cases[0]
    for kind, cases in CASES.items()
    if not cases[0].linear and cases[0].published == (None,) and cases[0].queries == (None,)
}
QUICK = ("Differences",)
PEOPLE = 200


def table(folder: Path) -> Path:
    """Stays of 1 to 20 steps, so of two widths, of people with one or two of them."""
    rng = np.random.default_rng(1)
    stays = rng.integers(1, 3, PEOPLE)
    lengths = np.where(rng.random(int(stays.sum())) < 0.5, rng.integers(1, 9, int(stays.sum())), LONG - 1)
    columns = rows(int(lengths.sum()))
    number = int(lengths.sum())
    shape: dict[str, Any] = {name: column[:number] for name, column in columns.items()}
    shape["unit"] = np.repeat(np.repeat(np.array([f"p{i}" for i in range(PEOPLE)]), stays), lengths)
    shape["episode"] = np.repeat(np.arange(len(lengths)), lengths)
    shape["step"] = np.concatenate([np.arange(length) for length in lengths])
    return written(folder, shape, files=3, group=64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("floats") / "stays")


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dask]:
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        with started.client() as client, Dask(client) as dask:
            yield dask
    finally:
        started.close()


def floats(folder: Path, case: Any, executor: AbstractExecutor, size: int, **reading: int) -> list[bytes]:
    measured = {"features": COLUMNS, "state": None, "next_state": None, "num_states": None} if case.columns else {}
    public = {"horizon": LONG, "num_states": S, "num_actions": A, "max_episodes_per_unit": 2}
    data = ShardedEpisodes.from_dataset(read_parquet(folder, **(TABLE | public | measured | reading)), executor, size)
    found = data.start_executor().map_shards(record_floats, longer(case.statistic))
    return sorted(itertools.chain.from_iterable(digests for _, digests in found))


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in OFFLINE])
def test_partitions_and_batches(folder: Path, name: str) -> None:
    case = OFFLINE[name]
    expected = floats(folder, case, InProcess(), 10**6)
    assert len(expected) >= PEOPLE
    somebody = set(expected) != {hashlib.sha256().digest()}
    # The policy of one case supports all states of a table, and this table has no groups (`test_reporting.py` has).
    assert somebody or name in ("Unsupported", "ByGroup")
    for size, reading in ((1, {}), (700, {"in_memory": 0}), (10**6, {"batch_rows": 7})):
        assert floats(folder, case, InProcess(), size, **reading) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", OFFLINE)
def test_executors(folder: Path, name: str, processes: Processes, cluster: Dask) -> None:
    case = OFFLINE[name]
    expected = floats(folder, case, InProcess(), 10**6)
    for executor in (processes, cluster):
        assert floats(folder, case, executor, 700) == expected
