"""`python -m bench.recipes ROWS [RECIPE ...]`: CPU and peak memory of whole fits, one process per recipe, as a table.

ICU-Sepsis tables (716 states, 25 actions, 20 steps) for recipes of finite worlds, `synthetic-linear` for linear ones;
exact noise, epsilon 1, delta 1e-6, no store; one thread. CPU is from opening the table to the policy, with compilation.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax

import privrl
from bench.releases import write_table
from privrl.recipes.recipe import Problem
from privrl.recipes.registry import get

_ICU = ("dp-tdfp", "dp-tap", "dp-apvi", "dp-fqi")
_LINEAR = ("dp-pevi",)


def _world(recipe: str) -> Any:
    return privrl.envs.SyntheticLinear() if recipe in _LINEAR else privrl.envs.ICUSepsis()


def fit(recipe: str, table: Path) -> dict[str, float]:
    """One fit in this process."""
    env, how = _world(recipe), get(recipe)
    started = time.process_time()
    names = {name: name for name in ("step", "state", "action", "reward", "next_state")}
    data = privrl.data.read_parquet(
        table,
        unit="unit_id",
        **names,
        horizon=env.horizon,
        num_states=env.num_states,
        num_actions=env.num_actions,
    )
    privrl.fit(data, how.learner(Problem.of(env)), how.privatizer(epsilon=1.0, delta=1e-6))
    cpu = time.process_time() - started
    return {
        "cpu": cpu,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "rows": data.check().num_rows,
    }


def _write_linear(path: Path, rows: int) -> None:
    env = privrl.envs.SyntheticLinear()
    privrl.data.write_parquet(path, env.sample(env.behaviour_policy(), rows // env.horizon, jax.random.key(0)))


def main(rows: int, recipes: tuple[str, ...]) -> None:
    """Prints a line of a Markdown table for each recipe."""
    print("| recipe | rows | CPU, s | CPU, us a row | peak memory, MB |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        for kind, wanted in ((write_table, _ICU), (_write_linear, _LINEAR)):
            chosen = [recipe for recipe in recipes if recipe in wanted]
            table = Path(name) / f"{wanted[0]}.parquet"
            if chosen:
                kind(table, rows)
            for recipe in chosen:
                environment = os.environ | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
                command = [sys.executable, "-m", "bench.recipes", "--one", recipe, str(table)]
                done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
                found = json.loads(done.stdout.splitlines()[-1])
                each = 1e6 * found["cpu"] / found["rows"]
                print(
                    f"| `{recipe}` | {found['rows']:,} | {found['cpu']:.1f} | {each:.2f} | {found['peak']:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        print(json.dumps(fit(sys.argv[2], Path(sys.argv[3]))))
    else:
        main(int(float(sys.argv[1])), tuple(sys.argv[2:]) or (*_ICU, *_LINEAR))
