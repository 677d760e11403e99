"""Preparing a table takes a few plain reads and writes of it, and memory that does not grow with it."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from bench.prepare import long_records, ratio, records

SCRIPT = """
import sys
import pyarrow.compute, pyarrow.parquet
from bench.prepare import HOW, LONG, prepare
peak = lambda: int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))) / 1024
before = peak()
prepare(sys.argv[1], sys.argv[2], {"wide": HOW, "long": LONG}[sys.argv[3]])
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_it_takes_at_most_six_times_a_plain_read_and_write(ending: str, long: bool) -> None:
    assert ratio(ending, 20_000 // (1 + 2 * long), shuffled=True, long=long) <= 6  # measured: at most 4


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
@pytest.mark.slow
@pytest.mark.parametrize(("form", "sizes"), [("wide", (10_000, 100_000)), ("long", (4_000, 40_000))])
def test_memory_does_not_grow_with_the_table(tmp_path: Path, form: str, sizes: tuple[int, int]) -> None:
    peaks = []
    for people in sizes:
        source = tmp_path / "raw.parquet"
        pq.write_table({"wide": records, "long": long_records}[form](people, shuffled=True), source)
        command = [sys.executable, "-c", SCRIPT, str(source), str(tmp_path / "out.parquet"), form]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
        peaks.append(float(done.stdout))
    assert peaks[1] < 150 and peaks[1] - peaks[0] < 80  # 90,000 more people are 3.6 million records, 260 MB
