"""`python -m bench.prepare`: CPU time of `prepare` over that of reading the same file with pyarrow and writing it."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from privrl.data.preparation import Preparation
from privrl.data.prepare import prepare

RECORDS = 40  # of each person, about one an hour
HOW = Preparation(
    unit="patient",
    time="at",
    every="4h",
    columns={"map": "mean", "lactate": "last", "pulse": "max", "temperature": "last", "wbc": "last"},
    action={"dose": "sum"},
    reward="alive",
    horizon=20,
    carry="12h",
)
_MISSING = {"map": 0.1, "lactate": 0.7, "pulse": 0.1, "temperature": 0.3, "wbc": 0.8, "dose": 0.5}


def records(people: int, *, shuffled: bool = False) -> pa.Table:
    """Raw records of so many people with texts as ids, grouped or in any order."""
    rng = np.random.default_rng(0)
    rows = people * RECORDS
    minutes = np.tile(np.arange(RECORDS) * 60, people) + rng.integers(0, 60, rows)
    ids = pa.array(np.repeat(np.arange(people), RECORDS)).cast(pa.string())
    columns: dict[str, Any] = {"patient": ids, "at": pa.array(minutes * 60 * 10**6, pa.timestamp("us"))}
    for name, share in _MISSING.items():
        columns[name] = pa.array(np.round(rng.normal(80, 20, rows), 1), mask=rng.random(rows) < share)
    table = pa.table(columns | {"alive": np.ones(rows)})
    return table.take(pa.array(rng.permutation(rows))) if shuffled else table


def ratio(ending: str, people: int, *, shuffled: bool = False, repeats: int = 2) -> float:
    """How many times the CPU time of a plain read and write it takes."""
    read: Callable[[Path], pa.Table] = pyarrow.csv.read_csv if ending == "csv" else pq.read_table
    write: Callable[[pa.Table, Path], Any] = pyarrow.csv.write_csv if ending == "csv" else pq.write_table
    with tempfile.TemporaryDirectory() as folder:
        raw, out = Path(folder) / f"raw.{ending}", Path(folder) / "out.parquet"
        write(records(people, shuffled=shuffled), raw)
        plain = _cpu(lambda: pq.write_table(read(raw), out), repeats)
        return _cpu(lambda: prepare(raw, out, HOW), repeats) / plain


def _cpu(work: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        started = time.process_time()  # of all threads
        work()
        times.append(time.process_time() - started)
    return min(times)


def lines(people: int = 50_000) -> Iterator[str]:
    """One line per format and order."""
    for ending in ("csv", "parquet"):
        for shuffled in (False, True):
            order = "in any order" if shuffled else "grouped"
            times = ratio(ending, people, shuffled=shuffled)
            yield f"prepare, {people * RECORDS:,} records, {ending}, {order}: {times:.1f} times a plain read and write"


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
