"""Finished cells on disk: one Parquet file each, written completely or not at all.

A file is used again only if it was made with the same settings and the same seed. If the code has changed since, the
file is kept, but the verdict reports it: every row contains the versions and a digest of the source that made it.
"""

import functools
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import privrl
from privrl.figures.cell import Cell, Measured

if TYPE_CHECKING:
    import pyarrow as pa

CELLS = "cells"
RUNS = "runs.parquet"
_METADATA = b"privrl"
_NO_EFFECT = ("figures", "plots", "reports", "cli", "audit")
_SETTINGS = ("recipe", "env", "env_arguments", "env_seed", "people", "seeds", "epsilon", "delta", "rho")


@dataclass(frozen=True)
class Kept:
    """A finished cell, with the settings, seed and code that made it."""

    measured: Measured
    settings: Mapping[str, object]
    seed: int
    code: Mapping[str, str]


@functools.cache
def describe_code() -> dict[str, str]:
    """Return versions, and a digest of those parts of privrl on which the numbers depend."""
    root = Path(privrl.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] not in _NO_EFFECT:
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    versions = {"privrl": privrl.__version__, "jax": version("jax"), "numpy": np.__version__}
    return {**versions, "source": digest.hexdigest()[:16]}


def locate_cell(folder: Path, slug: str) -> Path:
    """Return the file of a cell."""
    return folder / CELLS / f"{slug}.parquet"


def write_cell(folder: Path, slug: str, figure: str, cell: Cell, base: int, measured: Measured) -> None:
    """Write a finished cell."""
    import pyarrow as pa

    seeds, points = measured.values.shape
    made = describe_code()
    settings = {**cell.settings, "env_arguments": json.dumps(dict(cell.world))}
    constant = {
        "figure": figure,
        **{name: settings[name] for name in _SETTINGS},
        "certified_epsilon": measured.certified,
        "seed": cell.seed(base),
        "measure": measured.measure,
        "command": cell.command(base),
        "seconds": measured.seconds,
        **made,
    }
    columns: dict[str, Sequence[object] | np.ndarray] = {
        name: [value] * (seeds * points) for name, value in constant.items()
    }
    columns["repetition"] = np.repeat(np.arange(seeds), points)
    columns["at"] = np.tile(measured.at, seeds)
    columns["value"] = measured.values.ravel()
    columns["yardstick"] = np.tile(measured.yardstick, seeds)
    types = {name: pa.float64() for name in ("epsilon", "delta", "rho", "certified_epsilon", "seconds")}
    table = pa.table({name: pa.array(column, types.get(name)) for name, column in columns.items()})
    facts = {"settings": cell.settings, "seed": base, "code": made, "levels": dict(measured.levels)}
    target = locate_cell(folder, slug)
    target.parent.mkdir(parents=True, exist_ok=True)
    _write_whole(table.replace_schema_metadata({_METADATA: json.dumps(facts).encode()}), target)


def _write_whole(table: "pa.Table", target: Path) -> None:
    """Write the file completely or not at all."""
    import pyarrow.parquet as pq

    scratch = target.with_suffix(f".{os.getpid()}.part")
    pq.write_table(table, scratch, compression="zstd")
    os.replace(scratch, target)


def read_cell(folder: Path, slug: str) -> Kept | None:
    """Read a finished cell; return `None` if there is no file or it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = locate_cell(folder, slug)
    if not target.is_file():
        return None
    try:
        table = pq.read_table(target)
        facts = json.loads(table.schema.metadata[_METADATA])
    except (pa.ArrowInvalid, KeyError, TypeError, json.JSONDecodeError):
        return None  # damaged or from another program: the cell is run again
    column = {name: table[name].to_numpy() for name in ("repetition", "at", "value", "yardstick")}
    values = column["value"].reshape(int(column["repetition"].max()) + 1, -1)
    at, yardstick = (column[name][: values.shape[1]] for name in ("at", "yardstick"))
    measure, certified, seconds = (table[name][0].as_py() for name in ("measure", "certified_epsilon", "seconds"))
    measured = Measured(measure, at, values, yardstick, facts["levels"], certified, seconds)
    return Kept(measured, facts["settings"], facts["seed"], facts["code"])


def is_current(kept: Kept, cell: Cell, base: int) -> bool:
    """Whether a finished cell was made with these settings and this seed."""
    return kept.seed == base and kept.settings == json.loads(json.dumps(cell.settings))


def merge_cells(folder: Path, slugs: Sequence[str]) -> Path:
    """Write these cells into one table, and return its file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [pq.read_table(locate_cell(folder, slug)).replace_schema_metadata(None) for slug in slugs]
    _write_whole(pa.concat_tables(tables), folder / RUNS)
    return folder / RUNS


def to_json_number(value: float | None) -> float | str | None:
    """Return a number as JSON can represent it: infinities and NaN as text."""
    return str(value) if value is not None and not math.isfinite(value) else value
