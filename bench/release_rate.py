"""`python -m bench.release_rate`: which share of a learnt gain an evaluation releases, and what its errors cost.

    python -m bench.release_rate --workers 16 --out found.jsonl
    python -m bench.release_rate --summary found.jsonl > docs/evidence/release_rate.md
    python -m bench.release_rate --ceilings --seeds 5 --workers 16 --out ceilings.jsonl

In each study people are sampled from practice, 70% are learnt from (`auto` on numbered states, `dp-lap` on
measurements), and 30% evaluate the advice several times, with the same budget: (a) with logged propensities, (b) with
`assume_recorded`, (c) without an answer, and in worlds whose states are numbered (d) with `assume_recorded` and
`assume_markov`, (e) with logged propensities and `assume_markov`, (f) with `assume_markov` alone. What is released is
simulated; a policy that is withheld gains 0. All numbers are shares of the range of returns. `--out` appends, and
studies that it holds are not repeated. Worlds and seeds are fixed. Nothing was chosen by looking at these worlds except
where `SEEN` names them.

`--ceilings` (with `--summary` for its tables) asks where the rest of the gain is lost: what each pair of limits gains
in truth, that is without any error of an evaluation, and what the model of the whole advice says in (d).
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import math
import multiprocessing
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import privrl
from bench.zoo import learner_of
from privrl.data.episodes import Episodes
from privrl.envs.patients.actors import AssistedActor, LoggingActor, MemorylessActor, as_actor
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.envs.worlds_by_name import make
from privrl.envs.zoo.catalogue import WORLDS
from privrl.envs.zoo.hidden_state import HiddenEnv
from privrl.evaluation.estimates import Assumption, Evaluation
from privrl.evaluation.evaluator import Evaluator
from privrl.evaluation.limits import PAIRS, WHOLE
from privrl.evaluation.measured_evaluator import MeasuredEvaluator
from privrl.mdp.types import TabularPolicy, Trajectory
from privrl.recipes.all_recipes import get
from privrl.studies.offline.procedure import ask_curator
from privrl.studies.simulation.sampled_tables import assisted_gain, table_of

DELTA, HELD_OUT, STAYS, CHUNK = 1e-6, 0.3, 40_000, 5
STATES = (
    "endings-60x4",
    "endings-150x8",
    "endings-400x5",
    "in-flight-40x5",
    "in-flight-150x4",
    "icu-sepsis",
    "holes-65x4",
)
MEASURED = ("vitals", "glucose-day")
HIDDEN = ("severity-108", "severity-144")
SEEN = ("icu-sepsis", "vitals", "glucose-day")
"""Worlds that earlier constants were chosen on: the least number of people, and the allowance of measurements."""
MODES: dict[str, Assumption] = {
    "a": "logged",
    "b": "recorded",
    "c": "checked",
    "d": "recorded",
    "e": "logged",
    "f": "checked",
}
MARKOV = ("d", "e", "f")
"""In these modes the study also states that the recorded state is complete."""
CEILINGS = (*PAIRS, (10.0, 100.0), (20.0, 400.0), WHOLE)
TARGETS = {
    **{(mode, people): share for mode in "ae" for people, share in ((30_000, 0.4), (100_000, 0.6))},
    **{(mode, people): share for mode in "bd" for people, share in ((30_000, 0.35), (100_000, 0.5))},
    **{(mode, 100_000): 0.22 for mode in "cf"},
}
"""With (d), (e) and (f), a model may decide: what these targets were set for."""


def sample_logged(env: Any, people: int, key: jax.Array) -> Trajectory:
    """People whom a program treats as practice does, with the probability of every action."""
    if isinstance(env, HiddenEnv):
        drawn = env.full.sample(TabularPolicy(env.behaviour_policy().probabilities), people, key)
        seen = np.asarray(env.observation).astype(np.int32)
        p = np.asarray(env.full.behaviour)[np.asarray(drawn.states), np.asarray(drawn.actions)]
        states, after = seen[np.asarray(drawn.states)], seen[np.asarray(drawn.next_states)]
        return Trajectory(states, drawn.actions, drawn.rewards, after, drawn.length, _inside(p, drawn.length))
    if isinstance(env, AbstractPatients):
        return env.sample(LoggingActor(env.practice, env.horizon), people, key)
    stays = env.sample(env.behaviour_policy(), people, key)
    p = np.asarray(env.behaviour)[np.asarray(stays.states), np.asarray(stays.actions)]
    return dataclasses.replace(stays, propensities=_inside(p, stays.length))


def _inside(p: np.ndarray, length: Any) -> np.ndarray:
    """The probabilities of steps; 1 in the padding."""
    return np.where(np.arange(p.shape[1]) < np.asarray(length)[:, None], p, 1.0)


def study(name: str, people: int, epsilon: float, seed: int) -> dict[str, Any]:
    """One policy, evaluated under each assumption, and the truth about it."""
    key = jr.fold_in(jr.fold_in(jr.key(seed), zlib.crc32(name.encode())), people)
    keys, budget, held_out = jr.split(key, 8), privrl.Central(epsilon=epsilon, delta=DELTA), round(HELD_OUT * people)
    noise_keys = (*keys[2:5], *(jr.fold_in(keys[4], i) for i in (1, 2, 3)))
    world = None if name in MEASURED else WORLDS[name]
    env: Any = make(name, evaluated=STAYS) if world is None else world.env
    stays = jax.tree.map(np.asarray, sample_logged(env, people, keys[0]))
    held, learnt = (jax.tree.map(lambda x, s=s: x[s], stays) for s in (slice(held_out), slice(held_out, None)))
    if world is None:
        fitted = privrl.fit(_table(env, learnt), get("lap").build(env), budget, key=keys[1])
        gain = env.gain(MemorylessActor(as_actor(fitted.policy)))
        whole, unit = gain.value, env.survival or 1.0
    else:
        fitted = privrl.fit(_table(env, learnt), learner_of("auto", world, people), budget, key=keys[1])
        unit = 1.0 if world.public["rewards_at_end"] else float(world.sizes[2])
        whole = world.evaluate(fitted.policy).value - world.practice
    line = {"world": name, "people": people, "epsilon": epsilon, "seed": seed, "whole": whole / unit}
    for number, (mode, assumption) in enumerate(MODES.items()):
        if mode in MARKOV and world is None:
            continue
        people_of = dataclasses.replace(held, propensities=held.propensities if assumption == "logged" else None)
        evaluator = _evaluator(env, world, fitted, held_out, unit, assumption, markov=mode in MARKOV)
        asked = (_table(env, people_of), evaluator, evaluator.evaluate, budget)
        found: Evaluation = ask_curator("evaluate", *asked, key=noise_keys[number], unit=None, store=None).found
        line[mode] = _judge(env, found, unit, keys[5 + min(number, 2)])
    return line


def ceiling(name: str, people: int, epsilon: float, seed: int) -> dict[str, Any]:
    """The true gains of one policy with several limits, and the model's interval of its whole advice."""
    key = jr.fold_in(jr.fold_in(jr.key(seed), zlib.crc32(name.encode())), people)
    keys, budget, held_out = jr.split(key, 8), privrl.Central(epsilon=epsilon, delta=DELTA), round(HELD_OUT * people)
    world, env = WORLDS[name], WORLDS[name].env
    stays = dataclasses.replace(sample_logged(env, people, keys[0]), propensities=None)
    held, learnt = (
        jax.tree.map(lambda x, s=s: np.asarray(x)[s], stays) for s in (slice(held_out), slice(held_out, None))
    )
    fitted = privrl.fit(_table(env, learnt), learner_of("auto", world, people), budget, key=keys[1])
    unit = 1.0 if world.public["rewards_at_end"] else float(world.sizes[2])
    evaluator = _evaluator(env, world, fitted, held_out, unit, "recorded", markov=True)
    asked = (_table(env, held), evaluator, evaluator.evaluate, budget)
    found: Evaluation = ask_curator("evaluate", *asked, key=keys[3], unit=None, store=None).found
    true = [assisted_gain(env, found.policy.with_limits(*pair), STAYS, key=keys[6]) for pair in CEILINGS]
    model = found.model_gain
    return {
        "world": name,
        "people": people,
        "epsilon": epsilon,
        "seed": seed,
        "whole": (world.evaluate(fitted.policy).value - world.practice) / unit,
        "true": [one.value / unit for one in true],
        "true_se": true[-1].error / unit,
        "model": None if model is None else [model.lower / unit, model.value / unit],
    }


def _table(env: Any, people: Trajectory) -> Episodes:
    return table_of(env, people)


def _evaluator(
    env: Any, world: Any, fitted: Any, held_out: int, unit: float, assumption: Assumption, *, markov: bool = False
) -> Any:
    if world is None:
        values = jnp.asarray(fitted.report["values"])
        return MeasuredEvaluator(fitted.policy, values, env.horizon, held_out, (0.0, unit), assumption=assumption)
    feature = jnp.asarray(fitted.report["values"]) if "values" in fitted.report else None
    advice, ends = fitted.policy.probabilities, world.public["terminal"]
    settings = {"return_range": (0.0, unit), "assumption": assumption, "markov": markov}
    if "strength" in fitted.report:
        settings["strength"] = jnp.asarray(fitted.report["strength"])
    return Evaluator(*world.sizes, held_out, advice, None, feature, ends, **settings)


def _judge(env: Any, found: Evaluation, unit: float, key: jax.Array) -> dict[str, Any]:
    """What was decided, its bound, and what the compared policy is worth in truth."""
    measured = isinstance(env, AbstractPatients)
    true = env.gain(AssistedActor(found.policy, env.practice)) if measured else None
    true = true or assisted_gain(env, found.policy, STAYS, key=key)
    said = found.gain or found.assisted_gain
    if found.bound is not None and found.bound.basis == "model":
        said = found.model_gain
    return {
        "released": not found.reasons,
        "reasons": [reason.value for reason in found.reasons],
        "limits": [found.policy.max_ratio, found.policy.max_weight],
        "lower": None if found.bound is None else found.bound.lower / unit,
        "interval": None if said is None else [said.low / unit, said.value / unit, said.high / unit],
        "true": true.value / unit,
        "true_se": true.error / unit,
    }


def several(name: str, people: int, epsilon: float, seeds: list[int], ceilings: bool) -> list[dict[str, Any]]:
    """Studies that share their compiled programs."""
    jax.config.update("jax_enable_x64", True)
    return [(ceiling if ceilings else study)(name, people, epsilon, seed) for seed in seeds]


def ceiling_summary(lines: list[dict[str, Any]]) -> Iterator[str]:
    """The share of the whole gain that each pair of limits has in truth, and what the model of the whole says."""
    cells: dict[tuple[int, str], list[dict[str, Any]]] = collections.defaultdict(list)
    for line in lines:
        cells[line["people"], line["world"]].append(line)
    names = [f"{ratio:g}/{weight:g}" for ratio, weight in CEILINGS[:-1]]
    yield f"| people | {' | '.join(names)} | supported advice | worlds |"
    yield f"|---:|{'---:|' * (len(CEILINGS) + 1)}"
    for people in sorted({n for n, _ in cells}):
        helped = [found for (n, _), found in cells.items() if n == people and _mean(found, "whole") > 0.0]
        every = [line for found in helped for line in found]
        whole = sum(line["whole"] for line in every)
        shares = [sum(line["true"][j] for line in every) / whole for j in range(len(CEILINGS))]
        yield f"| {people:,} | {' | '.join(f'{share:.0%}' for share in shares)} | {len(helped)} |"
    yield ""
    yield "| world | people | studies | supported advice | model: value | model: lower bound | above 0 | bound holds |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for (people, world), found in sorted(cells.items(), key=lambda cell: cell[0][::-1]):
        made = [line for line in found if line["model"] is not None]
        true = f"{np.mean([line['true'][-1] for line in found]):+.4f}"
        said = [f"{np.mean([line['model'][j] for line in made]):+.4f}" if made else "" for j in (1, 0)]
        above = sum(line["model"][0] > 0.0 for line in made)
        holds = sum(line["model"][0] <= line["true"][-1] + 2 * line["true_se"] for line in made)
        row = (f"`{world}`", f"{people:,}", f"{len(found)}", true, *said, f"{above} of {len(found)}")
        yield f"| {' | '.join(row)} | {holds} of {len(made)} |"


def summary(lines: list[dict[str, Any]]) -> Iterator[str]:
    """The shares of the gain that are released, losses, and how often intervals hold the truth."""
    cells: dict[tuple[str, int], list[dict[str, Any]]] = collections.defaultdict(list)
    for line in lines:
        cells[line["world"], line["people"]].append(line)
    yield "| mode | people | share of the gain released | in worlds of states | target |"
    yield "|---|---:|---:|---:|---:|"
    for mode in MODES:
        for people in sorted({people for _, people in cells}):
            target = TARGETS.get((mode, people))
            shares = (_share(cells, mode, people, states_only=only) for only in (False, True))
            row = (mode, f"{people:,}", *(f"{one:.0%}" for one in shares), "" if target is None else f"{target:.0%}")
            yield f"| {' | '.join(row)} |"
    for what, cell in (("released", _gain), ("bound holds", _coverage)):
        yield ""
        yield f"| world | people | studies | whole advice | {' | '.join(f'{mode}: {what}' for mode in MODES)} |"
        yield f"|---|---:|---:|---:|{'---:|' * len(MODES)}"
        for (world, people), found in sorted(cells.items()):
            name, whole = f"`{world}`{'*' if world in SEEN else ''}", f"{_mean(found, 'whole'):+.4f}"
            told = (cell(found, mode) if mode in found[0] else "" for mode in MODES)
            yield f"| {' | '.join((name, f'{people:,}', f'{len(found)}', whole, *told))} |"
    yield ""
    yield (
        "The first of these tables has the mean gain of what was released, its standard error, and the number of "
        "studies that released something. The second counts lower bounds that are below the true gain of the policy "
        "that they are about, among studies with a bound. An asterisk marks worlds on which earlier constants were "
        "chosen."
    )


def _share(cells: dict[tuple[str, int], list[dict[str, Any]]], mode: str, people: int, *, states_only: bool) -> float:
    """Gains released over gains of the whole advice, in worlds where it helps; every world counts once."""
    helped = [
        found
        for (world, n), found in cells.items()
        if n == people and _mean(found, "whole") > 0.0 and not (states_only and world in MEASURED)
    ]
    whole = sum(_mean(found, "whole") for found in helped)
    return sum(float(_gains(found, mode).mean()) for found in helped) / whole if whole else math.nan


def _gain(found: list[dict[str, Any]], mode: str) -> str:
    gains, given = _gains(found, mode), sum(line[mode]["released"] for line in found)
    if not given:
        return "none"
    error = gains.std(ddof=1) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
    harm = " **loss**" if gains.mean() < -0.002 - 2.0 * np.nan_to_num(error) else ""
    return f"{gains.mean():+.4f} +- {error:.4f} ({given}){harm}"


def _gains(found: list[dict[str, Any]], mode: str) -> np.ndarray:
    """The true gains of what was released; 0 if nothing was, or if this mode does not apply to the world."""
    return np.array([line[mode]["true"] if mode in line and line[mode]["released"] else 0.0 for line in found])


def _mean(found: list[dict[str, Any]], name: str) -> float:
    return float(np.mean([line[name] for line in found]))


def _coverage(found: list[dict[str, Any]], mode: str) -> str:
    bounds = [
        line[mode] for line in found if mode in line and line[mode]["interval"] and line[mode]["lower"] is not None
    ]
    if not bounds:
        return ""
    return f"{sum(one['lower'] <= one['true'] + 2 * one['true_se'] for one in bounds)} of {len(bounds)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = (*STATES, *MEASURED, *HIDDEN)
    parser.add_argument("--worlds", nargs="+", default=every, choices=every)
    parser.add_argument("--people", nargs="+", type=int, default=[30_000, 100_000])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="lines are appended here; studies that it holds are not repeated")
    parser.add_argument("--ceilings", action="store_true", help="where the gain is lost; worlds of states alone")
    parser.add_argument("--summary", type=Path, help="read such lines and print tables instead")
    given = parser.parse_args()
    if given.summary is not None:
        lines = [json.loads(line) for line in given.summary.read_text().splitlines()]
        sys.stdout.write("\n".join((ceiling_summary if given.ceilings else summary)(lines)) + "\n")
        return
    done = set()
    if given.out is not None and given.out.exists():
        kept = map(json.loads, given.out.read_text().splitlines())
        done = {(one["world"], one["people"], one["epsilon"], one["seed"]) for one in kept}
    jobs = []
    for people in sorted(given.people):
        for name in (name for name in given.worlds if not (given.ceilings and name in MEASURED)):
            seeds = [seed for seed in range(given.seeds) if (name, people, given.epsilon, seed) not in done]
            jobs += [
                (name, people, given.epsilon, seeds[i : i + CHUNK], given.ceilings) for i in range(0, len(seeds), CHUNK)
            ]
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(given.workers, context) as pool:
        for future in concurrent.futures.as_completed([pool.submit(several, *job) for job in jobs]):
            text = "".join(json.dumps(line) + "\n" for line in future.result())
            if given.out is None:
                sys.stdout.write(text)
                sys.stdout.flush()
            else:
                with given.out.open("a") as file:
                    file.write(text)


if __name__ == "__main__":
    main()
