"""`python -m bench.measured`: the values of the guide on measurements, one line of JSON per fit.

    python -m bench.measured --workers 16 > measured.jsonl
    python -m bench.measured --summary measured.jsonl

Parts: `worlds` (`dp-lap` in six worlds, or those of `--worlds`), `grids` (methods for tables, on measurements that were
put on a grid), `blocks` (people who arrive: each block is learnt from once, and the next one is treated by what was
learnt), `settings` (`lap` under other settings). A value is a mean over 16,000 simulated people, the same for every
policy.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import itertools
import json
import math
import multiprocessing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

import privrl
from privrl.envs.patients.actors import Actor
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.envs.worlds_by_name import make
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.recipes.all_recipes import get
from privrl.studies.simulation.sampled_tables import sampled, table_of

PEOPLE, EVALUATED, DELTA, BLOCKS = 10_000, 16_000, 1e-6, 3
WORLDS = ("vitals", "glucose-day", "anticoagulation", "chemotherapy", "anaemia", "ventilation")
GRIDS = (
    ("vitals-table", "equal", "dp-tdfp"),
    ("glucose-table", "equal", "dp-tdfp"),
    ("vitals-table", "expert", "dp-tdfp"),
    ("vitals-table", "equal", "dp-sgd-q"),
    ("vitals-table", "expert", "dp-sgd-q"),
)
SETTINGS: tuple[tuple[str, float | None, dict[str, Any]], ...] = (
    *((world, epsilon, {"trace": 0.0}) for world in WORLDS[:3] for epsilon in (1.0, None)),
    ("vitals", None, {"rounds": (1.0,)}),
    ("chemotherapy", None, {"rounds": (1.0,)}),
    ("chemotherapy", None, {"support": 0.0}),
    ("chemotherapy", None, {"rounds": (1.0,), "support": 0.0}),
)


class Mixed(eqx.Module):
    """Half of the decisions by a policy, the others as in practice."""

    policy: MeasuredPolicy
    practice: Actor

    def __call__(
        self, step: Int[Array, ""], state: Any, observation: Float[Array, " D"], coins: Float[Array, " coins"]
    ) -> Int[Array, ""]:
        # Low bits of a coin, of which practice uses the high ones, make another coin.
        own = jnp.mod(coins[0] * 2.0**26, 1.0) < 0.5
        return jnp.where(own, self.policy.choose(observation), self.practice(step, state, observation, coins))


def privatizer(epsilon: float | None) -> Any:
    """For a budget; `None` is without noise."""
    return privrl.NonPrivate() if epsilon is None else privrl.Central(epsilon=epsilon, delta=DELTA)


def fits(seeds: int, world: str, recipe: str, epsilon: float | None, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """One value per seed."""
    env: Any = make(world, evaluated=EVALUATED, **{k: v for k, v in settings.items() if k == "cut"})
    own = {k: v for k, v in settings.items() if k != "cut"}
    learner = dataclasses.replace(get(recipe).build(env, num_episodes=PEOPLE), **own)
    value = eqx.filter_jit(env.value)
    lines = []
    for seed in range(seeds):
        data = sampled(env, PEOPLE, jr.key(seed))
        policy = privrl.fit(data, learner, privatizer(epsilon), key=jr.key(100 + seed)).policy
        lines.append({"world": world, "recipe": recipe, "settings": settings, "epsilon": epsilon, "seed": seed})
        lines[-1]["value"] = float(value(policy))
    return lines


def in_blocks(seeds: int, world: str, epsilon: float | None) -> list[dict[str, Any]]:
    """Everybody is in one block, so the budget of a person is that of one fit."""
    env: AbstractPatients = make(world, evaluated=EVALUATED)
    learner, value, lines = get("lap").build(env), eqx.filter_jit(env.value), []
    for seed in range(seeds):
        actor: Actor = env.practice
        for block in range(BLOCKS):
            key = jr.fold_in(jr.key(seed), block)
            stays = env.sample(actor, PEOPLE, key)
            fitted = privrl.fit(table_of(env, stays), learner, privatizer(epsilon), key=jr.fold_in(key, 1))
            actor = Mixed(fitted.policy, env.practice)
            line: dict[str, Any] = {"recipe": f"block {block + 1}", "settings": {}, "epsilon": epsilon}
            treated = float(np.asarray(stays.rewards).sum(axis=1).mean())
            lines.append(
                {"world": world, "seed": seed} | line | {"value": float(value(fitted.policy)), "treated": treated}
            )
    return lines


def jobs(part: str, worlds: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """What there is to do: a function and its arguments after the number of seeds."""
    if part == "worlds":
        yield from ((fits, world, "lap", epsilon, {}) for world in worlds for epsilon in (0.5, 1.0, 3.0, None))
    elif part == "grids":
        yield from ((fits, world, recipe, 1.0, {"cut": cut}) for world, cut, recipe in GRIDS)
    elif part == "settings":
        yield from ((fits, world, "lap", epsilon, given) for world, epsilon, given in SETTINGS)
    else:
        yield (in_blocks, "vitals", 1.0)


def done(job: tuple[Any, ...], seeds: int) -> list[dict[str, Any]]:
    """One job, in whichever process."""
    function, *given = job
    return list(function(seeds, *given))


def summary(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Means over seeds with their standard errors."""
    cells = collections.defaultdict(list)
    for line in lines:
        cells[line["world"], line["recipe"], json.dumps(line["settings"]), line["epsilon"]].append(line)
    yield "| world | recipe | settings | epsilon | seeds | value |"
    yield "|---|---|---|---:|---:|---|"
    for (world, recipe, settings, epsilon), found in cells.items():
        values = np.array([line["value"] for line in found])
        error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        row = (world, recipe, settings, "no noise" if epsilon is None else f"{epsilon:g}", str(len(values)))
        treated = [line["treated"] for line in found if "treated" in line]
        more = f" (its people: {np.mean(treated):.3f})" if treated else ""
        yield f"| {' | '.join(row)} | {values.mean():.3f} ± {error:.3f}{more} |"


def main() -> None:
    parts = ("worlds", "grids", "blocks", "settings")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", default=parts, choices=parts)
    parser.add_argument("--worlds", nargs="+", default=WORLDS, choices=WORLDS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--summary", type=Path, help="read lines, and print a table instead")
    given = parser.parse_args()
    if given.summary is not None:
        for row in summary([json.loads(line) for line in given.summary.read_text().splitlines()]):
            print(row)
        return
    todo = [job for part in given.part for job in jobs(part, given.worlds)]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(given.workers, context) as pool:
        for lines in pool.map(done, todo, itertools.repeat(given.seeds)):
            for line in lines:
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
