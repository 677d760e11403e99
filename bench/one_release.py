"""`python bench/one_release.py TABLE`: CPU of single releases from an ICU-Sepsis table, as one JSON object.

It runs with the sources that `PYTHONPATH` names, so that the baseline commit and this checkout answer the same queries
in processes of their own; `sums` are digests of the exact integers, which must agree. `bench/releases.py` starts it.
"""

import hashlib
import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import privrl

S, A, H, TERMINAL = 716, 25, 20, (713, 714, 715)
_REPEATS = 5


def found(name: str, module: str, before: str) -> Any:
    """A name of privrl, from the module that has it now, or where the baseline has it."""
    try:
        return getattr(importlib.import_module(f"privrl.{module}"), name)
    except (ModuleNotFoundError, AttributeError):
        return getattr(importlib.import_module(before), name)


def _statistic(name: str, module: str) -> Any:
    return found(name, f"statistics.{module}", "privrl.statistics")


def queries() -> Iterator[tuple[str, Any]]:
    """One statistic of each kind, with public arguments from a fixed seed."""
    counts = _statistic("TransitionCounts", "counts")
    rng = np.random.default_rng(0)
    feature = jnp.asarray(rng.random(S))
    values = jnp.asarray(rng.random((S, A)))
    weights = {"contribution_norm": 1.4, "visit_weight": 0.8, "ending_weight": 1.1, "difference_weight": 0.8}
    yield "rewards", _statistic("RewardSums", "counts")(S, A, H, "first-visit", 2.0)
    yield "gradients", _statistic("BellmanGradient", "gradients")(values, H, 0.5, terminal=TERMINAL)
    yield (
        "Differences",
        _statistic("Differences", "differences")(S, A, H, TERMINAL, feature=feature, scale=jnp.asarray(0.3), **weights),
    )
    yield "ReturnsToGo", _statistic("ReturnsToGo", "differences")(S, H, 1.5)
    for pairs in (2_048, S * A):
        chosen = jnp.asarray(np.sort(rng.choice(S * A, pairs, replace=False)))
        yield (
            f"transitions, {pairs:,} pairs",
            counts(S, A, H, "first-visit", 2.0, pairs=chosen, with_end=True),
        )
    features = found("TableFeatures", "mdp.features", "privrl.mdp")(jnp.asarray(rng.normal(size=(S, A, 16)) / 8.0))
    targets = _statistic("Targets", "moments")
    yield "Targets", targets(features, jnp.asarray(2), values=feature, low=jnp.asarray(0.0), high=jnp.asarray(1.0))


def lattice_of(records: Any, statistic: Any) -> Any:
    """The grid of a release with little noise."""
    return found("choose_lattice", "privacy.noise.lattice", "privrl.privacy")(
        parameter=0.1,
        sensitivity=statistic.l2("replace-one"),
        norm=statistic.l2("add-remove"),
        filled=records.filled(statistic),
        kind="l2",
    )


def _total(data: Any, statistic: Any) -> np.ndarray:
    """The exact sum, in whichever of the two trees this is."""
    records = found("Records", "studies.offline.curated_records", "privrl._records")(data)
    lattice = lattice_of(records, statistic)
    old = getattr(records, "units", None)
    return np.asarray(records.total(statistic, None, lattice) if old is None else old(statistic, None, lattice))


def main(table: Path) -> None:
    names = {name: name for name in ("step", "state", "action", "reward", "next_state")}
    data = privrl.data.read_parquet(
        table,
        unit="unit_id",
        episode="episode_id",
        **names,
        horizon=H,
        num_states=S,
        num_actions=A,
        max_episodes_per_unit=1,
    )
    started = time.process_time()
    data.check()
    answer: dict[str, Any] = {"rows": data.check().num_rows, "check": time.process_time() - started}
    answer["cpu"], answer["sums"] = {}, {}
    for name, statistic in queries():
        times = []
        for _ in range(1 + _REPEATS):  # the first one compiles
            started = time.process_time()
            total = _total(data, statistic)
            times.append(time.process_time() - started)
        answer["cpu"][name] = min(times[1:])
        answer["sums"][name] = hashlib.sha256(np.ascontiguousarray(total).tobytes()).hexdigest()
        print(f"{name}: {answer['cpu'][name]:.3f} s, first {times[0]:.2f} s", file=sys.stderr, flush=True)
    if hasattr(data, "chunks"):  # the baseline keeps nothing
        answer["held_bytes"] = sum(chunk.nbytes for chunk in data.chunks())
    print(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
