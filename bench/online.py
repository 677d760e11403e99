"""Per-episode LSVI-UCB: compiled and together, against NumPy as the paper is written and as a careful person writes it.

`python -m bench.online` prints the rows. All sides learn from the same people with the same luck, and must agree.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import privrl
from bench.as_written import People, greedy, lsvi_ucb
from bench.timing import Row, once, same, seconds
from privrl.learners.linear.lsvi_ucb_unweighted import PerEpisodeLSVIUCB
from privrl.mdp.types import Trajectory
from privrl.studies.loop import Queries, State, planned, publish
from privrl.studies.simulation.simulated_loop import SimulationKeys
from privrl.studies.study import Study

EPISODES = 100


def agent(env: Any) -> PerEpisodeLSVIUCB:
    """LSVI-UCB as published: a plan after every episode from everybody so far, no weights, no memory of old values."""
    return PerEpisodeLSVIUCB(env.features, env.horizon, rewards=env.rewards)


def luck(env: Any, episodes: int, key: jax.Array) -> np.ndarray:
    """The uniform numbers with which a seed of the simulation draws first states, actions and next states."""
    keys = SimulationKeys.of(key)
    draw = jax.vmap(lambda k: jax.random.uniform(keys.person(k, k), (env.horizon + 1, 2)))
    return np.asarray(draw(np.arange(episodes)))


def careful(env: Any, learner: PerEpisodeLSVIUCB, coins: np.ndarray) -> tuple[float, People]:
    """Total regret of one seed in careful NumPy, given its luck, and whom it met.

    It keeps its sums, inverts with LAPACK and handles all (s, a) at once.
    """
    phi, r = np.asarray(env.features.table), np.asarray(env.rewards)
    P, initial = np.asarray(env.mdp.transition), np.asarray(env.mdp.initial)
    (S, A, d), H = phi.shape, env.horizon
    x, beta, ridge = phi.reshape(-1, d), float(learner.bonus), float(learner.ridge)
    Lambda, M = np.tile(ridge * np.eye(d), (H, 1, 1)), np.zeros((H, d, S))
    Q = np.repeat((H - np.arange(H, dtype=float))[:, None, None], S * A, axis=1).reshape(H, S, A)
    episodes, best, total = len(coins), float(env.optimal_value), 0.0
    people = People(*(np.zeros((episodes, H), kind) for kind in (int, int, float, int)))
    for k in range(episodes):
        if k > 0:
            V = np.zeros(S)
            for h in reversed(range(H)):
                inverse = np.linalg.inv(Lambda[h])
                norms = np.sqrt(np.einsum("ni,ij,nj->n", x, inverse, x))
                new = r[min(h, len(r) - 1)] + (x @ (inverse @ (M[h] @ V)) + beta * norms).reshape(S, A)
                Q[h] = np.clip(new, 0.0, H - h)
                V = Q[h].max(axis=1)
        pi = greedy(Q)
        V = np.zeros(S)
        for h in reversed(range(H)):
            g = min(h, len(P) - 1)
            V = (pi[h] * (r[min(h, len(r) - 1)] + P[g] @ V)).sum(axis=1)
        total += best - float(initial @ V)
        s = _pick(initial, coins[k, 0, 0])
        for h in range(H):
            a = _pick(pi[h, s], coins[k, h + 1, 0])
            after = _pick(P[min(h, len(P) - 1), s, a], coins[k, h + 1, 1])
            Lambda[h] += np.outer(phi[s, a], phi[s, a])
            M[h, :, after] += phi[s, a]
            for column, value in zip(people, (s, a, r[min(h, len(r) - 1), s, a], after), strict=True):
                column[k, h] = value
            s = after
    return total, people


def _pick(p: np.ndarray, u: float) -> int:
    cumulative = np.cumsum(p)
    return int(np.argmax((p > 0) & (cumulative > u * cumulative[-1])))


def action_values(learner: PerEpisodeLSVIUCB, people: People) -> np.ndarray:
    """privrl's action values after these people, without noise: one plan of the learner itself."""
    channels = Study.online(learner, privrl.NonPrivate(), 1).channels()
    n, H = people.states.shape
    states, actions, rewards, next_states = (jnp.asarray(column) for column in people)
    records = Trajectory(states, actions, rewards, next_states, jnp.full(n, H))
    totals = {name: channel.statistic.total(records, None) for name, channel in channels.items()}
    silent = {name: jnp.zeros(channel.statistic.shape) for name, channel in channels.items()}
    state = publish(channels, State.first(learner, channels), totals, 0, lambda name: lambda i: silent[name])
    queries = Queries(channels, state.kept, lambda name: lambda i: silent[name])
    return np.asarray(planned(learner, state, jnp.asarray(n), queries)[0].memory.optimistic)


def rows(env: Any = None, episodes: int = EPISODES, number: int = 20) -> Iterator[Row]:
    """One plan of an agent that has met `episodes` people, everything included on our side; and the whole run."""
    env = privrl.envs.SyntheticLinear() if env is None else env
    learner, key = agent(env), jax.random.key(0)

    def run(seeds: int) -> privrl.Run:
        return privrl.run(env, learner, privrl.NonPrivate(), episodes=episodes, seeds=seeds, key=key)

    checked = 2  # of the seeds are also run in NumPy
    coins = [luck(env, episodes, k) for k in jax.random.split(key, (1, number))[0, :checked]]
    together, met = run(number), [careful(env, learner, one) for one in coins]
    same(together.total_regret[:checked], [total for total, _ in met])
    people = met[0][1]
    public = (np.asarray(env.features.table), np.asarray(env.rewards), float(learner.bonus), float(learner.ridge))
    Q, as_written = once(lambda: lsvi_ucb(people, *public))
    table, tabulated = once(lambda: lsvi_ucb(people, *public, tabulated=True))
    same(Q, table)
    same(Q, action_values(learner, people))
    same(greedy(Q), together.policy.probabilities[0])

    many = seconds(lambda: run(number).total_regret, 3)
    one = seconds(lambda: run(1).total_regret, 3) / episodes
    each, what = many / (number * episodes), f"LSVI-UCB, an episode after {episodes}"
    yield f"{what}: as written / per seed, {number} seeds together", as_written, each
    yield f"{what}: as written / a single seed", as_written, one
    yield f"{what}: as written, Q tabulated / per seed, {number} together", tabulated, each
    apart = number * once(lambda: careful(env, learner, coins[0]))[1]
    yield f"{number} seeds of {episodes} per-episode plans: careful NumPy, one by one / together", apart, many


def main() -> None:
    for name, theirs, ours in rows():
        print(f"{name}: {theirs:.4g} s / {ours:.4g} s = {theirs / ours:.1f}", flush=True)


if __name__ == "__main__":
    main()
