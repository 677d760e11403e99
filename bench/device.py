"""`python -m bench.device`: private episodes per second of per-episode agents, thousands of seeds at once.

Every user is followed by a release of everything with fresh noise and a new factorisation of every step's matrix. Runs
on whatever JAX finds, a GPU if there is one, in float64.
"""

import argparse
import time

import jax

import privrl
from privrl.learners import LSVIUCBPlusPlus
from privrl.recipes import get


def episodes_per_second(seeds: int, episodes: int, horizon: int = 20) -> float:
    """The rate of the second of two runs; the first one compiles."""
    env = privrl.envs.SyntheticLinear(horizon=horizon)
    learner = LSVIUCBPlusPlus.paper(env.features, horizon, rewards=env.rewards, switching="always")
    private = get("dp-lsvi-ucb++@paper").privatizer(epsilon=10.0, delta=1e-5)
    taken = 0.0
    for attempt in range(2):
        started = time.perf_counter()
        run = privrl.run(env, learner, private, episodes=episodes, seeds=seeds, key=jax.random.key(attempt))
        assert run.block_regret.shape == (seeds, episodes)
        taken = time.perf_counter() - started
    return seeds * episodes / taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4_096)
    parser.add_argument("--episodes", type=int, default=1_000)
    given = parser.parse_args()
    rate = episodes_per_second(given.seeds, given.episodes)
    print(f"{jax.devices()[0].device_kind}: {rate:,.0f} private episodes a second, {given.seeds:,} seeds together")


if __name__ == "__main__":
    main()
