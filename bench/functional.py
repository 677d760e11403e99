"""`python -m bench.functional`: Q-learning with functional noise, episodes per processor second, loop against compiled.

The loop is Algorithm 1 of wang-hegde (corrected, not private) as it reads: a sorted list of answers for each action,
one transition at a time, gradients by hand. The compiled one trains all noise levels, seeds and J of Figure 1 together.
"""

import time
from bisect import bisect_left

import jax
import numpy as np

from privrl.audit.known_bad.functional_q import LARGEST_REWARD, LONGEST_MOVE, STEPS, Settings, greedy_return, train

SIGMAS = (0.0, 0.1, 0.2, 0.3, 0.4)
SEEDS = 10


class Path:
    """One path of the Gaussian process: the answers so far, in order of their places."""

    def __init__(self, sigma: float, beta: float, rng: np.random.Generator) -> None:
        self.sigma, self.beta, self.rng = sigma, beta, rng
        self.places: list[float] = []
        self.values: list[float] = []

    def at(self, s: float) -> float:
        i = bisect_left(self.places, s)
        if i < len(self.places) and self.places[i] == s:
            return self.values[i]
        mean, share = 0.0, 1.0
        left, right = i > 0, i < len(self.places)
        a = self.beta * (s - self.places[i - 1]) if left else np.inf
        b = self.beta * (self.places[i] - s) if right else np.inf
        both = -np.expm1(-2 * (a + b))
        if left:
            mean += np.exp(-a) * -np.expm1(-2 * b) / both * self.values[i - 1]
        if right:
            mean += np.exp(-b) * -np.expm1(-2 * a) / both * self.values[i]
        share = np.expm1(-2 * a) * np.expm1(-2 * b) / both
        z = mean + self.sigma * np.sqrt(share) * self.rng.standard_normal()
        self.places.insert(i, s)
        self.values.insert(i, z)
        return z


def plain(sigma: float, refreshes: int, settings: Settings, seed: int) -> np.ndarray:
    """Algorithm 1, one transition at a time; Q at the knots, `[2, knots]`."""
    rng = np.random.default_rng(seed)
    knots, B = np.arange(settings.knots), settings.batch
    theta = np.full((2, settings.knots), LARGEST_REWARD / (1 - settings.discount))
    s = rng.uniform()
    for j in range(settings.batches):
        if j % (settings.batches // refreshes) == 0:
            paths = [Path(sigma, settings.beta, rng) for _ in range(2)]
        gradient = np.zeros_like(theta)
        for b in range(B):
            phi = np.maximum(1 - np.abs(s * (settings.knots - 1) - knots), 0)
            F = theta @ phi + [path.at(s) for path in paths]
            a = int(F[1] > F[0])
            move = rng.uniform(0, LONGEST_MOVE)
            after = min(max(s + move if a else s - move, 0.0), 1.0)
            r = LARGEST_REWARD - abs(after - 0.5)
            phi_after = np.maximum(1 - np.abs(after * (settings.knots - 1) - knots), 0)
            F_after = theta @ phi_after + [path.at(after) for path in paths]
            y = r + settings.discount * F_after.max()
            gradient[a] += (F[a] - y) * phi
            s = rng.uniform() if (j * B + b + 1) % STEPS == 0 else after
        theta = theta - settings.learning_rate * gradient / B
    return theta


def training(episodes: int = 400) -> tuple[str, float, float]:
    """Processor seconds per episode, with a fresh path in every batch; both must have learnt to walk to the middle."""
    settings = Settings(samples=STEPS * episodes)
    began = time.process_time()
    theta = plain(SIGMAS[1], settings.batches, settings, 0)
    loop = (time.process_time() - began) / episodes

    def compiled(seed: int) -> np.ndarray:
        curves = train(jax.random.key(seed), SIGMAS, SEEDS, (1, settings.batches), settings=settings, evaluations=1)
        return np.asarray(curves.kept[1, 1, :, -1])

    compiled(0)
    began = time.process_time()
    returns = compiled(1)
    ours = (time.process_time() - began) / (episodes * 2 * len(SIGMAS) * SEEDS)
    place = np.linspace(0, 1, 2**settings.depth + 1)
    loops = float(greedy_return(np.stack([np.interp(place, np.linspace(0, 1, settings.knots), row) for row in theta])))
    if min(loops, float(np.median(returns))) < 0.95 * 20.71:
        raise SystemExit("a benchmark's two sides disagree: one of them has not learnt the interval walk")
    return "an episode of functional-noise Q-learning: NumPy loop / compiled, seconds", loop, ours


if __name__ == "__main__":
    label, loop, ours = training()
    print(f"{label}: {loop:.4g} / {ours:.4g} = {loop / ours:.0f}")
