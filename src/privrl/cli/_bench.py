"""`privrl bench`: the benchmark table, from a checkout of the repository."""

import runpy
import sys
from pathlib import Path

import privrl

_FOLDER = "bench"


def bench() -> None:
    """Measure how fast privrl is against plain baselines (minutes; needs a checkout of the repository)."""
    checkout = Path(privrl.__file__).resolve().parents[2]
    if not (checkout / _FOLDER / "__main__.py").is_file():
        raise ValueError(
            "The benchmark is not part of the installed package: it compares privrl with packages that privrl itself "
            "does not need. Get the repository and run `make bench` in it."
        )
    sys.path.insert(0, str(checkout))
    runpy.run_module(_FOLDER, run_name="__main__", alter_sys=True)
