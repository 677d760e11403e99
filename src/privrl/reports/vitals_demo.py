"""The demo of real tables: an invented raw export of a hospital, and the commands that turn it into a report.

Patients are simulated in the world `vitals` and written as hospitals export them: one line per event in any order, with
a time, a name and a value; no line if nothing was measured; doses in millilitres and micrograms. The commands treat
them as real patients, with noise from the operating system. Only the values of policies need the simulator.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

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
_MINUTES = 240  # length of a step
_YEAR = 365 * 24 * 60
_BEGIN = np.datetime64("2025-01-01T00:00", "m")
_EVALUATED = 20_000  # simulated patients over whom a value is averaged


class KnownValues(TypedDict):
    """The value of the saved policy, or `None` if it was withheld, and of policies to compare it with."""

    value: float | None
    baselines: dict[str, float]


def write_export(path: Path, people: int, *, seed: int) -> None:
    """Write the raw export as CSV.

    Arguments:
        path: the file to write.
        people: the number of invented patients.
        seed: reproduces them.
    """
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


def write_schema(path: Path) -> None:
    """Write the schema file: what is publicly known about the table that `prepare` writes."""
    features = ",\n".join(f'    "{column}"' for column in Vitals.columns)
    text = (
        "# Bounds come from general knowledge about the measurements, never from the data. A dose below the second\n"
        "# edge counts as no treatment: fluids below 250 ml, norepinephrine below 0.05 micrograms per kilogram and\n"
        "# minute.\n"
        f'unit = "patient_id"\nstep = "step"\nhorizon = {Vitals().horizon}\n'
        'reward = "survived"\nrewards_at_end = true\n'
        f'action = ["{_FLUID}", "{_PRESSOR}"]\naction_edges = ["0,250,750", "0,0.05"]\nfeature = [\n{features},\n]\n'
    )
    path.write_text(text, encoding="utf-8")


def list_commands(epsilon: float, delta: float, evaluate: float | None) -> list[list[str]]:
    """Return the commands that a user would type in the folder of the export.

    The patients are invented, so a budget is spent on fewer of them than a release needs (`--spend-anyway`), and the
    page shows the advice even if it is withheld (`--show-withheld`).

    Arguments:
        epsilon, delta: the budget.
        evaluate: the share of patients to set aside for a comparison with current practice; `None`: no comparison.
    """
    measured = [word for column in Vitals.columns for word in ("--last", column.name)]
    held_out = [] if evaluate is None else ["--evaluate", f"{evaluate:g}", "--spend-anyway"]
    budget = ["--epsilon", f"{epsilon:g}", "--delta", f"{delta:g}"]
    return [
        ["prepare", "raw.csv", "stays.parquet", "--unit", "patient_id", "--time", "charttime", "--every", "4h"]
        + ["--name", "item", "--value", "value", *measured, "--action", _FLUID, "--action", f"{_PRESSOR}:max"]
        + ["--reward", "survived", "--good", "high", "--horizon", str(Vitals().horizon)],
        ["schema", "check", "stays.toml", "stays.parquet"],
        ["fit", "stays.parquet", "--schema", "stays.toml", "--recipe", "dp-lap", *budget, *held_out, "--out", "policy"],
        ["report", "policy", "--show-withheld", "--out", "report.html"],
    ]


def compute_values(folder: Path) -> KnownValues:
    """Compute the value of the saved policy in the simulated world, and write it to `values.json`.

    If the policy was compared with current practice, the value is that of its whole advice.
    """
    world, result = Vitals(evaluated=_EVALUATED), Result.load(folder / "policy")
    policy: Any = result.policy if result.advice is None else result.advice
    value = None if policy is None else float(world.value(policy))
    values: KnownValues = {"value": value, "baselines": baseline_values(world)}
    (folder / "values.json").write_text(json.dumps(values, indent=2, allow_nan=False))
    return values


def _events(block: Block, first: int, rng: np.random.Generator) -> "pa.Table":
    """Return for each step what was measured in its four hours and given in the next four, and at the end who lives."""
    E, steps = len(block.lengths), block.steps
    admitted = rng.integers(0, _YEAR, E)
    owner = np.repeat(np.arange(E), block.lengths)
    begin = admitted[owner] + _MINUTES * steps
    rows = []
    for j, column in enumerate(Vitals.columns):
        given = ~np.isnan(block.states[:, j])
        # Every window begins with a pulse, because `prepare` counts windows from the first event.
        minute = np.zeros(len(owner), int) if column.name == "heart_rate" else rng.integers(1, _MINUTES, len(owner))
        rows.append((owner[given], (begin + minute)[given], column.name, np.round(block.states[given, j], 2)))
    fluids, press = np.divmod(block.actions, 2)
    after = begin + _MINUTES
    total = np.where(fluids == 1, 250, 750) + 10 * rng.integers(0, 50, len(owner))
    for half, later in ((total // 2, 0), (total - total // 2, _MINUTES // 2)):  # two boluses, which `prepare` adds up
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
