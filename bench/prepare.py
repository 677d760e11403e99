"""`python -m bench.prepare`: CPU time of `prepare` over that of reading the same file with pyarrow and writing it."""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq

from privrl.data.prepare.preparation import Preparation
from privrl.data.prepare.prepare_table import prepare

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
LONG = replace(HOW, name="item", value="amount")
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


def long_records(people: int, *, shuffled: bool = False) -> pa.Table:
    """The same, one row for each value that is given: 4.5 times as many."""
    wide = records(people)
    parts = []
    for name in (*_MISSING, "alive"):
        given = wide.filter(pa.compute.is_valid(wide.column(name)))
        columns = {"patient": given.column("patient"), "at": given.column("at")}
        names = pa.array(np.full(given.num_rows, name))
        parts.append(pa.table(columns | {"item": names, "amount": given.column(name)}))
    table = pa.concat_tables(parts)
    keys = (
        None if shuffled else pa.compute.sort_indices(table, sort_keys=[("patient", "ascending"), ("at", "ascending")])
    )
    order = pa.array(np.random.default_rng(1).permutation(table.num_rows)) if keys is None else keys
    return table.take(order).combine_chunks()


def ratio(ending: str, people: int, *, shuffled: bool = False, long: bool = False, repeats: int = 2) -> float:
    """How many times the CPU time of a plain read and write it takes."""
    read: Callable[[Path], pa.Table] = pyarrow.csv.read_csv if ending == "csv" else pq.read_table
    write: Callable[[pa.Table, Path], Any] = pyarrow.csv.write_csv if ending == "csv" else pq.write_table
    with tempfile.TemporaryDirectory() as folder:
        raw, out = Path(folder) / f"raw.{ending}", Path(folder) / "out.parquet"
        write((long_records if long else records)(people, shuffled=shuffled), raw)
        plain = _cpu(lambda: pq.write_table(read(raw), out), repeats)
        return _cpu(lambda: prepare(raw, out, LONG if long else HOW), repeats) / plain


def _cpu(work: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        started = time.process_time()  # of all threads
        work()
        times.append(time.process_time() - started)
    return min(times)


def lines(people: int = 50_000) -> Iterator[str]:
    """One line per format and order."""
    for long, ending, shuffled in itertools.product((False, True), ("csv", "parquet"), (False, True)):
        order, form = "in any order" if shuffled else "grouped", "long" if long else "wide"
        times = ratio(ending, people, shuffled=shuffled, long=long)
        yield (
            f"prepare, {people * RECORDS:,} records, {form} {ending}, {order}: {times:.1f} times a plain read and write"
        )


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
