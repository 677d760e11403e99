"""`make bench`: one table of ratios, and what became slower than the ratios that `bench/ratios.json` keeps.

Both sides of a row compute the same numbers; a mismatch stops the run. The exit status is 1 if a row became slower.
"""

import argparse
import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import linprog

import privrl
from bench import audit, functional, local, noise, offline, online, scale, scaling, store
from bench.kept_ratios import FILE, TOLERANCE, Kept
from bench.timing import Row, same, seconds
from privrl.learners.tabular.consistency import consistent_counts
from privrl.mdp.simulation import rollout
from privrl.privacy.accounting.composition import epsilon_of
from privrl.privacy.accounting.events import Event
from privrl.privacy.continual.mechanisms import AbstractContinual, BinaryTree, geometric_schedule
from privrl.privacy.continual.toeplitz import SquareRoot
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import Problem


def gram() -> Row:
    """Feature moments from distinct transitions, against summed outer products over all episodes."""
    env = privrl.envs.SyntheticLinear()
    episodes = env.sample(env.behaviour_policy(), 20_000, jax.random.key(0))
    data = privrl.data.Episodes.from_trajectories(episodes, num_states=env.num_states, num_actions=env.num_actions)
    statistic = privrl.statistics.Gram(env.features, jnp.asarray(3))
    at_step = data.transitions().step == 3
    rows = jax.tree.map(lambda x: jnp.asarray(x[at_step]), data.transitions())  # as `fit` does
    ours = jax.jit(lambda rows: statistic.of_rows(rows))
    phi = np.asarray(env.features.table)[np.asarray(episodes.states)[:, 3], np.asarray(episodes.actions)[:, 3]]
    plain = jax.jit(lambda x: jax.vmap(jnp.outer)(x, x).sum(axis=0))
    same(ours(rows), plain(phi))
    return (
        "Gram matrix, 20,000 episodes: outer products / distinct rows",
        seconds(lambda: plain(phi)),
        seconds(lambda: ours(rows)),
    )


def consistency() -> Row:
    """The consistency step of APVI: linear programmes row by row, against the closed form."""
    rng = np.random.default_rng(0)
    rows, S, half = 50, 30, 4.0
    x, n = rng.normal(3, 4, (rows, S)).clip(0), rng.normal(60, 30, rows).clip(0)
    ours = jax.jit(consistent_counts)

    def plain() -> list[float]:
        bounds = [(0, None)] * (S + 1)
        cost = np.r_[np.zeros(S), 1.0]
        eye = np.eye(S)
        errors = []
        for row, visits in zip(x, n, strict=True):
            A = np.block(
                [[eye, -np.ones((S, 1))], [-eye, -np.ones((S, 1))], [np.r_[np.ones(S), 0]], [np.r_[-np.ones(S), 0]]]
            )
            b = np.r_[row, -row, visits + half, half - visits]
            errors.append(linprog(cost, A, b, bounds=bounds).fun)
        return errors

    same(np.abs(np.asarray(ours(x, n, half)) - x).max(axis=1), plain())
    return (
        "consistency step, 50 rows of 30: linprog / closed form",
        seconds(plain, 1),
        seconds(lambda: ours(x, n, half)),
    )


def flow() -> Row:
    """A block of 100,000 episodes under one policy: one by one, against one multinomial flow."""
    env = privrl.envs.RiverSwim(states=6, horizon=20)
    policy = env.uniform_policy()
    keys = jax.random.split(jax.random.key(0), 100_000)
    plain = jax.jit(jax.vmap(lambda key: rollout(env.mdp, policy, key).states))
    ours = jax.jit(lambda key: env.flow(policy, 100_000, key))
    return (
        "block of 100,000 episodes: rollouts / flow",
        seconds(lambda: plain(keys), 2),
        seconds(lambda: ours(jax.random.key(1))),
    )


def scheduled(episodes: int = 100_000) -> Row:
    """A whole scheduled run: people one by one, against flows. The same distribution; before the first release the same
    loss.
    """
    env = privrl.envs.SyntheticLinear()
    recipe = get("dp-lsvi-ucb")
    learner, private = recipe.learner(Problem.of(env)), recipe.privatizer(epsilon=10.0, delta=1e-5)

    def run(flow: bool) -> Any:
        return privrl.run(env, learner, private, episodes=episodes, key=jax.random.key(0), flow=flow).block_regret

    same(run(flow=True)[:, 0], run(flow=False)[:, 0])
    return (
        f"dp-lsvi-ucb, {episodes:,} episodes: one by one / flow",
        seconds(lambda: run(flow=False), 1),
        seconds(lambda: run(flow=True), 3),
    )


def seeds() -> Row:
    """Twenty seeds of an online run: one after another, against together."""
    env = privrl.envs.RiverSwim(states=3)
    learner = get("ldp-ucbvi").learner(Problem.of(env))

    def together(number: int) -> Any:
        key = jax.random.key(number)
        return privrl.run(env, learner, privrl.Local(epsilon=1.0), episodes=2_000, seeds=20, key=key)

    def apart() -> list[Any]:
        key = jax.random.key(0)
        run = privrl.run
        return [run(env, learner, privrl.Local(epsilon=1.0), episodes=2_000, seeds=1, key=key) for _ in range(20)]

    return "20 seeds of 2,000 users: one by one / together", seconds(apart, 2), seconds(lambda: together(0), 2)


def programs(number: int = 512) -> Row:
    """Many seeds of an online run: in one program, against the programs that `run` cuts them into on this device."""
    env = privrl.envs.SyntheticLinear(horizon=5)
    learner, private = online.agent(env), privrl.Central(rho=1.0, continual="fresh")

    def run(seeds_per_program: int | None) -> Any:
        how = {"episodes": 50, "seeds": number, "seeds_per_program": seeds_per_program}
        return privrl.run(env, learner, private, key=jax.random.key(0), **how).total_regret

    same(run(number), run(None))
    return (
        f"{number} seeds of 50 private plans: in one program / as `run` cuts them",
        seconds(lambda: run(number), 2),
        seconds(lambda: run(None), 2),
    )


def accountant() -> Row:
    """Epsilon of 1,000 Gaussian releases: by loss distributions, against the exact formula."""
    from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    event = SelfComposedDpEvent(GaussianDpEvent(50.0), 1_000)
    ours = [Event("sums", "gaussian", 1 / 50.0, 1_000)]
    same(PLDAccountant().compose(event).get_epsilon(1e-6), epsilon_of(ours, 1e-6), 1e-4)
    return (
        "epsilon of 1,000 releases: loss distribution / exact",
        seconds(lambda: PLDAccountant().compose(event).get_epsilon(1e-6), 2),
        seconds(lambda: epsilon_of(ours, 1e-6)),
    )


def continual() -> Row:
    """Not time but error: mean squared error of the plain tree over that of square-root blocks, 4,095 prefixes."""
    blocks = len(geometric_schedule(4_095, 1.15))

    def error(scheme: AbstractContinual) -> float:
        return scheme.factor**2 * float(scheme.variance(jnp.arange(scheme.steps)).mean())

    tree, root = error(BinaryTree(4_095)), error(SquareRoot(blocks))
    return "error of running sums, 4,095 users: tree / square root on blocks", tree, root


def rows() -> Iterator[Row]:
    yield from online.rows()
    yield scheduled()
    yield from offline.rows()
    for row in (gram, consistency, flow, seeds, programs, accountant, continual):
        yield row()
    yield from (local.report_time(), local.report_bytes())
    yield from (noise.against_philox(), noise.against_laplace(), noise.against_opendp(), store.contributions())
    yield from (audit.trials(), functional.training())
    yield from scale.rows()


def main(*, as_json: bool = False, keep: bool = False) -> None:
    """Prints the table, how costs grow and what became slower.

    Arguments:
        as_json: print one JSON object with the same on standard output, and the rest on standard error.
        keep: keep the measured ratios in the repository instead of comparing with those that are kept.

    Raises:
        SystemExit: if a row became slower than its kept ratio, with status 1.
    """
    say = functools.partial(print, file=sys.stderr if as_json else sys.stdout, flush=True)
    measured = []
    for name, plain, ours in rows():
        print(f"{name}: {plain / ours:.1f}", file=sys.stderr, flush=True)
        measured.append({"what": name, "plain": plain, "privrl": ours, "ratio": plain / ours})
    table = Table(title="privrl, ratios in one run (more is better; seconds unless a row says otherwise)")
    for column in ("what: plain / privrl", "plain", "privrl", "ratio"):
        table.add_column(column, justify="left" if column.startswith("what") else "right")
    for row in measured:
        table.add_row(
            str(row["what"]), *(f"{row[column]:.4g}" for column in ("plain", "privrl")), f"{row['ratio']:.1f}"
        )
    Console(width=130, stderr=as_json).print(table)
    with contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):
        noise.timing()
    growth = []
    for line in scaling.lines():
        say(line)
        growth.append(line)
    ratios = {str(row["what"]): float(row["ratio"]) for row in measured}
    slower = [] if keep else list(compared(ratios, say))
    if keep:
        Kept(TOLERANCE, ratios).write()
        say(f"{len(ratios)} ratios are now kept in {FILE}.")
    if as_json:
        print(json.dumps({"rows": measured, "growth": growth, "slower": slower}))
    if slower:
        raise SystemExit(1)


def compared(ratios: Mapping[str, float], say: Callable[[str], None]) -> Iterator[str]:
    """Prints how the ratios compare with those that are kept; the lines that make the run fail."""
    kept = Kept.from_file()
    for line in kept.new(ratios):
        say(line)
    slower = list(kept.slower(ratios))
    for line in slower:
        say(line)
    verdict = f"{len(slower)} rows became slower" if slower else "Nothing became slower"
    say(f"{verdict}: {len(kept.ratios)} kept ratios, each of which may fall by a factor of {kept.tolerance:g}.")
    if slower:
        say("Other work slows the two sides of a row differently: measure again on an idle machine first.")
    yield from slower


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench", description="Ratios against plain renderings.")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.add_argument("--keep", action="store_true", help=f"write the measured ratios to {FILE.name}")
    given = parser.parse_args()
    main(as_json=given.json, keep=given.keep)
