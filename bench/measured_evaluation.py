"""`python -m bench.measured_evaluation`: how often the intervals of an evaluation on measurements hold the truth.

    python -m bench.measured_evaluation --repetitions 40 > found.jsonl
    python -m bench.measured_evaluation --summary found.jsonl

In each of the four worlds `dp-lap` learns from 70% of the people, the others evaluate, and what the assisted policy is
worth is simulated. Noise is seeded and has the law of the certified releases.
"""

import argparse
import collections
import json
import math
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, PRNGKeyArray

from privrl.contracts.learner import AbstractOfflineLearner
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.envs.actors import Assisting
from privrl.envs.anticoagulation import Anticoagulation
from privrl.envs.chemotherapy import Chemotherapy
from privrl.envs.glucose_day import GlucoseDay
from privrl.envs.patients import AbstractPatients
from privrl.envs.vitals import Vitals
from privrl.learners.continuous.lap import LAP
from privrl.learners.evaluation.estimates import Evaluation, Interval
from privrl.learners.evaluation.measured_evaluator import MeasuredEvaluator
from privrl.mdp.types import Trajectory
from privrl.privacy.accounting.gdp import gdp_mu
from privrl.privacy.noise.laws import GaussianNoise

DELTA = 1e-6
WORLDS = (Vitals, Chemotherapy, Anticoagulation, GlucoseDay)
_AT_ONCE = 1_000


@eqx.filter_jit
def _sum(statistic: AbstractStatistic, people: Trajectory) -> Array:
    parts = jax.tree.map(lambda x: jnp.asarray(x).reshape(-1, _AT_ONCE, 1, *x.shape[1:]), people)
    return jax.lax.map(lambda part: statistic.total(part, None), parts).sum(axis=0)


class _Curator:
    """Releases with seeded Gaussian noise, each with its share of mu."""

    def __init__(self, people: Trajectory, learner: AbstractOfflineLearner, mu: float, key: PRNGKeyArray) -> None:
        whole = sum(declared.weight for declared in learner.declare())
        self._shares = {declared.name: mu * math.sqrt(declared.weight / whole) for declared in learner.declare()}
        self._people, self._key = people, key

    def __call__(self, name: str, statistic: Any = None) -> Release:
        self._key, key = jr.split(self._key)
        total, scale = _sum(statistic, self._people), statistic.l2("replace-one") / self._shares[name]
        return Release(total + scale * jr.normal(key, total.shape), GaussianNoise(scale, total.shape))

    def secret(self, name: str, *, distance: float, beta: float) -> Any:
        raise NotImplementedError

    def people(self, group: str | None = None) -> int:
        return len(self._people.length)

    def skip(self, name: str, to: tuple[str, ...]) -> None:
        (other,) = to
        self._shares[other] = math.hypot(self._shares[other], self._shares.pop(name))


def study(world: AbstractPatients, people: int, epsilon: float, seed: int) -> dict[str, Any]:
    """One policy, its evaluation, and the truth about it."""
    held_out = 3 * people // 10
    mu, keys = gdp_mu(epsilon, DELTA), jr.split(jr.key(seed), 4)
    learner = LAP(
        world.columns, world.num_actions, world.horizon, world.survival > 0, largest_reward=world.largest_reward
    )
    learnt, held = (
        world.sample(world.practice, n, key) for n, key in ((people - held_out, keys[0]), (held_out, keys[1]))
    )
    policy, values = learner.fit_with_values(_Curator(learnt, learner, mu, keys[2]))
    evaluator = MeasuredEvaluator(policy, values, world.horizon, held_out)
    found: Evaluation = evaluator.fit(_Curator(held, evaluator, mu, keys[3]))
    gain = world.gain(Assisting(found.policy, world.practice))
    lines = ("assisted_gain", "balance", "unsupported", "trend", "continuity")
    return {
        "world": world.name,
        "people": people,
        "epsilon": epsilon,
        "seed": seed,
        "truth": gain.value,
        "truth_se": gain.error,
        "handed_out": found.held_back is None,
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
    parser.add_argument("--people", type=int, default=10_000, help="a multiple of 10,000")
    parser.add_argument("--evaluated", type=int, default=16_000, help="simulated people of whom the truth is a mean")
    parser.add_argument("--worlds", nargs="*", default=[world.name for world in WORLDS])
    parser.add_argument("--summary", help="a file of lines that were printed before")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if given.summary:
        with open(given.summary) as file:
            sys.stdout.write("\n".join(summary([json.loads(line) for line in file])) + "\n")
        return
    for world in WORLDS:
        if world.name not in given.worlds:
            continue
        for seed in range(given.repetitions):
            for epsilon in given.epsilons:
                sys.stdout.write(
                    json.dumps(study(world(evaluated=given.evaluated), given.people, epsilon, seed)) + "\n"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
