"""One release from an ICU-Sepsis table of a million rows: CPU of a fixed earlier commit, against this checkout's.

Both run in processes of their own (`bench/one_release.py`), one thread each, and must give the same whole numbers.
`bench/scale.py` calls it. The earlier commit is unpacked into a temporary folder, or is in a folder that is given where
there is no history.
"""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.timing import Row

BASELINE = "645b3a8"
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
_ROOT = Path(__file__).resolve().parents[1]
_ALLOWED = {"Differences": 0.4, "gradients": 0.4, "Targets": 0.1, "transitions, 17,900 pairs": 0.125}
_BYTES = 16.0  # a row of kept episodes


def unpacked(folder: Path) -> Path:
    """The sources of the earlier commit, from the history of this checkout."""
    archive = folder / "baseline.tar"
    subprocess.run(["git", "archive", "-o", str(archive), BASELINE, "src"], cwd=_ROOT, check=True)
    with tarfile.open(archive) as content:
        content.extractall(folder / "baseline", filter="data")
    return folder / "baseline"


def measured(sources: Path, table: Path) -> dict[str, Any]:
    """What `one_release.py` finds with these sources, on one thread."""
    environment = os.environ | ONE_THREAD | {"PYTHONPATH": str(sources)}
    command = [sys.executable, str(_ROOT / "bench" / "one_release.py"), str(table)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, cwd=table.parent)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows(table: Path, baseline: Path) -> Iterator[Row]:
    """CPU seconds of a release after the first, and bytes a row of what is kept. Both sides run at the same time: other
    work on the machine slows down both."""
    with ThreadPoolExecutor(2) as both:
        before, now = both.map(lambda sources: measured(sources, table), (baseline / "src", _ROOT / "src"))
    if before["sums"] != now["sums"]:
        raise SystemExit("a release's whole numbers are not those of the baseline")
    for what, plain in before["cpu"].items():
        bar = f" (at least {1 / _ALLOWED[what]:g})" if what in _ALLOWED else ""
        yield f"release of {what}, {before['rows']:,} rows, CPU: {BASELINE} / now{bar}", plain, now["cpu"][what]
    yield f"checking pass, CPU: {BASELINE} / now", before["check"], now["check"]
    yield "bytes a row of kept episodes: allowed / now (at least 1)", _BYTES, now["held_bytes"] / now["rows"]
