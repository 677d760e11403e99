"""`privrl bench`: the benchmark table, from a checkout of the repository."""

import importlib
import sys
from pathlib import Path

import privrl
from privrl.cli.output import JsonOption

_FOLDER = "bench"


def bench(json: JsonOption = False) -> None:
    """Measure privrl against plain baselines; takes minutes and needs a checkout of the repository."""
    checkout = Path(privrl.__file__).resolve().parents[2]
    if not (checkout / _FOLDER / "__main__.py").is_file():
        raise ValueError(
            "The benchmark is not part of the installed package: it compares privrl with packages that privrl itself "
            "does not need. Get the repository and run `make bench` in it."
        )
    sys.path.insert(0, str(checkout))
    importlib.import_module(f"{_FOLDER}.__main__").main(as_json=json)
