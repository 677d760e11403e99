"""Fits and statistics of people at rest: from their distinct transitions, against loops over everybody as written.

`python -m bench.offline` prints the rows. Our side starts from the same arrays: checking them and finding their
distinct transitions is part of its time.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import privrl
from bench.as_written import People, apvi, counts, vapvi
from bench.timing import Row, exponent, once, same, seconds
from privrl.learners.linear.vapvi import VAPVI
from privrl.learners.tabular.apvi import APVI
from privrl.mdp.types import Trajectory
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import Problem
from privrl.statistics.counts import TransitionCounts


def sampled(env: Any, episodes: int, seed: int = 0) -> People:
    """People who acted on the behaviour policy."""
    table = env.sample(env.behaviour_policy(), episodes, jax.random.key(seed))
    return People(*(np.asarray(x) for x in (table.states, table.actions, table.rewards, table.next_states)))


def dataset(env: Any, people: People) -> privrl.data.Episodes:
    """The same people as privrl takes them in."""
    n, H = people.states.shape
    table = Trajectory(people.states, people.actions, people.rewards, people.next_states, np.full(n, H))
    return privrl.data.Episodes.from_trajectories(table, num_states=env.num_states, num_actions=env.num_actions)


def fitted(env: Any, people: People, learner: Any) -> np.ndarray:
    """privrl's policy, without noise."""
    return np.asarray(privrl.fit(dataset(env, people), learner, privrl.NonPrivate()).policy.probabilities)


def variance_aware(episodes: int = 20_000) -> Row:
    """VAPVI: five sums per step, each over everybody, against the same sums over distinct transitions."""
    env = privrl.envs.SyntheticLinear()
    people, learner = sampled(env, episodes), VAPVI(env.features, env.horizon, calibration="paper")
    pi, plain = once(lambda: vapvi(people, np.asarray(env.features.table), learner.bonus, learner.ridge), 1)
    same(pi, fitted(env, people, learner))
    return f"VAPVI, {episodes:,} episodes: loops as written / fit", plain, fit_time(env, people, learner)


def pessimistic_counts(episodes: int = 100_000) -> Row:
    """APVI: counts one transition at a time and all (s, a) one by one, against the fit."""
    env = privrl.envs.RiverSwim(states=6, horizon=20)
    people = sampled(env, episodes)
    learner = APVI(env.num_states, env.num_actions, env.horizon, rewards=env.rewards, calibration="paper")
    pi, plain = once(lambda: apvi(people, np.asarray(env.rewards), learner.failure), 1)
    same(pi, fitted(env, people, learner))
    return f"APVI, {episodes:,} episodes: loops as written / fit", plain, fit_time(env, people, learner)


def fit_time(env: Any, people: People, learner: Any) -> float:
    """Seconds of a fit, from arrays to policy."""
    return seconds(lambda: fitted(env, people, learner), 3)


def histograms(episodes: int = 20_000) -> Iterator[Row]:
    """n(h, s, a, s') of a table: a Python loop and `np.add.at`, against the statistic of distinct transitions.

    The first row has everything in it: the table is checked and its distinct transitions are found. A dataset does that
    once, whatever is asked of it afterwards; the second row is one such query.
    """
    env = privrl.envs.SyntheticLinear()
    people, (S, A, H) = sampled(env, episodes), (env.num_states, env.num_actions, env.horizon)
    statistic = TransitionCounts(S, A, H)
    of_rows = jax.jit(lambda rows: statistic.of_rows(rows))
    data = dataset(env, people)

    def added() -> np.ndarray:
        table = np.zeros((H, S, A, S))
        steps = np.broadcast_to(np.arange(H), people.states.shape)
        np.add.at(table, (steps, people.states, people.actions, people.next_states), 1.0)
        return table

    looped, loop = once(lambda: counts(people, S, A), 1)
    same(looped, of_rows(data.transitions()))
    same(looped, added())
    whole = seconds(lambda: of_rows(dataset(env, people).transitions()), 3)
    asked, what = seconds(lambda: of_rows(data.transitions())), f"counts of {episodes:,} episodes"
    yield f"{what}: Python loop / table checked, compressed, counted", loop, whole
    yield f"{what}: np.add.at / one query to a dataset", once(added, 3)[1], asked
    yield f"{what}: np.add.at / table checked, compressed, counted", once(added, 3)[1], whole


def fit_growth(sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000)) -> tuple[float, dict[int, float]]:
    """How the time of a private `fit` grows with the rows of the table (20 per episode), and that time."""
    env = privrl.envs.SyntheticLinear()
    everybody = sampled(env, sizes[-1] // env.horizon)
    recipe = get("dp-vapvi")
    learner, private = recipe.learner(Problem.of(env)), recipe.privatizer(rho=1.0)

    def taken(size: int) -> float:
        some = People(*(x[: size // env.horizon] for x in everybody))
        return seconds(lambda: privrl.fit(dataset(env, some), learner, private, key=jax.random.key(1)).policy, 2)

    cost = {size: taken(size) for size in sizes}
    return exponent(cost), cost


def rows() -> Iterator[Row]:
    yield variance_aware()
    yield pessimistic_counts()
    yield from histograms()


def main() -> None:
    for name, plain, ours in rows():
        print(f"{name}: {plain:.4g} s / {ours:.4g} s = {plain / ours:.1f}", flush=True)
    power, cost = fit_growth()
    print(f"time of `fit`: grows like rows^{power:+.3f}; {cost}")


if __name__ == "__main__":
    main()
