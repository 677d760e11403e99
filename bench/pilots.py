"""`python -m bench.pilots`: operating characteristics of pilots, and what a pilot makes of a learnt policy.

Every trial is simulated by `privrl.run`. Rows state error rates without an effect, power, coverage of the repeated
intervals at all looks together, and the same under a ramp, drift and missing records; and the errors of two wrong
estimates on the same data. "From table to use" learns policies from tables and takes each through pilots.

    python -m bench.pilots --workers 16 --out docs/evidence/pilots.md
    python -m bench.pilots --trials 200 --policies 1 --pilots 5 --only ramp
"""

import argparse
import dataclasses
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import privrl
from privrl.envs.zoo.catalogue import WORLDS
from privrl.learners.trials.protocol import Arm, Outcome, Phase, Protocol
from privrl.studies.simulation.pilot_world import PilotWorld, characterise

PRACTICE = (0.03, 0.1, 0.5, 0.9, 0.97)
BETTER, WORSE = 0.025, 0.05
_PROGRAM = 2_000  # trials compiled together
_TO_USE = {"icu-sepsis": 0.65, "endings-150x8": 0.85, "severity-108": None}
RAMP = (0.1, 0.25, 0.5, 0.5)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One simulated setting: means of the arms, and what else happens."""

    section: str
    protocol: Protocol
    means: tuple[float, ...]
    note: str = ""
    drift: float = 0.0
    missing: tuple[tuple[float, float], ...] | None = None
    expected: float | None = None  # the power in the table of the derivation


def pilot(people: int, epsilon: float, *, arms: int = 2, looks: int = 20, shares: Sequence[float] = ()) -> Protocol:
    """A protocol with equal blocks; `shares` are those of the policy in equal phases."""
    names = (Arm("practice"), *(Arm(f"policy {i}") for i in range(1, arms)))
    phases = tuple(Phase(1 + i * looks // len(shares), (1 - s, s)) for i, s in enumerate(shares))
    return Protocol("pilot", people, names, Outcome("outcome"), epsilon, 1e-6, looks=looks, phases=phases)


def cells() -> Iterator[Cell]:
    """All settings of the evidence page."""
    for people in (400, 1_000, 4_000):
        for epsilon in (0.3, 1.0, math.inf):
            for practice in PRACTICE:
                yield Cell("error rates", pilot(people, epsilon), (practice, practice))
    table = [
        (2_000, 0.3, 0.692, 0.047, 0.20),
        (2_000, 1.0, 0.692, 0.047, 0.49),
        (2_000, 3.0, 0.692, 0.047, 0.59),
        (2_000, math.inf, 0.692, 0.047, 0.61),
        (5_000, 0.3, 0.692, 0.047, 0.65),
        (5_000, 1.0, 0.692, 0.047, 0.92),
        (5_000, 3.0, 0.692, 0.047, 0.94),
        (5_000, math.inf, 0.692, 0.047, 0.95),
        (5_000, 1.0, 0.692, 0.036, 0.72),
        (6_000, 1.0, 0.692, 0.036, 0.81),
        (1_100, 1.0, 0.625, 0.1, 0.79),
        (1_400, 1.0, 0.625, 0.1, 0.90),
        (2_000, 1.0, 0.625, 0.25, 1.00),
    ]
    for people, epsilon, practice, gain, power in table:
        yield Cell("power", pilot(people, epsilon), (practice, practice + gain), expected=power)
    ramp, tenth = pilot(4_000, 1.0, shares=RAMP), pilot(4_000, 1.0, shares=(0.1,))
    yield Cell("ramp", ramp, (0.5, 0.5), "10/25/50/50%")
    yield Cell("ramp", ramp, (0.5, 0.5), "10/25/50/50%, practice drifts by .2", drift=0.2)
    yield Cell("ramp", pilot(4_000, 1.0), (0.5, 0.5), "equal arms, practice drifts by .2", drift=0.2)
    yield Cell("ramp", pilot(5_000, 1.0, shares=RAMP), (0.692, 0.739), "10/25/50/50%, gain .047", expected=0.63)
    yield Cell("coverage", tenth, (0.95, 0.75), "10% in the policy's arm, gain -.2")
    yield Cell("coverage", tenth, (0.5, 0.5), "10% in the policy's arm, no gain")
    yield Cell("coverage", pilot(1_000, 1.0), (0.9, 0.7), "equal arms, gain -.2")
    # Equal under the estimand: what is missing counts as low, so (1 - rate if high) * mean is .5 in both arms.
    unequal = ((0.1, 1 / 6), (0.5, 0.2))
    yield Cell("missing", pilot(4_000, 1.0), (0.6, 0.625), "more often missing in the policy's arm", missing=unequal)
    fifth = ((0.2, 0.2), (0.2, 0.2))
    yield Cell(
        "missing", pilot(5_000, 1.0), (0.692, 0.739), "a fifth at random, gain .047", missing=fifth, expected=0.7
    )
    yield Cell("several policies", pilot(4_000, 1.0, arms=3), (0.5, 0.5, 0.5), "no gain of either")
    yield Cell("several policies", pilot(4_000, 1.0, arms=3), (0.5, 0.5, 0.3), "the second is worse by .2, and closed")


def simulate(cell: Cell, trials: int, key: int = 0) -> dict[str, Any]:
    """The shares of trials with each verdict, the mean number of people, and coverage at all looks together."""
    protocol = cell.protocol
    world = PilotWorld.binary(protocol, cell.means, drift=cell.drift, missing=cell.missing)
    run = privrl.run(
        world,
        privrl.Trial(protocol),
        protocol.privatizer,
        episodes=protocol.people,
        seeds=trials,
        key=key,
        seeds_per_program=min(_PROGRAM, trials),
    )
    means = np.asarray(world.means())
    found = characterise(protocol, run.policy, (means[1:] - means[0]).tolist())
    return {
        "better": sum(found.better),
        "worse": found.worse[1],
        "people": found.people,
        "covered": found.covered,
        "agree": found.agree,
    }


def wrong_estimates(trials: int, seed: int = 0) -> dict[str, float]:
    """How often |z| of two wrong estimates exceeds 1.96 at the last look, without an effect: means pooled over a ramp
    while practice drifts from .5 to .7, and sums divided by the number received, with the missing records above."""
    rng = np.random.default_rng(seed)
    n, blocks = 4_000, 20
    share = np.repeat(RAMP, blocks // len(RAMP))
    rate = 0.5 + 0.2 * (np.arange(blocks) + 0.5) / blocks
    treated = rng.binomial(n // blocks, share, (trials, blocks))
    numbers = np.stack([n // blocks - treated, treated], axis=1)
    pooled = _z(rng.binomial(numbers, rate).sum(axis=-1), numbers.sum(axis=-1))
    assigned = np.full((trials, 2), n // 2)
    high = rng.binomial(assigned, [0.6, 0.625])
    kept, low = rng.binomial(high, [1 - 1 / 6, 0.8]), rng.binomial(assigned - high, [0.9, 0.5])
    return {
        "pooled": float((np.abs(pooled) > 1.96).mean()),
        "received": float((np.abs(_z(kept, kept + low)) > 1.96).mean()),
        "assigned": float((np.abs(_z(kept, assigned)) > 1.96).mean()),
    }


def _z(successes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    m = successes / numbers
    return (m[:, 1] - m[:, 0]) / np.sqrt((m * (1 - m) / numbers).sum(axis=1))


def to_use(world: str, seed: int, pilots: int, people: int = 30_000) -> dict[str, Any]:
    """Learns a policy from a table and takes it through pilots of 5,000 people; values in units of the outcome."""
    found = WORLDS[world]
    table, noise, outcomes, arms = jax.random.split(jax.random.fold_in(jax.random.key(seed), 31), 4)
    from bench.zoo import learner_of
    from privrl.studies.simulation.sampled_tables import sampled

    learnt = privrl.fit(
        sampled(found.env, people, table),
        learner_of("auto", found, people),
        privrl.Central(epsilon=1.0, delta=1e-6),
        key=noise,
    )
    top = 1.0 if found.public["rewards_at_end"] else float(found.sizes[2])
    protocol = dataclasses.replace(pilot(5_000, 1.0), outcome=Outcome("return", 0.0, top))
    simulated = PilotWorld.from_world(protocol, found.env, [learnt.policy], outcomes)
    run = privrl.run(simulated, privrl.Trial(protocol), protocol.privatizer, episodes=5_000, seeds=pilots, key=arms)
    practice, advice = (float(found.env.value(p)) for p in (found.env.behaviour_policy(), learnt.policy))
    serving = np.asarray(run.policy.serving)
    return {
        "world": world,
        "seed": seed,
        "gain": advice - practice,
        "adopted": float((serving == 1).mean()),
        "stopped": float((np.asarray(run.policy.closed)[:, 1] > 0).mean()),
        "people": float(protocol.ends[np.asarray(run.policy.ended) - 1].mean()),
    }


def _task(task: tuple[str, Any, int]) -> Any:
    kind, what, size = task
    started = time.process_time()
    if kind == "cells":
        found = [(cell, simulate(cell, size, key=number)) for number, cell in enumerate(what)]
    elif kind == "to use":
        found = to_use(*what, size)
    else:
        found = wrong_estimates(size)
    return kind, found, time.process_time() - started


def tasks(trials: int, policies: int, pilots: int, only: str) -> list[tuple[str, Any, int]]:
    """Independent tasks: the cells of one protocol together, because they share a compiled program."""
    by_protocol: dict[Protocol, list[Cell]] = {}
    for cell in cells():
        if only in cell.section:
            by_protocol.setdefault(cell.protocol, []).append(cell)
    found: list[tuple[str, Any, int]] = [("cells", own, trials) for own in by_protocol.values()]
    if only in "wrong estimates":
        found.append(("wrong", None, trials))
    if only in "to use":
        found = [("to use", (world, seed), pilots) for world in _TO_USE for seed in range(policies)] + found
    return found


def page(results: list[tuple[str, Any, float]], trials: int, pilots: int, command: str) -> str:
    """The evidence page."""
    rows: dict[str, list[tuple[Cell, dict[str, Any]]]] = {}
    for kind, found, _ in results:
        if kind == "cells":
            for cell, measured in found:
                rows.setdefault(cell.section, []).append((cell, measured))
    three = {rate: rate + 3 * math.sqrt(rate * (1 - rate) / trials) for rate in (BETTER, WORSE)}
    least = 0.925 - 3 * math.sqrt(0.925 * 0.075 / trials)
    every = [(cell, measured) for section in rows.values() for cell, measured in section]
    seconds = sum(spent for *_, spent in results)
    lines = [
        "# Pilots: error rates, power, coverage, and what a pilot makes of a learnt policy",
        "",
        f"Printed by `{command}` ({seconds / 60:.0f} minutes of one core). Outcomes are 0 or 1, there are 20 looks,",
        f"delta is 1e-6, people are randomised one by one, and a row has {trials:,} trials unless it says otherwise.",
        "[Randomised trials](../proofs/trials.md) derives the mechanism, the estimate and the boundaries.",
        "",
    ]
    if section := rows.get("error rates"):
        lines += [
            "## Error rates",
            "Shares of trials without an effect that end with a verdict. The nominal rates are .025 and .05; three",
            f'standard errors above them are {three[BETTER]:.4f} and {three[WORSE]:.4f}. "Covered" is the share of',
            "trials in which the repeated intervals hold at all looks together; .925 less three standard errors is",
            f"{least:.4f}.",
            "",
            "| people | epsilon | practice | better | worse | covered |",
            "|---:|---:|---:|---:|---:|---:|",
        ]
        for cell, found in sorted(
            section, key=lambda row: (row[0].protocol.people, row[0].protocol.epsilon, row[0].means)
        ):
            lines.append(f"| {cell.protocol.people:,} | {_epsilon(cell)} | {cell.means[0]:g} | {_rates(found)} |")
        lines.append("")
    if section := rows.get("power"):
        lines += [
            "## Power",
            '"Derived" is the power of a prototype that the design started from.',
            "",
            "| practice | gain | people | epsilon | better | derived | worse | mean people | covered |",
            "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for cell, found in section:
            gain = cell.means[1] - cell.means[0]
            setting = f"{cell.means[0]:g} | {gain:+.3f} | {cell.protocol.people:,} | {_epsilon(cell)}"
            verdicts = f"{found['better']:.3f} | {cell.expected:.2f} | {found['worse']:.4f}"
            lines.append(f"| {setting} | {verdicts} | {found['people']:,.0f} | {found['covered']:.4f} |")
        lines.append("")
    titles = {
        "ramp": "Ramps and drift",
        "coverage": "Coverage with unequal arms",
        "missing": "Missing records",
        "several policies": "Several policies",
    }
    for name, title in titles.items():
        if section := rows.get(name):
            lines += [
                f"## {title}",
                "",
                "| setting | people | means | better | worse | covered |",
                "|---|---:|---|---:|---:|---:|",
            ]
            for cell, found in section:
                means = " / ".join(f"{m:g}" for m in cell.means)
                note = cell.note if cell.expected is None else f"{cell.note} (derived: {cell.expected:.2f} better)"
                lines.append(f"| {note} | {cell.protocol.people:,} | {means} | {_rates(found)} |")
            lines.append("")
    for kind, found, _ in results:
        if kind == "wrong":
            lines += [
                "## Two wrong estimates",
                "How often |z| exceeds 1.96 at the last of 4,000 people, without privacy noise and without an effect.",
                f"Means pooled over the ramp above while practice drifts from .5 to .7: {found['pooled']:.3f}. Sums",
                f"divided by the number received, with the unequal missing records above: {found['received']:.3f}; by",
                f"the number assigned: {found['assigned']:.3f}.",
                "",
            ]
    used = [found for kind, found, _ in results if kind == "to use"]
    if used:
        lines += [
            "## From table to use",
            f"`auto` learns the whole advice from 30,000 people at epsilon 1. Each policy goes through {pilots} pilots",
            'of at most 5,000 people at epsilon 1. Gains are over practice, in units of the outcome; "in use" is the',
            'mean gain of the policy that is served after the pilot, and "share" is that of the gain of the advice.',
            "",
            "| world | policies | gain of the advice | adopted | stopped as worse | in use | share | mean people |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for world in _TO_USE:
            some = [found for found in used if found["world"] == world]
            if some:
                gain, use = (np.mean([f["gain"] * (1 if k else f["adopted"]) for f in some]) for k in (1, 0))
                adopted, stopped, people = (np.mean([f[k] for f in some]) for k in ("adopted", "stopped", "people"))
                share = f"{use / gain:.0%}" if gain > 0 else ""
                rates = f"{adopted:.3f} | {stopped:.3f} | {use:+.4f} | {share} | {people:,.0f}"
                lines.append(f"| `{world}` | {len(some)} | {gain:+.3f} | {rates} |")
        harmful = [f for f in used if f["gain"] <= 0]
        if harmful:
            rate = np.mean([f["adopted"] for f in harmful])
            lines += [
                "",
                f"Advice that is not better ({len(harmful)} policies) was adopted in {rate:.4f} of its pilots.",
            ]
        lines.append("")
    held = check(every, used, trials, pilots)
    lines += ["## Held to", *(f"- {'Holds' if fine else '**Fails**'}: {what}" for what, fine in held), ""]
    return "\n".join(lines)


def check(
    every: list[tuple[Cell, dict[str, Any]]], used: list[dict[str, Any]], trials: int, pilots: int
) -> list[tuple[str, bool]]:
    """What the page must show, and whether it does."""

    def above(rate: float) -> float:
        return rate + 3 * math.sqrt(rate * (1 - rate) / trials)

    def truth(cell: Cell) -> tuple[float, ...]:
        rates = cell.missing or ((0.0, 0.0),) * len(cell.means)
        return tuple(m * (1 - r[1]) for m, r in zip(cell.means, rates, strict=True))

    null = [(cell, found) for cell, found in every if all(abs(m - truth(cell)[0]) < 1e-9 for m in truth(cell))]
    power = [(cell, found) for cell, found in every if cell.expected is not None]
    least = 0.925 - 3 * math.sqrt(0.925 * 0.075 / trials)
    held = []
    if null:
        rates = {"better": BETTER, "worse": WORSE}
        for verdict, rate in rates.items():
            fine = all(found[verdict] <= above(rate) for _, found in null)
            held.append((f'error rates of "{verdict}" at most {rate:g} plus three standard errors', fine))
    if every:
        covered = all(found["covered"] >= least for _, found in every)
        held.append(("intervals hold at all looks together in at least .925 less three standard errors", covered))
        agree = all(found["agree"] for _, found in every)
        held.append(("an interval excludes 0 exactly if there is a verdict", agree))
    if power:
        fine = all(abs(found["better"] - cell.expected) <= 0.03 for cell, found in power if cell.expected is not None)
        held.append(("power within .03 of the derivation in every row that states it", fine))
    for world, share in _TO_USE.items():
        some = [f for f in used if f["world"] == world]
        gain, use = (sum(f["gain"] * (1 if k else f["adopted"]) for f in some) for k in (1, 0))
        if some and share is not None:
            held.append((f"{world}: in use at least {share:.0%} of the whole advice", use >= share * gain))
        elif some:
            rate = float(np.mean([f["adopted"] for f in some]))
            held.append((f"{world}: the whole advice is adopted in at most {BETTER:g} of all pilots", rate <= BETTER))
    harmful = [f for f in used if f["gain"] <= 0]
    if harmful:
        rate = float(np.mean([f["adopted"] for f in harmful]))
        limit = BETTER + 3 * math.sqrt(BETTER * (1 - BETTER) / (pilots * len(harmful)))
        held.append(("advice that is not better is adopted at most as often as the error rate allows", rate <= limit))
    return held


def _epsilon(cell: Cell) -> str:
    return "none" if math.isinf(cell.protocol.epsilon) else f"{cell.protocol.epsilon:g}"


def _rates(found: dict[str, Any]) -> str:
    return f"{found['better']:.4f} | {found['worse']:.4f} | {found['covered']:.4f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pilots", description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--policies", type=int, default=20)
    parser.add_argument("--pilots", type=int, default=25)
    parser.add_argument("--only", default="", help="sections whose name contains this text")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args(arguments)
    command = "python -m bench.pilots" + ("" if given.only == "" else f" --only '{given.only}'")
    work = tasks(given.trials, given.policies, given.pilots, given.only)
    results = []

    def show(number: int) -> None:
        print(f"{number} of {len(work)} tasks", file=sys.stderr, flush=True)

    if given.workers == 1:
        for number, task in enumerate(work, 1):
            results.append(_task(task))
            show(number)
    else:
        os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
            for number, result in enumerate(pool.imap(_task, work), 1):
                results.append(result)
                show(number)
    text = page(results, given.trials, given.pilots, command)
    if given.out is None:
        print(text)
    else:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
