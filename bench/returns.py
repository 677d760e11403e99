"""`python -m bench.returns`: what it costs that people come back.

First the noise of running sums for people who come m = 4 times, a quarter of the blocks apart: the root mean squared
error of all releases at sensitivity D = mu = 1, naive (four times that of people who come once), with the default
factorisation, with the one that is cut off best, and a lower bound on that of any. Then how far the bounds of all
mechanisms are from brute force over all patterns of up to 8 blocks and m = 4. Last the regret of `dp-lsvi-ucb` on
`riverswim` (delta = 1e-5) as a share of the uniform policy's; `--noise` leaves that out.
"""

import argparse
import itertools

import jax
import numpy as np

import privrl
from privrl.privacy.continual.mechanisms import AbstractContinual, BinaryTree, Fresh, Honaker
from privrl.privacy.continual.participation import ONCE, Participation, summed
from privrl.privacy.continual.toeplitz import Banded, SquareRoot, best_band, error_floor, mean_error
from privrl.recipes.registry import get

TIMES = 4
ENV = privrl.envs.RiverSwim(states=6, horizon=20, kind="osband")
SCHEMES = (SquareRoot(8), Banded(8, 3), Fresh(8), BinaryTree(8), Honaker(8))


def errors(steps: int) -> tuple[float, float, float, float, int]:
    """Naive, default, cut off best, the lower bound, and where that is cut off."""
    often, root = Participation(TIMES, steps // TIMES), SquareRoot(steps)
    best = best_band(steps, often)
    naive = TIMES * mean_error(root, ONCE)
    return naive, mean_error(root, often), mean_error(best, often), error_floor(steps, often), best.band


def slack(scheme: AbstractContinual) -> float:
    """The largest bound over the truth, for up to 4 times and all distances."""
    encoder = scheme.encoder()
    gram, worst = encoder.T @ encoder, 1.0
    for times, distance in itertools.product(range(1, TIMES + 1), range(scheme.steps)):
        often = Participation(times, distance)
        ways = (
            pattern
            for m in range(1, times + 1)
            for pattern in itertools.combinations_with_replacement(range(scheme.steps), m)
            if all(b - a >= distance for a, b in itertools.pairwise(pattern))
        )
        worst = max(worst, scheme.sensitivity(often) / max(summed(gram, pattern) for pattern in ways))
    return worst


def regret(people: int, epsilon: float, often: Participation, seeds: int) -> tuple[float, float]:
    """Mean and standard error of the regret, as a share of the uniform policy's."""
    recipe = get("dp-lsvi-ucb")
    run = privrl.run(
        ENV,
        recipe.build(ENV),
        recipe.privatizer(epsilon=epsilon, delta=1e-5),
        episodes=people,
        seeds=seeds,
        key=jax.random.key(20261116),
        max_episodes_per_unit=often.times,
        min_block_distance=often.distance,
    )
    shares = np.asarray(run.total_regret) / (people * float(ENV.regret(ENV.uniform_policy())))
    return float(shares.mean()), float(shares.std(ddof=1) / np.sqrt(seeds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    print("blocks  naive  default  cut off (at)  lower bound   default/naive  cut off/naive")
    for steps in (16, 64, 100, 256):
        naive, default, best, floor, band = errors(steps)
        print(
            f"{steps:6d}  {naive:5.2f}  {default:7.2f}  {best:7.2f} ({band})  {floor:11.2f}   "
            f"{default / naive:13.2f}  {best / naive:13.2f}"
        )
    print("\nbound over brute force, 8 blocks, up to 4 times, all distances")
    for scheme in SCHEMES:
        print(f"{type(scheme).__name__:11s}  {slack(scheme):.3f}")
    if arguments.noise:
        return
    people = 100_000
    learner = get("dp-lsvi-ucb").build(ENV)
    assert isinstance(learner, privrl.LSVIUCB)
    blocks = len(learner.blocks(people))
    print(f"\nregret over uniform, riverswim, {people:,} episodes in {blocks} blocks, {arguments.seeds} seeds")
    for epsilon in (10.0, 1.0):
        for often in (ONCE, Participation(TIMES, blocks // TIMES), Participation(TIMES, 1), Participation(TIMES)):
            mean, error = regret(people, epsilon, often, arguments.seeds)
            print(f"epsilon {epsilon:4g}  times {often.times}, distance {often.distance:2d}  {mean:.3f} +- {error:.3f}")


if __name__ == "__main__":
    main()
