"""`python -m bench.measured_evaluation`: how often the intervals of an evaluation on measurements hold the truth.

    python -m bench.measured_evaluation --repetitions 40 --workers 16 > found.jsonl
    python -m bench.measured_evaluation --summary found.jsonl

In each world `dp-lap` learns from 70% of the people, the others evaluate, and what the assisted policy is worth is
simulated. Noise is seeded and has the distribution of the certified releases. The allowance of the interval was set
after studies in the worlds of `SEEN`; nothing was set after any in those of `FURTHER`.
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

import privrl
from privrl.envs.patients.actors import AssistedActor
from privrl.envs.worlds_by_name import make
from privrl.evaluation.estimates import Evaluation, Interval
from privrl.evaluation.measured_evaluator import MeasuredEvaluator
from privrl.recipes.all_recipes import get
from privrl.studies.offline.procedure import ask_curator
from privrl.studies.simulation.sampled_tables import table_of

DELTA = 1e-6
SEEN = ("vitals", "chemotherapy", "anticoagulation", "glucose-day")  # when the allowance was set
FURTHER = ("anaemia", "ventilation", "vitals-10", "chemotherapy-8", "glucose-day-12")  # a number is a shorter horizon


def study(name: str, people: int, evaluated: int, epsilon: float, seed: int) -> dict[str, Any]:
    """One policy, its evaluation, and the truth about it."""
    kind, _, horizon = name.rpartition("-") if name[-1].isdigit() else (name, "", "")
    shorter: dict[str, Any] = {"horizon": horizon} if horizon else {}
    world, keys = make(kind, evaluated=evaluated, **shorter), jr.split(jr.key(seed), 4)
    held_out, budget = 3 * people // 10, privrl.Central(epsilon=epsilon, delta=DELTA)
    learnt, held = (
        table_of(world, world.sample(world.practice, n, key))
        for n, key in ((people - held_out, keys[0]), (held_out, keys[1]))
    )
    fitted = privrl.fit(learnt, get("lap").build(world), budget, key=keys[2])
    evaluator = MeasuredEvaluator(fitted.policy, jnp.asarray(fitted.report["values"]), world.horizon, held_out)
    asked = (held, evaluator, evaluator.evaluate, budget)
    found: Evaluation = ask_curator("evaluate", *asked, key=keys[3], unit=None, store=None).found
    gain = world.gain(AssistedActor(found.policy, world.practice))
    lines = ("assisted_gain", "balance", "unsupported", "trend", "continuity")
    return {
        "world": name,
        "people": people,
        "epsilon": epsilon,
        "seed": seed,
        "truth": gain.value,
        "truth_se": gain.error,
        "released": not found.reasons,
        **{name: _ends(getattr(found, name)) for name in lines},
    }


def _ends(interval: Interval | None) -> tuple[float, float, float] | None:
    return None if interval is None else (interval.low, interval.value, interval.high)


def summary(lines: list[dict[str, Any]]) -> list[str]:
    """A row of a table for each world and epsilon."""
    groups = collections.defaultdict(list)
    for line in lines:
        groups[line["world"], line["people"], line["epsilon"]].append(line)
    names = (
        "world",
        "people",
        "epsilon",
        "true gain",
        "given",
        "holds the truth",
        "half width",
        "error",
        "balance",
        "checks",
    )
    rows = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for (world, people, epsilon), found in sorted(groups.items()):
        given = [one for one in found if one["assisted_gain"] is not None]
        held = [one["assisted_gain"][0] <= one["truth"] <= one["assisted_gain"][2] for one in given]
        half = _mean((one["assisted_gain"][2] - one["assisted_gain"][0]) / 2 for one in given)
        error = _mean((one["assisted_gain"][1] - one["truth"]) ** 2 for one in given) ** 0.5
        checks = (_mean(one[name][1] for one in found) for name in ("trend", "continuity"))
        rows.append(
            f"| `{world}` | {people:,} | {epsilon:g} | {_mean(one['truth'] for one in found):+.4f} | "
            f"{len(given)} of {len(found)} | {sum(held)} of {len(given)} | {half:.3f} | {error:.4f} | "
            f"{_mean(one['balance'][1] for one in found):.2f} | {', '.join(f'{x:+.3f}' for x in checks)} |"
        )
    return rows


def _mean(numbers: Any) -> float:
    found = list(numbers)
    return sum(found) / len(found) if found else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 3.0])
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--evaluated", type=int, default=16_000, help="simulated people of whom the truth is a mean")
    parser.add_argument("--worlds", nargs="*", default=SEEN + FURTHER, choices=SEEN + FURTHER)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--summary", help="a file of lines that were printed before")
    given = parser.parse_args()
    if given.summary:
        with open(given.summary) as file:
            sys.stdout.write("\n".join(summary([json.loads(line) for line in file])) + "\n")
        return
    jobs = itertools.product(given.worlds, given.epsilons, range(given.repetitions))
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(given.workers, context) as pool:
        studies = [
            pool.submit(study, world, given.people, given.evaluated, epsilon, seed) for world, epsilon, seed in jobs
        ]
        for found in concurrent.futures.as_completed(studies):
            sys.stdout.write(json.dumps(found.result()) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
