"""One release from an ICU-Sepsis table of a million rows: CPU of a fixed earlier commit, against this checkout's.

`python -m bench.releases [ROWS]` prints the rows. The earlier commit is unpacked into a temporary folder and run in a
process of its own (`bench/one_release.py`), with one thread like ours; both sides must give the same whole numbers.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

import privrl
from bench.timing import Row

BASELINE = "645b3a8"
_ROOT = Path(__file__).resolve().parents[1]
_ALLOWED = {"Differences": 0.4, "gradients": 0.4, "Targets": 0.1, "transitions, 17,900 pairs": 0.125}
_BYTES = 16.0  # a row of kept episodes


def write_table(path: Path, rows: int) -> int:
    """Stays of the behaviour policy, about so many rows."""
    env, size = privrl.envs.ICUSepsis(), 50_000
    stays = rows // 8
    keys = jax.random.split(jax.random.key(0), -(-stays // size))
    counts = [min(size, stays - first) for first in range(0, stays, size)]
    sampled = (env.sample(env.behaviour_policy(), count, key) for count, key in zip(counts, keys, strict=True))
    return privrl.data.write_parquet(path, sampled)


def measured(sources: Path, table: Path) -> dict[str, Any]:
    """What `one_release.py` finds with these sources, on one thread."""
    environment = os.environ | {"PYTHONPATH": str(sources), "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    command = [sys.executable, str(_ROOT / "bench" / "one_release.py"), str(table)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, cwd=table.parent)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows(number: int = 1_000_000) -> Iterator[Row]:
    """CPU seconds of a release after the first, and bytes a row of what is kept."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = folder / "stays.parquet"
        write_table(table, number)
        archive = folder / "baseline.tar"
        subprocess.run(["git", "archive", "-o", str(archive), BASELINE, "src"], cwd=_ROOT, check=True)
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")
        before, now = measured(folder / "src", table), measured(_ROOT / "src", table)
    if before["sums"] != now["sums"]:
        raise SystemExit("a release's whole numbers are not those of the baseline")
    for what, plain in before["cpu"].items():
        bar = f" (at least {1 / _ALLOWED[what]:g})" if what in _ALLOWED else ""
        yield f"release of {what}, {before['rows']:,} rows, CPU: {BASELINE} / now{bar}", plain, now["cpu"][what]
    yield "checking pass, CPU", before["check"], now["check"]
    yield "bytes a row of kept episodes: allowed / now (at least 1)", _BYTES, now["held_bytes"] / now["rows"]


def main() -> None:
    for name, plain, ours in rows(int(float(sys.argv[1])) if sys.argv[1:] else 1_000_000):
        print(f"{name}: {plain:.4g} / {ours:.4g} = {plain / ours:.1f}", flush=True)


if __name__ == "__main__":
    main()
