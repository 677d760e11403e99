"""`python -m bench.zoo`: what recipes are worth in every world of the zoo, and whether anything harmful is released.

One line of JSON per study: a table of so many people is split, a recipe learns from 70%, and the assisted policy is
compared with practice on 30%, once with practice's public probabilities and once with estimated ones. The truth beside
it is exact for whole advice in finite worlds, and simulated otherwise (the standard error is in the line). `--summary`
reads such lines and prints one row per world, people, epsilon and recipe, and `auto` beside the best single recipe, as
far as both are among them; `--picture FILE` draws the shares of the gap at one number of people and one epsilon.

    python -m bench.zoo --seeds 20 --people 10000 100000 --epsilon .3 1 3 > zoo.jsonl
    python -m bench.zoo --summary zoo.jsonl --picture zoo.svg --people 20000 --epsilon 1
"""

import argparse
import collections
import dataclasses
import json
import math
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np

import privrl
from privrl.contracts.learner import AbstractOfflineLearner
from privrl.data.episodes import Episodes
from privrl.envs.zoo.catalogue import CHOOSING, WORLDS, World
from privrl.evaluation.chosen import Chosen
from privrl.evaluation.estimates import Evaluation
from privrl.evaluation.evaluator import Evaluator
from privrl.mdp.types import Trajectory
from privrl.recipes.all_recipes import get
from privrl.studies.offline.procedure import ask_curator
from privrl.studies.simulation.sampled_tables import assisted_gain

HELD_OUT, DELTA, STAYS, LEAST_SHARE = 0.3, 1e-6, 40_000, 0.2


def split(world: World, people: int, key: jax.Array) -> tuple[Episodes, Episodes]:
    """Tables of the people to learn from and of those held out; fixed sizes, so that one program serves all seeds."""
    stays = world.env.sample(world.env.behaviour_policy(), people, key)
    held = round(HELD_OUT * people)

    def table(rows: slice) -> Episodes:
        part = Trajectory(*(np.asarray(x)[rows] for x in jax.tree.leaves(stays)))
        return Episodes.from_trajectories(part, num_states=world.sizes[0], num_actions=world.sizes[1])

    return table(slice(held, None)), table(slice(held))


def judged(world: World, found: Evaluation, key: jax.Array) -> dict[str, Any]:
    """What was said, in the world's own units, and what is true, as shares of the range of returns."""
    true = assisted_gain(world.env, found.policy, STAYS, key=key)
    said = {name: value for name, value in found.to_json().items() if name != "policy"}
    out = true.value if not found.reasons else 0.0
    return {
        **said,
        "assisted": true.value / world.range,
        "assisted_se": true.error / world.range,
        "released": out / world.range,
    }


def key_of(world: World, people: int, epsilon: float, seed: int) -> jax.Array:
    """Of one table: no two worlds share noise. Recipes do share the table."""
    name = zlib.crc32(world.name.encode())
    return jr.fold_in(jr.fold_in(jr.fold_in(jr.key(seed), name), people), round(1000 * epsilon))


def learner_of(recipe: str, world: World, people: int) -> AbstractOfflineLearner:
    """A recipe's learner; where people choose, they are one tenth of all, as with `--evaluate`."""
    learner = get(recipe).build(world.env, people)
    if isinstance(learner, Chosen) and learner.share is not None:
        learner = dataclasses.replace(learner, share=learner.share / (1.0 - HELD_OUT))
    assert isinstance(learner, AbstractOfflineLearner)
    return learner


def study(world: World, recipe: str, people: int, epsilon: float, seed: int, *, evaluated: bool) -> dict[str, Any]:
    """One line: a recipe on one table of one world."""
    table, *keys = jr.split(key_of(world, people, epsilon, seed), 6)
    learn, held = split(world, people, table)
    budget = privrl.Central(epsilon=epsilon, delta=DELTA)
    result = privrl.fit(learn, learner_of(recipe, world, people), budget, key=keys[0])
    value = world.evaluate(result.policy)
    line = {
        "world": world.name,
        "recipe": recipe,
        "people": people,
        "epsilon": epsilon,
        "seed": seed,
        "share": world.share(value.value),
        "whole": (value.value - world.practice) / world.range,
        "whole_se": value.error / world.range,
    }
    if "choice" in result.report:
        line["choice"] = result.report["choice"]
    if evaluated:
        public, horizon = world.public, world.sizes[2]
        bound = 1.0 if public["rewards_at_end"] else float(horizon)
        practices = {"public": world.env.behaviour, "estimated": None}
        for (name, practice), noise, people_key in zip(practices.items(), keys[1:3], keys[3:], strict=True):
            evaluator = Evaluator(
                *world.sizes,
                held.summary.num_units,
                result.policy.probabilities,
                practice,
                jnp.asarray(result.report["values"]) if "values" in result.report else None,
                public["terminal"],
                (0.0, bound),
            )
            asked = (held, evaluator, evaluator.evaluate, budget)
            found = ask_curator("evaluate", *asked, key=noise, unit=None, store=None).found
            line[name] = judged(world, found, people_key)
    return line


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """The mean over seeds, and its standard error."""
    x = np.asarray(list(values), float)
    return float(x.mean()), float(x.std(ddof=1) / math.sqrt(len(x))) if len(x) > 1 else math.nan


def summary(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Shares of the gap by recipe, and what was released as a share of the range of returns (in how many studies).

    Harm: below -.002 by more than two standard errors. A lie: "better" with public practice, and worse in truth.
    """
    cells = collections.defaultdict(list)
    for line in lines:
        cells[line["world"], line["people"], line["epsilon"], line["recipe"]].append(line)
    yield "| world | people | epsilon | recipe | seeds | share of the gap | released: public | estimated | lies |"
    yield "|---|---:|---:|---|---:|---|---|---|---:|"
    for (world, people, epsilon, recipe), found in sorted(cells.items()):
        share, error = mean_and_error(x["share"] for x in found)
        row = [world, f"{people}", f"{epsilon:g}", recipe, f"{len(found)}", f"{share:+.3f} +- {error:.3f}"]
        for name in ("public", "estimated"):
            judgements = [x[name] for x in found if name in x]
            if not judgements:
                row.append("")
            else:
                mean, error = mean_and_error(x["released"] for x in judgements)
                given = sum(not x["reasons"] for x in judgements)
                harm = " **harm**" if mean < -0.002 - 2 * (0.0 if math.isnan(error) else error) else ""
                row.append(f"{mean:+.4f} +- {error:.4f} ({given} of {len(judgements)}){harm}")
        lies = [x["public"]["verdict"] == "better" and x["public"]["assisted"] < 0 for x in found if "public" in x]
        row.append(f"{sum(lies)}" if lies else "")
        yield f"| {' | '.join(row)} |"


def coverage(lines: list[dict[str, Any]]) -> Iterator[str]:
    """How often 95% intervals cover the truth, by kind of world: the assumption fails where severity is hidden.

    Only estimates that were given count. `gain` is that of the assisted policy, `model_gain` that of the whole advice.
    """
    cells: dict[tuple[str, str, str], list[bool]] = collections.defaultdict(list)
    for line in lines:
        world = WORLDS[line["world"]]
        for practice in ("public", "estimated"):
            said = line.get(practice, {})
            truths = {name: said.get("assisted") for name in ("gain", "assisted_gain")} | {
                "model_gain": line.get("whole")
            }
            for name, truth in truths.items():
                if said.get(name) is not None and truth is not None:
                    low, high = (said[name][end] / world.range for end in ("low", "high"))
                    cells[world.kind, practice, name].append(low <= truth <= high)
    if cells:
        yield "| worlds | practice | estimate | given | covered |"
        yield "|---|---|---|---:|---:|"
        for (kind, practice, name), found in sorted(cells.items()):
            yield f"| {kind} | {practice} | `{name}` | {len(found)} | {np.mean(found):.2f} |"


def choices(lines: list[dict[str, Any]]) -> Iterator[str]:
    """What `auto` closes beside the best single recipe, where that closes at least a fifth of the gap."""
    cells: dict[tuple[str, int, float], dict[str, list[float]]] = {}
    for line in lines:
        cell = cells.setdefault((line["world"], line["people"], line["epsilon"]), {})
        cell.setdefault(line["recipe"], []).append(line["share"])
    rows = []
    for (world, people, epsilon), found in sorted(cells.items()):
        means = {recipe: mean_and_error(shares)[0] for recipe, shares in found.items()}
        own = means.pop("auto", None)
        best = max(means, key=means.__getitem__, default="")
        if own is not None and best and means[best] >= LEAST_SHARE:
            rows.append((world, people, epsilon, best, means[best], own, own / means[best]))
    if rows:
        yield "| world | people | epsilon | best single recipe | it closes | `auto` closes | ratio |"
        yield "|---|---:|---:|---|---:|---:|---:|"
        for world, people, epsilon, best, share, own, ratio in rows:
            yield f"| {world} | {people} | {epsilon:g} | {best} | {share:.3f} | {own:.3f} | {ratio:.0%} |"
        for people in sorted({row[1] for row in rows}):
            ratios = [row[-1] for row in rows if row[1] == people]
            mean, least = np.mean(ratios), min(ratios)
            yield f"\n{people} people, {len(ratios)} cells: {mean:.0%} on average, {least:.0%} in the worst."


def picture(lines: list[dict[str, Any]], file: Path, people: int, epsilon: float) -> None:
    """A dot per world and recipe: practice at 0, the best at 1."""
    cells = collections.defaultdict(list)
    for line in lines:
        if (line["people"], line["epsilon"]) == (people, epsilon):
            cells[line["world"], line["recipe"]].append(line["share"])
    worlds = [name for name in WORLDS if any(name == world for world, _ in cells)]
    recipes = sorted({recipe for _, recipe in cells})
    _, axes = plt.subplots(figsize=(7.0, 0.32 * len(worlds) + 1.2), layout="constrained")
    for i, recipe in enumerate(recipes):
        at = [(j, *mean_and_error(cells[name, recipe])) for j, name in enumerate(worlds) if (name, recipe) in cells]
        rows, means, errors = (np.array(x, float) for x in zip(*at, strict=True))
        shown = np.maximum(means, -1.0)
        axes.errorbar(
            shown, rows + 0.12 * (i - len(recipes) / 2), xerr=np.nan_to_num(errors), fmt="o", ms=4, label=recipe
        )
    axes.axvline(0.0, color="0.4", lw=1)
    axes.axvline(1.0, color="0.4", lw=1, ls=":")
    axes.set_yticks(range(len(worlds)), [name + ("" if name in CHOOSING else " *") for name in worlds])
    axes.invert_yaxis()
    axes.set_xlim(-1.05, 1.05)
    axes.set_xlabel("share of the gap from practice (0) to the best (1), with standard errors\n* only ever reported")
    axes.set_title(f"{people:,} people, epsilon {epsilon:g}")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.04), ncols=len(recipes), fontsize=8)
    plt.savefig(file)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--recipes", nargs="+", default=["dp-tap"])
    parser.add_argument("--people", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.3, 1.0, 3.0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--no-evaluation", action="store_true", help="whole advice alone")
    parser.add_argument("--summary", type=Path, help="read lines, and print tables instead")
    parser.add_argument(
        "--picture", type=Path, help="with --summary: draw the shares at the last --people and --epsilon"
    )
    given = parser.parse_args()
    if given.summary is not None:
        lines = [json.loads(line) for line in given.summary.read_text().splitlines()]
        for row in summary(lines):
            print(row)
        print(*("", *choices(lines)), sep="\n")
        print(*("", *coverage(lines)), sep="\n")
        if given.picture is not None:
            picture(lines, given.picture, given.people[-1], given.epsilon[-1])
        return
    for name in given.worlds:
        world = WORLDS[name]
        for recipe in given.recipes:
            for people in given.people:
                for epsilon in given.epsilon:
                    for seed in range(given.seeds):
                        line = study(world, recipe, people, epsilon, seed, evaluated=not given.no_evaluation)
                        print(json.dumps(line), flush=True)
        del world.__dict__["env"]
        jax.clear_caches()
        print(f"{name} done", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
