"""Ten times more people, the same memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

# `VmHWM` and not `ru_maxrss`: a child process inherits the latter from the process that started it.
SCRIPT = """
import sys
from privrl.data import Feature, read_parquet
common = dict(unit="who", episode="stay", step="t", action="a", reward="r", horizon=5, num_actions=3, in_memory=2**20)
if sys.argv[2] == "numbers":
    data = read_parquet(sys.argv[1], state="s", num_states=7, **common)
    total = data.transitions().count.sum()
else:
    data = read_parquet(sys.argv[1], features=[Feature("s", 0, 7), Feature("a2", 0, 3), Feature("r2", 0, 1)], **common)
    total = sum(batch.length.sum() for batch in data.batches())
for batch in data.batches():
    pass
data.digest(bytes(32))
for chunk in data.chunks():
    pass
coins = data.unit_draws(bytes(32), "halves")
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(total), data.num_units, peak)
"""


def people(path: Path, count: int) -> None:
    """`count` people with texts as ids and 5 steps each, in row groups of 100,000 rows."""
    rng = np.random.default_rng(0)
    writer = None
    for first in range(0, count, 20_000):
        who = np.repeat(np.arange(first, first + 20_000), 5)
        names = pa.array(np.arange(first, first + 20_000)).cast(pa.string()).take(who - first)
        rows = len(who)
        columns = {"who": names, "stay": who, "t": np.tile(np.arange(5), 20_000)}
        values = {"s": rng.integers(0, 7, rows), "a": rng.integers(0, 3, rows), "r": rng.random(rows)}
        table = pa.table(columns | values | {"a2": values["a"] / 2, "r2": values["r"]})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
@pytest.mark.slow
@pytest.mark.parametrize("states", ["numbers", "measurements"])
def test_memory_does_not_grow_with_the_table(tmp_path: Path, states: str) -> None:
    peaks = []
    for count in (20_000, 200_000):
        path = tmp_path / f"{count}.parquet"
        people(path, count)
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(path), states], check=True, capture_output=True, text=True
        )
        rows, units, peak = map(int, done.stdout.split())
        assert (rows, units) == (5 * count, count)
        peaks.append(peak / 1024)
    # 180,000 more people are 900,000 more rows, 43 MB of values and ids; their fingerprints and coins are 2.9 MB.
    assert peaks[1] - peaks[0] < 12
