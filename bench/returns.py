"""`python -m bench.returns`: what it costs that people come back.

First the noise of running sums for people who come m = 4 times, a quarter of the blocks apart: the root mean squared
error of all releases at sensitivity D = mu = 1, naive (four times that of people who come once), with the default
factorisation, with the one that is cut off best, and a lower bound on that of any. Then how far the bounds of all
mechanisms are from brute force over all patterns of up to 8 blocks and m = 4, in one epoch and in several. Then the
regret of `dp-lsvi-ucb` on `riverswim` (delta = 1e-5) as a share of the uniform policy's. Last what it costs to read how
many records there are off releases, as it must be with `patience`, where the number is the public one all the same: so
for `dp-lsvi-ucb`, and for `private-lq` on `lq-scalar` and `lq-2d` as a share of what doing nothing loses. `--noise`
leaves out all that learns, `--records` all but the last.
"""

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import privrl
from privrl.contracts.learner import AbstractOnlineLearner
from privrl.envs.lq_worlds import LQ2D, LQEnv, LQScalar
from privrl.privacy.continual.epochs import Epochs
from privrl.privacy.continual.mechanisms import AbstractContinual, BinaryTree, Fresh, Honaker
from privrl.privacy.continual.participation import ONCE, Participation, pattern_norm
from privrl.privacy.continual.toeplitz import Banded, SquareRoot, best_band, error_floor, mean_error
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import Recipe

TIMES = 4
ENV = privrl.envs.RiverSwim(states=6, horizon=20, kind="osband")
KINDS: dict[str, Callable[[int], AbstractContinual]] = {
    "SquareRoot": SquareRoot,
    "Banded": lambda steps: Banded(steps, min(steps, 3)),
    "Fresh": Fresh,
    "BinaryTree": BinaryTree,
    "Honaker": Honaker,
}
EPOCHS = ((2, 4), (3, 3, 2), (1, 2, 4, 1), (1,) * 8)


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
        worst = max(worst, scheme.sensitivity(often) / max(pattern_norm(gram, pattern) for pattern in ways))
    return worst


def regret(
    env: Any, recipe: Recipe, people: int, epsilon: float, often: Participation, seeds: int, counting: bool = False
) -> tuple[float, float]:
    """Mean and standard error of the regret, as a share of the uniform policy's, or of what doing nothing loses."""
    learner = recipe.build(env)
    assert isinstance(learner, AbstractOnlineLearner)
    run = privrl.run(
        env,
        learner.with_returns(often.times - 1) if counting else learner,
        recipe.privatizer(epsilon=epsilon, delta=1e-5),
        episodes=people,
        seeds=seeds,
        key=jax.random.key(20261116),
        max_episodes_per_unit=often.times,
        min_block_distance=often.distance,
    )
    baseline = env.zero_policy() if isinstance(env, LQEnv) else env.uniform_policy()
    shares = np.asarray(run.total_regret) / (people * float(env.regret(baseline)))
    return float(shares.mean()), float(shares.std(ddof=1) / np.sqrt(seeds))


def records(seeds: int) -> None:
    """Prints the regret where the number of records is public, and where it is read off releases."""
    print(f"\nregret where the number of records is public, and read off releases, {seeds} seeds")
    worlds: list[tuple[str, Any, int]] = [
        ("dp-lsvi-ucb", ENV, 100_000),
        ("private-lq", LQScalar(), 20_000),
        ("private-lq", LQ2D(), 20_000),
    ]
    for (name, env, people), epsilon, times in itertools.product(worlds, (10.0, 1.0), (2, TIMES)):
        recipe, often = get(name), Participation(times)
        known, found = (regret(env, recipe, people, epsilon, often, seeds, counting) for counting in (False, True))
        print(
            f"{name:11s} {env.name:9s}  epsilon {epsilon:4g}  times {times}  {known[0]:.3f} +- {known[1]:.3f}  "
            f"{found[0]:.3f} +- {found[1]:.3f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--records", action="store_true")
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.records:
        records(arguments.seeds)
        return
    print("blocks  naive  default  cut off (at)  lower bound   default/naive  cut off/naive")
    for steps in (16, 64, 100, 256):
        naive, default, best, floor, band = errors(steps)
        print(
            f"{steps:6d}  {naive:5.2f}  {default:7.2f}  {best:7.2f} ({band})  {floor:11.2f}   "
            f"{default / naive:13.2f}  {best / naive:13.2f}"
        )
    print("\nbound over brute force, 8 blocks, up to 4 times, all distances")
    for name, kind in KINDS.items():
        in_epochs = max(slack(Epochs.from_lengths(kind, n)) for n in EPOCHS)
        print(f"{name:11s}  {slack(kind(8)):.3f}, in epochs {in_epochs:.3f}")
    if arguments.noise:
        return
    people = 100_000
    learner = get("dp-lsvi-ucb").build(ENV)
    assert isinstance(learner, privrl.LSVIUCB)
    blocks = len(learner.blocks(people))
    print(f"\nregret over uniform, riverswim, {people:,} episodes in {blocks} blocks, {arguments.seeds} seeds")
    for epsilon in (10.0, 1.0):
        for often in (ONCE, Participation(TIMES, blocks // TIMES), Participation(TIMES, 1), Participation(TIMES)):
            mean, error = regret(ENV, get("dp-lsvi-ucb"), people, epsilon, often, arguments.seeds)
            print(f"epsilon {epsilon:4g}  times {often.times}, distance {often.distance:2d}  {mean:.3f} +- {error:.3f}")
    records(arguments.seeds)


if __name__ == "__main__":
    main()
