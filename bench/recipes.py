"""CPU and peak memory of a whole fit: `python -m bench.recipes RECIPE FOLDER FILES`, one JSON object.

The folder is one that `bench/tables.py` wrote; `bench/scale.py` starts this with one thread for every recipe. CPU is
from opening the table to the policy, with compilation and exact noise (epsilon 1, delta 1e-6, no store).
"""

import json
import sys
import time
from pathlib import Path

import privrl
from bench.measured_memory import peak
from bench.tables import opened
from privrl.recipes.all_recipes import get

WORLD_OF = {
    "dp-tdfp": "icu-sepsis",
    "dp-apvi": "icu-sepsis",
    "dp-fqi": "icu-sepsis",
    "dp-tap": "icu-sepsis",
    "dp-pevi": "synthetic-linear",
    "dp-vapvi": "synthetic-linear",
    "dp-lap": "vitals",
}
"""The recipes that are measured, and the worlds that their tables come from."""


def fit(recipe: str, folder: Path, files: int) -> dict[str, float]:
    """One fit in this process."""
    started, how = time.process_time(), get(recipe)
    env, data = opened(WORLD_OF[recipe], folder, files)
    privrl.fit(data, how.build(env), how.privatizer(epsilon=1.0, delta=1e-6))
    return {"cpu": time.process_time() - started, "peak": peak(), "rows": data.check().num_rows}


if __name__ == "__main__":
    print(json.dumps(fit(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
