"""`python -m bench.scaling`: how costs grow, as powers fitted to log time against log size.

The agent plans after every episode and releases everything with fresh noise. Its horizon is 5 here: the powers do not
depend on it, and compiling takes as long as it has steps.
"""

from collections.abc import Iterator

import jax

import privrl
from bench import offline, online
from bench.timing import exponent, seconds

HORIZON = 5


def _run_time(episodes: int, number: int, repeats: int) -> float:
    env = privrl.envs.SyntheticLinear(horizon=HORIZON)
    learner, private = online.agent(env), privrl.Central(rho=1.0, continual="fresh")

    def run() -> object:
        key = jax.random.key(1)
        return privrl.run(env, learner, private, episodes=episodes, seeds=number, key=key).total_regret

    return seconds(run, repeats)


def in_episodes(sizes: tuple[int, ...] = (500, 4_000), number: int = 10) -> dict[int, float]:
    """Seconds per episode and seed of runs of so many episodes."""
    return {size: _run_time(size, number, 2) / (size * number) for size in sizes}


def in_seeds(sizes: tuple[int, ...] = (10, 1_000), episodes: int = 50) -> dict[int, float]:
    """Seconds of a run with so many seeds."""
    return {size: _run_time(episodes, size, 2) for size in sizes}


def lines() -> Iterator[str]:
    """One line per kind of size."""
    episodes = in_episodes()
    yield (
        f"cost of one private episode: grows like k^{exponent(episodes):+.3f} with the number of episodes k "
        f"({' to '.join(f'{k:,}' for k in episodes)})"
    )
    seeds = in_seeds()
    each = ", ".join(f"{1e3 * cost / n:.3g} ms at {n:,}" for n, cost in seeds.items())
    yield f"cost of a private run of 50 episodes: grows like seeds^{exponent(seeds):.3f}; per seed {each}"
    power, fits = offline.fit_growth()
    took = ", ".join(f"{cost:.3g} s at {n:,}" for n, cost in fits.items())
    yield f"cost of a private `fit` (dp-vapvi): grows like rows^{power:.3f}; {took}"


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
