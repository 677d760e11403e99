"""The worlds in which recipes are attacked: small enough to try every record."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from privrl.contracts.learner import AbstractLearner, AbstractOfflineLearner
from privrl.data.episodes import Episodes
from privrl.data.reward_function import RewardFunction
from privrl.envs.base import Env
from privrl.envs.lq_worlds import LQ2D, LQEnv
from privrl.envs.patients.anticoagulation import Anticoagulation
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.envs.tabular.interval_walk import IntervalWalk
from privrl.mdp.features import OneHotFeatures
from privrl.mdp.types import TabularMDP
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.recipes.all_recipes import find
from privrl.recipes.recipe import Recipe
from privrl.studies.simulation.sampled_tables import sampled

AuditedWorld = Env | LQEnv | AbstractPatients
"""The kinds of worlds in which a recipe can be attacked."""


def tiny_world(horizon: int = 3, num_states: int = 3, num_actions: int = 2, seed: int = 0) -> Env:
    """Make a random world with orthonormal features, in which every record can be enumerated."""
    rng = np.random.default_rng(seed)
    mdp = TabularMDP(
        jnp.asarray(rng.dirichlet(np.ones(num_states), (1, num_states, num_actions))),
        jnp.asarray(rng.uniform(size=(1, num_states, num_actions))),
        jnp.asarray(rng.dirichlet(np.ones(num_states))),
        horizon,
    )
    behaviour = jnp.full((num_states, num_actions), 1 / num_actions)
    return Env(mdp, OneHotFeatures(num_states, num_actions), behaviour, "tiny")


def prepare_audit(
    recipe: str | Recipe, epsilon: float | None, delta: float | None, rho: float | None, env: AuditedWorld | None
) -> tuple[Recipe, AbstractPrivatizer, AuditedWorld, AbstractLearner]:
    """Return a recipe, its privatizer (epsilon = 1 and delta = 1e-5 by default), a small world and the learner for it.

    A recipe without privacy takes no budget.
    """
    recipe = find(recipe) if isinstance(recipe, str) else recipe
    if (epsilon, delta, rho) == (None, None, None):
        epsilon, delta = 1.0, 1e-5
    private = recipe.trust != "none"
    privatizer = recipe.privatizer(epsilon=epsilon, delta=delta, rho=rho) if private else recipe.privatizer()
    return recipe, privatizer, *choose_world(recipe, env)


_WORLDS: tuple[Callable[[], AuditedWorld], ...] = (
    tiny_world,
    lambda: LQ2D(horizon=2),
    lambda: IntervalWalk(depth=3, horizon=3, knots=3),
    lambda: Anticoagulation(horizon=2),
)


def choose_world(recipe: Recipe, env: AuditedWorld | None = None) -> tuple[AuditedWorld, AbstractLearner]:
    """Return a small world for a recipe and the learner built for it; the recipe decides which worlds it accepts."""
    if env is not None:
        return env, recipe.build(env, recipe.episodes)
    refusals = []
    for make in _WORLDS:
        world = make()
        try:
            return world, recipe.build(world, recipe.episodes)
        except (ValueError, TypeError) as refusal:
            refusals.append(str(refusal))
    raise ValueError(
        f"The audit has no small world for `{recipe.name}`: {' '.join(dict.fromkeys(refusals))} Pass one as `env`."
    )


def make_data(
    env: Env | AbstractPatients, learner: AbstractOfflineLearner, episodes: int, key: PRNGKeyArray
) -> Episodes | RewardFunction:
    """Make the data that the learner learns from: people who acted on the behaviour policy, or a secret reward
    function.
    """
    if learner.learns_from == "reward function":
        return RewardFunction(np.full(learner.space[0], 0.5))
    return sampled(env, episodes, key)
