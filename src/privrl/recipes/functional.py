"""Recipes whose secret is a function."""

from privrl.learners.functional.functional_reward import FunctionalReward
from privrl.recipes.papers import papers
from privrl.recipes.recipe import Algorithm, KnownWorld, Recipe


def _functional_reward(world: KnownWorld) -> FunctionalReward:
    """beta = 4/w: more noise at each point than sqrt3/w, but 40% less power in what is left of it after smoothing."""
    return FunctionalReward(world.transition, world.horizon, half_width=0.1, beta=40.0)


_FUNCTIONAL_REWARD = Algorithm(
    FunctionalReward,
    "functional",
    name="functional reward",
    build=_functional_reward,
    cites=(papers["wang-hegde"], papers["hall-rinaldo-wasserman"]),
    releases={"reward function": "what is paid for arriving at each place"},
)

FUNCTIONAL = (
    Recipe(
        "functional-reward-q",
        _FUNCTIONAL_REWARD,
        "central",
        "planning on a secret reward function that is released once; protects the function, no person",
    ),
)
