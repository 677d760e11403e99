"""`python -m bench.open_ended`: what it costs not to know how many people will come.

First the noise of a release, over that of a known number of people: open-ended as it is, and with epochs that double
in people, from 1,000 and from 10,000 on (each such epoch has the releases between two doublings, and its last noisy sum
stays in all later ones). `--noise` prints only that. Then the regret of `dp-lsvi-ucb` on the worlds of
`docs/guides/online.md` (delta = 1e-5), with the number of people known in advance and without.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

import privrl
from privrl.contracts.learner import AbstractOnlineLearner
from privrl.privacy.continual.epochs import Epochs
from privrl.privacy.continual.toeplitz import SquareRoot
from privrl.recipes.all_recipes import get
from privrl.studies.open_ended import OpenEnded

WORLDS: dict[str, Callable[[], Any]] = {
    "riverswim": lambda: privrl.envs.RiverSwim(states=6, horizon=20, kind="osband"),
    "linriver": privrl.envs.LinRiver,
    "FrozenLake": lambda: privrl.envs.make("gym:FrozenLake-v1", horizon=20),
    "synthetic-linear": privrl.envs.SyntheticLinear,
}
PEOPLE = (1_000, 10_000, 100_000, 1_000_000)


def noise(learner: AbstractOnlineLearner, people: int, lengths: tuple[int, ...] | None) -> float:
    """The standard deviation of the last release before so many people, at D = mu = 1; epochs of so many releases, or
    one mechanism for a known number of people."""
    if lengths is None:
        known = SquareRoot(len(learner.blocks(people)))
        return known.factor * float(np.sqrt(known.variance(known.steps - 1)))
    ends, _ = OpenEnded().declared(learner)
    made = int(np.searchsorted(ends, people, side="right"))
    return float(np.sqrt(Epochs.from_lengths(SquareRoot, lengths).variance(made - 1)))


def doubling(learner: AbstractOnlineLearner, first: int) -> tuple[int, ...]:
    """How many releases there are until `first` people, and between one doubling of people and the next."""
    ends, _ = OpenEnded().declared(learner)
    doubled = [first << i for i in range(64) if first << i < ends[-1]]
    return tuple(int(n) for n in np.diff([0, *np.searchsorted(ends, doubled, side="right"), len(ends)]) if n)


def more_noise(learner: AbstractOnlineLearner) -> Iterator[tuple[int, float, float, float]]:
    """For every number of people, noise over that of a known number: open-ended, and with epochs that double from 1,000
    and from 10,000 people."""
    (ours,) = {d.epochs for d in OpenEnded().declared(learner)[1]}
    for people in PEOPLE:
        known = noise(learner, people, None)
        others = (doubling(learner, first) for first in (1_000, 10_000))
        ratios = [noise(learner, people, lengths) / known for lengths in (ours, *others)]
        yield people, ratios[0], ratios[1], ratios[2]


def regrets(world: str, people: int, epsilon: float, spec: OpenEnded, seeds: int, seed: int) -> list[np.ndarray]:
    """Total regret per seed with a known number of people, and without."""
    env = WORLDS[world]()
    recipe = get("dp-lsvi-ucb")
    pair = (recipe.build(env), recipe.privatizer(epsilon=epsilon, delta=1e-5))
    key = jax.random.key(seed)
    return [
        privrl.run(env, *pair, open_ended=flag, episodes=people, seeds=seeds, key=key).total_regret
        for flag in (False, spec)
    ]


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--noise", action="store_true", help="only how much more noise there is")
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--people", nargs="+", type=int, default=PEOPLE)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[10.0, 1.0])
    parser.add_argument("--ceiling", type=int, default=OpenEnded().ceiling, help="how many people can take part")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=20261116)
    given = parser.parse_args()
    river = WORLDS["riverswim"]()
    print("recipe | people | open-ended | doubling from 1,000 | doubling from 10,000")
    for name in ("dp-lsvi-ucb", "dp-ucbvi"):
        learner = get(name).build(river)
        assert isinstance(learner, AbstractOnlineLearner)
        for people, *ratios in more_noise(learner):
            print(name, f"{people:,}", *(f"{ratio:.3f}" for ratio in ratios), sep=" | ", flush=True)
    if given.noise:
        return
    print("world | epsilon | people | known | open-ended | ratio")
    for world in given.worlds:
        for epsilon in given.epsilons:
            for people in given.people:
                spec = OpenEnded(ceiling=given.ceiling)
                known, unknown = regrets(world, people, epsilon, spec, given.seeds, given.seed)
                ratio = unknown.mean() / known.mean()
                spread = np.hypot(*(x.std(ddof=1) / x.mean() for x in (known, unknown))) / np.sqrt(given.seeds)
                cells = (f"{known.mean():,.0f}", f"{unknown.mean():,.0f}", f"{ratio:.3f} ± {ratio * spread:.3f}")
                print(world, f"{epsilon:g}", f"{people:,}", *cells, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
