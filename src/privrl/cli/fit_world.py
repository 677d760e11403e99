"""`privrl fit env:NAME`: a policy from people who are sampled in a simulated world, with its value there."""

from dataclasses import dataclass
from typing import Annotated, Any

import equinox as eqx
import jax
import typer

import privrl
from privrl.cli.options.evaluation_options import ComparisonOptions, EvaluateOptions, simulation_key, truth_of
from privrl.cli.options.grouped import given, refuse
from privrl.cli.options.parsing import EnvArgOption, EnvSeedOption, env_of, fresh_seed
from privrl.cli.options.table_options import TableOptions
from privrl.cli.output import progress
from privrl.envs.base import Env
from privrl.envs.patients.grid_table import GridTable
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.envs.recorded_world import OfflineEnv
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.recipes.recipe import MeasuredProblem, Problem, Recipe
from privrl.studies.results.result import Result
from privrl.studies.simulation.sampled_tables import baseline_values, sampled

_WORLD = "Simulated world"


@dataclass(frozen=True)
class WorldOptions:
    """What is simulated."""

    episodes: Annotated[
        int | None, typer.Option("--episodes", help="How many people to simulate.", rich_help_panel=_WORLD)
    ] = None
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="How many repetitions (1 unless given).", rich_help_panel=_WORLD)
    ] = None
    env_arg: EnvArgOption = None
    env_seed: EnvSeedOption = None


def fit_world(
    recipe: Recipe,
    privatizer: AbstractPrivatizer,
    name: str,
    world: WorldOptions,
    seed: int | None,
    wanted: EvaluateOptions,
    comparison: ComparisonOptions,
    noun: str,
) -> tuple[Result, dict[str, Any]]:
    """Every seed has its own people and its own noise; the result of the first one is kept."""
    functional, share = recipe.family == "functional", wanted.evaluate
    if functional:
        refuse(given(world, ("episodes",)), "speaks of people; the secret is a function")
    episodes = recipe.episodes if world.episodes is None else world.episodes
    if episodes is None and not functional:
        raise ValueError("Say with `--episodes` how many people to simulate.")
    seeds = 1 if world.seeds is None else world.seeds
    if seeds < 1 or (episodes is not None and episodes < 1):
        raise ValueError(f"`--episodes` is {episodes} and `--seeds` is {seeds}; both must be at least 1.")
    seed = fresh_seed(seed)
    env = env_of(name, world.env_arg, world.env_seed)
    public = episodes if privatizer.adjacency == "replace-one" else None
    if public is not None and share is not None:
        public = round((1.0 - share) * public)
    learner: Any = recipe.build(env, public)
    assert isinstance(env, OfflineEnv | AbstractPatients)
    compared: dict[str, Any] = {}
    if share is not None:
        if isinstance(env, AbstractPatients):
            ends = {"terminal": (), "rewards_at_end": MeasuredProblem.of(env).rewards_at_end}
        else:
            ends = {"terminal": env.terminal, "rewards_at_end": Problem.of(env).rewards_at_end}
        compared = wanted.arguments(learner, comparison, ends, env)
    kept: Result | None = None
    values: list[float] = []
    value_of = eqx.filter_jit(env.value)  # one program for all repetitions
    with progress(f"learning with {recipe.name}", seeds) as advance:
        for repetition in jax.random.split(jax.random.key(seed), seeds):
            data_key, noise_key = jax.random.split(repetition)
            if functional:
                result = privrl.fit(_reward_function(env), learner, privatizer, key=noise_key)
            else:
                assert episodes is not None
                people = sampled(env, episodes, data_key)
                result = privrl.fit(people, learner, privatizer, **compared, key=noise_key, unit=noun)
            values.append(float(value_of(result.policy if share is None else result.advice)))
            kept = kept or result
            advance("")
    assert kept is not None
    baselines = baseline_values(env)
    rules = _rules(env)
    report = {"recipe": recipe.name, "env": env.name, "seed": seed, **kept.report, "value": values[0], **baselines}
    report |= {"rules": rules} if rules else {}
    content = {
        "env": env.name,
        "env_seed": env.seed,
        "horizon": env.horizon,
        "seed": seed,
        "seeds": seeds,
        "value": values,
        "baselines": baselines,
        "exact": not isinstance(env, GridTable | AbstractPatients),
        "rules": rules,
    }
    if share is not None:
        content["truth"] = truth_of(env, kept, key=simulation_key(seed))
    return kept.reporting(report), content


def _rules(env: OfflineEnv | AbstractPatients) -> list[str]:
    """What the world does to rewards before anybody learns from them."""
    if not isinstance(env, Env) or env.rescaled is None:
        return []
    low, high = env.rescaled
    return [
        f"Rewards of `{env.name}` lie between {low:g} and {high:g} and were rescaled to [0, 1]: (reward - {low:g})/"
        f"{high - low:g} at each of the {env.horizon} steps. All values here are in these units."
    ]


def world_noun(recipe: Recipe, table: TableOptions, noun: str | None) -> str:
    """What one simulated person is called; everything else that describes a table is refused."""
    described = given(table)
    named = described.pop("unit", None)
    if recipe.family == "functional" and named is not None:
        refuse({"unit": named}, "speaks of people; the secret is a function")
    refuse(described, "describes a table; a simulated world has its own (see `--env-arg`)")
    return noun or named or "user"


def _reward_function(env: OfflineEnv | AbstractPatients) -> privrl.data.RewardFunction:
    """The secret of a simulated world: what it pays for arriving at a place."""
    if isinstance(env, AbstractPatients) or env.arrival is None:
        raise ValueError(
            f"`{env.name}` pays for states and actions; a reward that depends on the place alone is needed."
        )
    return privrl.data.RewardFunction(env.arrival)
