"""`python -m bench.measured_evaluation`: how often the intervals of an evaluation on measurements hold the truth.

    python -m bench.measured_evaluation --repetitions 40 --workers 16 > found.jsonl
    python -m bench.measured_evaluation --summary found.jsonl
    python -m bench.measured_evaluation --exact --people 300000 --worlds chemotherapy > bias.jsonl

In each world `dp-lap` learns from 70% of the people, the others evaluate, and what the assisted policy is worth with
each pair of limits is simulated. Noise is seeded and has the distribution of the certified releases; with `--exact` the
evaluation has none, so that its mean error is its bias. Cells, correction and allowance were chosen on `CHOSEN_ON`;
nothing was set after any study in `FURTHER`.
"""

import argparse
import collections
import concurrent.futures
import itertools
import json
import math
import multiprocessing
import sys
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np

import privrl
from privrl.envs.patients.actors import AssistedActor
from privrl.envs.patients.anaemia import Anaemia
from privrl.envs.patients.anticoagulation import Anticoagulation
from privrl.envs.worlds_by_name import make
from privrl.evaluation.confidence import Interval
from privrl.evaluation.estimates import Evaluation
from privrl.evaluation.measured_evaluator import MeasuredEvaluator
from privrl.recipes.all_recipes import get
from privrl.studies.offline.procedure import ask_curator
from privrl.studies.simulation.sampled_tables import table_of

DELTA = 1e-6
CHOSEN_ON = ("chemotherapy", "ventilation", "anaemia", "anticoagulation", "anaemia-one-habit", "anticoagulation-record")
FURTHER = ("vitals", "glucose-day", "vitals-10", "glucose-day-12")  # a number is a shorter horizon


class AnaemiaOneHabit(Anaemia):
    """`anaemia`, but all clinicians have the same target, so that practice follows the record alone."""

    def practice(self, step: Any, state: Any, observation: Any, uniforms: Any) -> Any:
        return Anaemia.practice(self, step, state._replace(habit=jnp.asarray(11.0)), observation, uniforms)


class AnticoagulationRecord(Anticoagulation):
    """`anticoagulation`, but the first dose follows the rule of later ones, so that practice follows the record."""

    def practice(self, step: Any, state: Any, observation: Any, uniforms: Any) -> Any:
        return Anticoagulation.practice(self, jnp.maximum(step, 1), state, observation, uniforms)


VARIANTS: dict[str, Any] = {
    "anaemia-one-habit": AnaemiaOneHabit,
    "anticoagulation-record": AnticoagulationRecord,
}


def world_of(name: str, evaluated: int) -> Any:
    """The world of a name, which may end with a horizon."""
    if name in VARIANTS:
        return VARIANTS[name](evaluated=evaluated)
    kind, _, horizon = name.rpartition("-") if name[-1].isdigit() else (name, "", "")
    return make(kind, evaluated=evaluated, **({"horizon": horizon} if horizon else {}))


def study(name: str, people: int, evaluated: int, epsilon: float, seed: int, exact: bool = False) -> dict[str, Any]:
    """One policy, its evaluation under the assumption that practice follows the record, and the truth about it."""
    world, keys = world_of(name, evaluated), jr.split(jr.key(seed), 4)
    held_out, budget = 3 * people // 10, privrl.Central(epsilon=epsilon, delta=DELTA)
    learnt, held = (
        table_of(world, world.sample(world.practice, n, key))
        for n, key in ((people - held_out, keys[0]), (held_out, keys[1]))
    )
    fitted = privrl.fit(learnt, get("lap").build(world), budget, key=keys[2])
    settings = (world.horizon, held_out, (0.0, world.survival or 1.0))
    values = jnp.asarray(fitted.report["values"])
    evaluator = MeasuredEvaluator(fitted.policy, values, *settings, assumption="recorded")
    asked = (held, evaluator, evaluator.evaluate, privrl.NonPrivate() if exact else budget)
    found: Evaluation = ask_curator("evaluate", *asked, key=keys[3], unit=None, store=None).found
    gain = world.gain(AssistedActor(found.policy, world.practice))
    pairs = []
    for pair in found.pairs:
        true = world.gain(AssistedActor(found.policy.with_limits(pair.max_ratio, pair.max_weight), world.practice))
        pairs.append({"limits": [pair.max_ratio, pair.max_weight], "true": [true.value, true.error]})
        pairs[-1] |= {"lower": pair.gain.lower, "gain": _ends(pair.gain)}
    lines = ("assisted_gain", "balance", "unsupported", "trend", "continuity")
    return {
        "world": name,
        "people": people,
        "epsilon": epsilon,
        "seed": seed,
        "truth": gain.value,
        "truth_se": gain.error,
        "exact": exact,
        "released": not found.reasons,
        "reasons": [reason.value for reason in found.reasons],
        "lower": None if found.bound is None else found.bound.lower,
        "pairs": pairs,
        **{name: _ends(getattr(found, name)) for name in lines},
    }


def _ends(interval: Interval | None) -> tuple[float, float, float] | None:
    return None if interval is None else (interval.low, interval.value, interval.high)


def summary(lines: list[dict[str, Any]]) -> list[str]:
    """A row of a table for each world and epsilon."""
    groups = collections.defaultdict(list)
    for line in lines:
        if not line["exact"]:
            groups[line["world"], line["people"], line["epsilon"]].append(line)
    names = (
        "world",
        "people",
        "epsilon",
        "true gain",
        "given",
        "holds the truth",
        "lower bound holds",
        "released",
        "half width",
        "error",
        "balance",
        "checks",
    )
    rows = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for (world, people, epsilon), found in sorted(groups.items()):
        given = [one for one in found if one["assisted_gain"] is not None]
        held = [one["assisted_gain"][0] <= one["truth"] <= one["assisted_gain"][2] for one in given]
        below = [one["lower"] <= one["truth"] + 2.0 * one["truth_se"] for one in given]
        half = _mean((one["assisted_gain"][2] - one["assisted_gain"][0]) / 2 for one in given)
        error = _mean((one["assisted_gain"][1] - one["truth"]) ** 2 for one in given) ** 0.5
        checks = (_mean(one[name][1] for one in found) for name in ("trend", "continuity"))
        rows.append(
            f"| `{world}` | {people:,} | {epsilon:g} | {_mean(one['truth'] for one in found):+.4f} | "
            f"{len(given)} of {len(found)} | {sum(held)} of {len(given)} | "
            f"{sum(below)} of {len(given)} | {sum(one['released'] for one in found)} of {len(found)} | "
            f"{half:.3f} | {error:.4f} | "
            f"{_mean(one['balance'][1] for one in found):.2f} | {', '.join(f'{x:+.3f}' for x in checks)} |"
        )
    return rows


def bias_summary(lines: list[dict[str, Any]]) -> list[str]:
    """For each world, the true gain with each pair of limits, and the mean error of its estimate without noise."""
    groups = collections.defaultdict(list)
    for line in lines:
        if line["exact"]:
            groups[line["world"], line["people"]].append(line)
    rows = ["| world | people | studies | limits | true gain | bias |", "|---|---|---|---|---|---|"]
    for (world, people), found in sorted(groups.items()):
        every = [pair for line in found for pair in line["pairs"]]
        for limits in sorted({tuple(pair["limits"]) for pair in every}):
            pairs = [pair for pair in every if tuple(pair["limits"]) == limits]
            errors = np.array([pair["gain"][1] - pair["true"][0] for pair in pairs])
            error = errors.std(ddof=1) / math.sqrt(len(errors)) if len(errors) > 1 else math.nan
            true = _mean(pair["true"][0] for pair in pairs)
            rows.append(
                f"| `{world}` | {people:,} | {len(pairs)} | {limits[0]:g}/{limits[1]:g} | {true:+.4f} | "
                f"{errors.mean():+.4f}" + (f" ± {error:.4f} |" if len(errors) > 1 else " |")
            )
    return rows if len(rows) > 2 else []


def _mean(numbers: Any) -> float:
    found = list(numbers)
    return sum(found) / len(found) if found else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 3.0])
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--evaluated", type=int, default=16_000, help="simulated people of whom the truth is a mean")
    parser.add_argument("--worlds", nargs="*", default=CHOSEN_ON + FURTHER)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--exact", action="store_true", help="evaluate without noise, which shows the bias")
    parser.add_argument("--summary", help="a file of lines that were printed before")
    given = parser.parse_args()
    if given.summary:
        with open(given.summary) as file:
            lines = [json.loads(line) for line in file]
        sys.stdout.write("\n".join([*summary(lines), "", *bias_summary(lines)]) + "\n")
        return
    jobs = itertools.product(given.worlds, given.epsilons, range(given.first, given.first + given.repetitions))
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(given.workers, context) as pool:
        studies = [
            pool.submit(study, world, given.people, given.evaluated, epsilon, seed, given.exact)
            for world, epsilon, seed in jobs
        ]
        for found in concurrent.futures.as_completed(studies):
            sys.stdout.write(json.dumps(found.result()) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
