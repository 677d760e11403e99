"""`fit` on people who are sampled in a simulated world, whose values are known."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from privrl.contracts.learner import AbstractLearner
from privrl.contracts.policy import AbstractPolicy
from privrl.data.reward_function import RewardFunction
from privrl.envs.base import Env
from privrl.envs.patients.actors import MemorylessActor, as_actor
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.envs.recorded_world import OfflineEnv
from privrl.mdp.assistance import AbstractAssisted
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.types import TabularPolicy
from privrl.recipes.recipe import MeasuredProblem, Problem, Recipe
from privrl.studies.keys import KeyLike, fresh_seed, seeded_key
from privrl.studies.offline.learning import learn
from privrl.studies.offline.task import Ends, Task
from privrl.studies.results.result import Result
from privrl.studies.simulation.sampled_tables import assisted_gain, baseline_values, sampled

SimulatedPeople = OfflineEnv | AbstractPatients
"""A world in which people can be sampled."""
_STAYS = 40_000  # simulated to know what an assisted policy is worth


@dataclass(frozen=True)
class WorldArguments:
    """How people are simulated; `fit` has the arguments."""

    episodes: int | None
    seeds: int
    key: KeyLike | None


def fit_world(task: Task, env: SimulatedPeople, how: WorldArguments, unit: str | None) -> Result:
    """The result of the first repetition, with values of policies in its report.

    Every repetition has people and noise of its own.
    """
    functional = task.recipe is not None and task.recipe.family == "functional"
    episodes = how.episodes
    if episodes is None and task.recipe is not None:
        episodes = task.recipe.episodes
    if functional and how.episodes is not None:
        raise ValueError("`episodes` is a number of people, and the secret here is a reward function. Leave it out.")
    if functional and unit is not None:
        raise ValueError("`unit` names a person, and the secret here is a reward function. Leave it out.")
    if episodes is None and not functional:
        raise ValueError("`episodes` is missing. Give the number of people to simulate.")
    if how.seeds < 1 or (episodes is not None and episodes < 1):
        raise ValueError(f"`episodes` is {episodes} and `seeds` is {how.seeds}; both must be at least 1.")
    seed = fresh_seed() if how.key is None else how.key
    key = seeded_key(seed)

    def build(recipe: Recipe, people: int | None) -> AbstractLearner:
        return recipe.build(env, people)

    learner = task.learner_for(build, episodes)
    if (rules := getattr(learner, "rules", None)) and rules.need_previous:
        raise ValueError(
            "A rule depends on the previous action, and values of simulated people are computed without it. Leave out "
            "this rule, or fit a table."
        )
    comparison = task.comparison(learner, ends_of(env))
    results: list[Result] = []
    for repetition in jax.random.split(key, how.seeds):
        data_key, noise_key = jax.random.split(repetition)
        if functional:
            result = learn(_reward_function(env), learner, task.privatizer, comparison, key=noise_key, unit=None)
        else:
            assert episodes is not None
            people = sampled(env, episodes, data_key)
            result = learn(people, learner, task.privatizer, comparison, key=noise_key, unit=unit or "user")
        results.append(result)
    learnt = [one.policy if comparison is None else one.advice for one in results]
    values = [float(_value(env, policy)) for policy in learnt if not _is_opaque(policy)]
    first = results[0]
    facts: dict[str, Any] = {"env": env.name}
    facts |= {} if isinstance(seed, jax.Array) else {"seed": int(seed)}
    facts |= first.report | ({"value": values[0]} if values else {}) | baseline_values(env)
    facts |= {"value_by_seed": values} if len(values) > 1 else {}
    facts |= {"rules": [*said, *facts.get("rules", ())]} if (said := _rules(env)) else {}
    facts |= {"truth": truth_of(env, first, key=_truth_key(key))} if comparison is not None else {}
    return first.reporting(facts)


def _is_opaque(policy: object) -> bool:
    """Whether this is a policy of a class that others define, which cannot act in a simulated world."""
    return isinstance(policy, AbstractPolicy) and not isinstance(policy, TabularPolicy | MeasuredPolicy)


@eqx.filter_jit
def _value(env: SimulatedPeople, policy: Any) -> Any:
    """One compiled program for all repetitions."""
    return env.value(policy)


def ends_of(env: SimulatedPeople) -> Ends:
    """What is public about a simulated world."""
    if isinstance(env, AbstractPatients):
        return Ends((), MeasuredProblem.of(env).rewards_at_end, env.largest_reward)
    return Ends(env.terminal, Problem.of(env).rewards_at_end, behaviour=jnp.asarray(env.behaviour))


def truth_of(env: SimulatedPeople, result: Result, *, key: PRNGKeyArray) -> dict[str, float]:
    """The true values of what was estimated, in a world whose values are known."""
    assert result.evaluation is not None
    advice: Any = result.advice
    if isinstance(env, AbstractPatients):
        practice, full = float(env.value(env.practice)), env.gain(MemorylessActor(as_actor(advice)))
        found = {"practice": practice, "model_gain": full.value, "model_gain_se": full.error}
    else:
        practice = float(env.value(env.behaviour_policy()))
        found = {"practice": practice, "model_gain": float(env.value(advice)) - practice}
    assisted = assisted_gain(env, result.evaluation.policy, _STAYS, key=key)
    found |= {"gain": assisted.value, "gain_se": assisted.error}
    kept = 0.0 if isinstance(result.policy, AbstractAssisted) and result.policy.is_silent else 1.0
    return found | {"value": practice + kept * assisted.value, "value_se": kept * assisted.error}


def _truth_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """For the simulation that finds the truth, apart from those of people and noise."""
    return jax.random.fold_in(key, 2**31 - 1)


def _rules(env: SimulatedPeople) -> list[str]:
    """What the world does to rewards before a learner sees them."""
    if not isinstance(env, Env) or env.rescaled is None:
        return []
    low, high = env.rescaled
    return [
        f"Rewards of `{env.name}` lie between {low:g} and {high:g} and were rescaled to [0, 1]: (reward - {low:g})/"
        f"{high - low:g} at each of the {env.horizon} steps. All values here are in these units."
    ]


def _reward_function(env: SimulatedPeople) -> RewardFunction:
    """The secret of a simulated world: what it pays for arriving at a place."""
    if isinstance(env, AbstractPatients) or env.arrival is None:
        raise ValueError(
            f"`{env.name}` pays for states and actions; a reward that depends on the place alone is needed."
        )
    return RewardFunction(env.arrival)
