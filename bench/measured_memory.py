"""`python -m bench.measured_memory`: the peak memory of whole `dp-lap` fits from Parquet.

    python -m bench.measured_memory 2000 100000 1000000

writes tables of so many simulated people of `vitals`, a few thousand at a time, and fits each in a process of its own.
One line of JSON per fit, in MB: `imports`, what the process needs after its imports; `started`, after JAX has compiled
and run a first program as well; `peak`; and the peak above both. PyArrow is loaded when the table is opened, so its
libraries (45 MB) count as part of the peak.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np

import privrl
from privrl.data.tables.parquet import read_parquet
from privrl.data.tables.write import write_parquet
from privrl.envs.patients.vitals import Vitals
from privrl.mdp.types import Trajectory
from privrl.recipes.all_recipes import get

_WRITTEN = 20_480  # people that are simulated at once
_FIT = "--fit"


def peak() -> float:
    """The largest resident memory of this process so far, in MB (`VmHWM`: `ru_maxrss` counts the parent's too)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def people(world: Vitals, count: int) -> Iterator[Trajectory]:
    """Simulated stays, a few thousand at a time."""
    for first in range(0, count, _WRITTEN):
        yield world.sample(world.behaviour_policy(), min(_WRITTEN, count - first), jr.fold_in(jr.key(0), first))


def fitted(path: Path) -> dict[str, Any]:
    """One fit with exact noise, in this process."""
    world, imports, began = Vitals(), peak(), time.perf_counter()
    jax.jit(lambda x: x + 1.0)(np.ones(1)).block_until_ready()
    started = peak()
    data = read_parquet(
        path,
        unit="unit_id",
        step="step",
        action="action",
        reward="reward",
        features=world.columns,
        horizon=world.horizon,
        num_actions=world.num_actions,
    )
    result = privrl.fit(data, get("dp-lap").build(world), privrl.Central(epsilon=1.0, delta=1e-6))
    found = {"imports": imports, "started": started, "peak": peak()}
    found |= {"above_imports": found["peak"] - imports, "above_started": found["peak"] - started}
    found |= {"seconds": time.perf_counter() - began}
    rounded = {name: round(number, 1) for name, number in found.items()}
    return {"people": data.num_units, **rounded, "epsilon": result.certificate.epsilon}


def measured(count: int) -> dict[str, Any]:
    """The same for a table of so many people, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path, world = Path(folder) / "people.parquet", Vitals()
        write_parquet(path, people(world, count), features=world.columns)
        command = [sys.executable, "-m", "bench.measured_memory", _FIT, str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return dict(json.loads(done.stdout)) | {"file": path.stat().st_size // 2**20}


def main(given: list[str]) -> None:
    if given[:1] == [_FIT]:
        print(json.dumps(fitted(Path(given[1]))))
        return
    for count in map(int, given or ["2000", "100000", "1000000"]):
        print(json.dumps(measured(count)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
