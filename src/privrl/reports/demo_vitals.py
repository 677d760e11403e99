"""The demo of real tables: a raw export of a hospital, invented, and the commands that take it to a report.

People are simulated in the world `vitals` and written as hospitals export them: one line per event, in any order, with
a time, a name and a value; nothing where nothing was measured; doses in millilitres and micrograms. From there on
nothing knows that they are not real, and the noise comes from the operating system. Only the last lines, what policies
are worth, are known to nobody but a simulator.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float, Int

from privrl.data.rows.transitions import Block
from privrl.envs.patients.vitals import Vitals
from privrl.studies.results.result import Result
from privrl.studies.simulation.sampled_tables import baseline_values, sampled

if TYPE_CHECKING:
    import pyarrow as pa

FILES = frozenset({"raw.csv", "stays.parquet", "stays.toml", "policy", "report.html", "values.json"})
_FLUID, _PRESSOR = "fluid_ml", "norepinephrine_mcg_kg_min"
_MINUTES = 240  # of a step
_YEAR = 365 * 24 * 60
_BEGIN = np.datetime64("2025-01-01T00:00", "m")
_EVALUATED = 20_000  # simulated people of whom a value is the mean


def write_export(path: Path, people: int, *, seed: int) -> None:
    """Writes the raw export of so many invented people as CSV."""
    import pyarrow as pa
    from pyarrow import csv

    data = sampled(Vitals(), people, jax.random.key(seed))
    rng = np.random.default_rng(seed)
    first, parts = 0, []
    for block in data.blocks():
        parts.append(_events(block, first, rng))
        first += len(block.lengths)
    table = pa.concat_tables(parts)
    csv.write_csv(table.take(pa.array(rng.permutation(table.num_rows))), path)


def schema_words() -> str:
    """The schema file: what is publicly known about the table that `prepare` writes."""
    features = ",\n".join(f'    "{column}"' for column in Vitals.columns)
    return (
        "# Bounds are knowledge about measurements, never read off the data. A dose below the second edge counts as\n"
        "# none: fluids below 250 ml, norepinephrine below 0.05 micrograms per kilogram and minute.\n"
        f'unit = "patient_id"\nstep = "step"\nhorizon = {Vitals().horizon}\n'
        'reward = "survived"\nrewards_at_end = true\n'
        f'action = ["{_FLUID}", "{_PRESSOR}"]\naction_edges = ["0,250,750", "0,0.05"]\nfeature = [\n{features},\n]\n'
    )


def commands(epsilon: float, delta: float, evaluate: float | None) -> list[list[str]]:
    """What a user would type in the folder of the export; `evaluate` is the share of people who are held out."""
    measured = [word for column in Vitals.columns for word in ("--last", column.name)]
    held_out = [] if evaluate is None else ["--evaluate", f"{evaluate:g}"]
    budget = ["--epsilon", f"{epsilon:g}", "--delta", f"{delta:g}"]
    return [
        ["prepare", "raw.csv", "stays.parquet", "--unit", "patient_id", "--time", "charttime", "--every", "4h"]
        + ["--name", "item", "--value", "value", *measured, "--action", _FLUID, "--action", f"{_PRESSOR}:max"]
        + ["--reward", "survived", "--horizon", str(Vitals().horizon)],
        ["schema", "check", "stays.toml", "stays.parquet"],
        ["fit", "stays.parquet", "--schema", "stays.toml", "--recipe", "dp-lap", *budget, *held_out, "--out", "policy"],
        ["report", "policy", "--out", "report.html"],
    ]


def known_values(folder: Path) -> dict[str, Any]:
    """What the saved policy (all its advice, where it was compared with practice) and others are worth in the simulated
    world; on real people nobody knows. A policy that was withheld has no value."""
    world, result = Vitals(evaluated=_EVALUATED), Result.load(folder / "policy")
    policy = result.policy if result.advice is None else result.advice
    value = None if policy is None else float(world.value(policy))
    values: dict[str, Any] = {"value": value, "baselines": baseline_values(world)}
    (folder / "values.json").write_text(json.dumps(values, indent=2, allow_nan=False))
    return values


def _events(block: Block, first: int, rng: np.random.Generator) -> "pa.Table":
    """Of every step what was measured in its four hours, and in the next four what was given; at the end, who lives."""
    E, steps = len(block.lengths), block.steps
    admitted = rng.integers(0, _YEAR, E)
    owner = np.repeat(np.arange(E), block.lengths)
    begin = admitted[owner] + _MINUTES * steps
    rows = []
    for j, column in enumerate(Vitals.columns):
        given = ~np.isnan(block.states[:, j])
        # the pulse begins every window, so that windows count from the first one on
        minute = np.zeros(len(owner), int) if column.name == "heart_rate" else rng.integers(1, _MINUTES, len(owner))
        rows.append((owner[given], (begin + minute)[given], column.name, np.round(block.states[given, j], 2)))
    fluids, press = np.divmod(block.actions, 2)
    after = begin + _MINUTES
    total = np.where(fluids == 1, 250, 750) + 10 * rng.integers(0, 50, len(owner))
    for half, later in ((total // 2, 0), (total - total // 2, _MINUTES // 2)):  # two boluses, of which the sum counts
        at = after + later + rng.integers(1, _MINUTES // 2, len(owner))
        rows.append((owner[fluids > 0], at[fluids > 0], _FLUID, half[fluids > 0].astype(float)))
    rate = np.round(0.05 + 0.25 * rng.random(len(owner)), 3)
    at = after + rng.integers(1, _MINUTES, len(owner))
    rows.append((owner[press == 1], at[press == 1], _PRESSOR, rate[press == 1]))
    last = np.cumsum(block.lengths) - 1
    rows.append((np.arange(E), after[last] + _MINUTES - 1, "survived", block.rewards[last]))
    return _table(rows, first)


def _table(
    rows: list[tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"], str, Float[np.ndarray, " N"]]], first: int
) -> "pa.Table":
    import pyarrow as pa

    owner = np.concatenate([owner for owner, _, _, _ in rows]) + first
    minutes = np.concatenate([minute for _, minute, _, _ in rows])
    return pa.table(
        {
            "patient_id": np.char.add("P", np.char.zfill(owner.astype(str), 6)),
            "charttime": pa.array((_BEGIN + minutes.astype("m8[m]")).astype("M8[s]")),
            "item": np.concatenate([np.full(len(owner), name) for owner, _, name, _ in rows]),
            "value": np.concatenate([value for _, _, _, value in rows]),
        }
    )
