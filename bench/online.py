"""Per-episode LSVI-UCB: compiled and together, against plain NumPy seed by seed; and how its cost grows.

`python -m bench.online` prints both. The NumPy side keeps its sums, inverts with LAPACK and handles all (s, a) at once:
it is what a careful person would write, not the pseudo-code recomputed over all history.
"""

import math
from typing import Any

import jax
import numpy as np

import privrl
from bench.timing import seconds
from privrl._run import SimulationKeys
from privrl.learners import LSVIUCBPlusPlus


def agent(env: Any) -> LSVIUCBPlusPlus:
    """LSVI-UCB: a plan after every episode, no weights."""
    return LSVIUCBPlusPlus(env.features, env.horizon, rewards=env.rewards, switching="always", weighted=False)


def plain(env: Any, learner: LSVIUCBPlusPlus, episodes: int, key: jax.Array) -> float:
    """Total regret of one seed in NumPy, with the same luck as the simulation."""
    phi, r = np.asarray(env.features.table), np.asarray(env.rewards)
    P, initial = np.asarray(env.mdp.transition), np.asarray(env.mdp.initial)
    (S, A, d), H = phi.shape, env.horizon
    x, beta, ridge = phi.reshape(-1, d), float(learner.bonus), float(learner.ridge)
    Lambda, M = np.tile(ridge * np.eye(d), (H, 1, 1)), np.zeros((H, d, S))
    Q = np.repeat((H - np.arange(H, dtype=float))[:, None, None], S * A, axis=1).reshape(H, S, A)
    keys = SimulationKeys.of(key)
    people = jax.vmap(lambda k: jax.random.uniform(keys.person(k, k), (H + 1, 2)))(np.arange(episodes))
    coins, best, total = np.asarray(people), float(env.optimal_value), 0.0
    for k in range(episodes):
        if k > 0:
            V = np.zeros(S)
            for h in reversed(range(H)):
                inverse = np.linalg.inv(Lambda[h])
                mid = (V.max() + V.min()) / 2
                w = inverse @ (M[h] @ (V - mid))
                norms = np.sqrt(np.einsum("ni,ij,nj->n", x, inverse, x))
                new = r[min(h, len(r) - 1)] + (mid + x @ w + beta * norms).reshape(S, A)
                Q[h] = np.minimum(np.minimum(new, H - h), Q[h])
                V = Q[h].max(axis=1)
        tied = Q.max(axis=2, keepdims=True) - 1e-9 <= Q
        pi = tied / tied.sum(axis=2, keepdims=True)
        V = np.zeros(S)
        for h in reversed(range(H)):
            g = min(h, len(P) - 1)
            V = (pi[h] * (r[min(h, len(r) - 1)] + P[g] @ V)).sum(axis=1)
        total += best - initial @ V
        s = _pick(initial, coins[k, 0, 0])
        for h in range(H):
            a = _pick(pi[h, s], coins[k, h + 1, 0])
            after = _pick(P[min(h, len(P) - 1), s, a], coins[k, h + 1, 1])
            Lambda[h] += np.outer(phi[s, a], phi[s, a])
            M[h, :, after] += phi[s, a]
            s = after
    return total


def _pick(p: np.ndarray, u: float) -> int:
    cumulative = np.cumsum(p)
    return int(np.argmax((p > 0) & (cumulative > u * cumulative[-1])))


def per_episode(episodes: int = 200, number: int = 10) -> tuple[str, float, float]:
    """Ten seeds of an agent that plans after every episode."""
    env = privrl.envs.SyntheticLinear()
    learner, key = agent(env), jax.random.key(0)

    def together() -> np.ndarray:
        return privrl.run(env, learner, privrl.NonPrivate(), episodes=episodes, seeds=number, key=key).total_regret

    def apart() -> list[float]:
        return [plain(env, learner, episodes, k) for k in jax.random.split(key, (1, number))[0]]

    if not np.allclose(together(), apart(), rtol=1e-7):
        raise SystemExit("a benchmark's two sides disagree")
    name = f"{number} seeds of {episodes} per-episode plans: NumPy, one by one / together"
    return name, seconds(apart, 1), seconds(together, 3)


def exponent(short: int = 500, long: int = 4_000) -> float:
    """How the cost of one episode grows with the number of episodes: 0 is flat."""
    env = privrl.envs.SyntheticLinear()
    learner = agent(env)

    def cost(episodes: int) -> float:
        return seconds(
            lambda: (
                privrl.run(
                    env,
                    learner,
                    privrl.Central(rho=1.0, continual="fresh"),
                    episodes=episodes,
                    seeds=10,
                    key=jax.random.key(1),
                ).total_regret
            ),
            2,
        )

    return math.log(cost(long) / cost(short)) / math.log(long / short) - 1.0


def main() -> None:
    name, numpy_seconds, ours = per_episode()
    print(f"{name}: {numpy_seconds / ours:.1f} times")
    print(f"cost per private episode grows like k^{exponent():+.3f}, from 500 to 4,000 episodes")


if __name__ == "__main__":
    main()
