"""`fit` on a table of people: in files that a schema describes, or an object."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeGuard

import jax
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from privrl.contracts.learner import AbstractLearner, AbstractOfflineLearner
from privrl.data.dataset import AbstractDataset
from privrl.data.reward_function import RewardFunction
from privrl.data.rows.files import Paths
from privrl.data.schema.table_description import TableDescription
from privrl.data.tables.parquet import read_parquet
from privrl.data.tables.shards import ShardedEpisodes
from privrl.evaluation.limits import choose_limits
from privrl.executors.executor import AbstractExecutor
from privrl.privacy.accounting.privacy_budget import PrivacyWarning
from privrl.privacy.shared_budget import AnySharedBudget
from privrl.privacy.store.release_store import ReleaseStore
from privrl.recipes.recipe import MeasuredProblem, Problem, Recipe
from privrl.studies.keys import KeyLike, optional_key
from privrl.studies.offline.enough_people import check_evaluation, check_number
from privrl.studies.offline.learning import PracticeComparison, learn
from privrl.studies.offline.task import Ends, Task
from privrl.studies.results.result import Result

AnySchema = str | Path | Mapping[str, object] | TableDescription
"""A schema file, a mapping with the same names, or a description."""


def describe_table(recipe: Recipe | None, schema: AnySchema | None) -> TableDescription:
    """The description of a table in files, checked against the recipe before the table is opened."""
    if recipe is not None and recipe.family == "functional":
        raise ValueError(
            f"`{recipe.name}` hides a reward function, not the people of a table. Use `env:interval-walk`."
        )
    if schema is None:
        raise ValueError(
            "`schema` is missing. It declares the columns and public bounds of the table; `privrl schema init` drafts "
            "one."
        )
    description = TableDescription.read(schema)
    if recipe is not None and description.measured and recipe.family == "offline":
        raise ValueError(
            f"`{recipe.name}` learns from numbered states, and `feature` or `category` declares measurements. Use "
            "the recipe dp-lap, or numbered states (`privrl prepare --grid`)."
        )
    if recipe is not None and recipe.family == "measured" and not description.measured:
        raise ValueError(
            f"`{recipe.name}` learns from measurements. Declare their columns with `feature` (NAME:LO..HI) and "
            "`category` (NAME:a,b,c); for numbered states use the recipe dp-tdfp."
        )
    description.check_complete()
    return description


def open_store(store: ReleaseStore | str | Path | None) -> AbstractContextManager[ReleaseStore | None]:
    """The store; one that is given as a path is closed at the end."""
    return nullcontext(store) if store is None or isinstance(store, ReleaseStore) else ReleaseStore(store)


def is_path(data: object) -> TypeGuard[Paths]:
    """Whether data are given as the path of a table, or as several paths that make up one."""
    return isinstance(data, str | Path) or (
        isinstance(data, Sequence) and len(data) > 0 and all(isinstance(one, str | Path) for one in data)
    )


def read_table(paths: Paths, description: TableDescription, key: KeyLike | None) -> AbstractDataset:
    """The people of a table in files; warns of a key, whose noise can be replayed."""
    if isinstance(key, jax.Array):
        raise ValueError(
            "`key` is a JAX key. Give an integer with a table in files, as `--seed` of the command line does."
        )
    if key is not None:
        warnings.warn(
            "Noise from a `key` can be replayed and protects no one. Leave it out on real people.",
            PrivacyWarning,
            stacklevel=4,
        )
    return read_parquet(paths, **description.columns)


def open_people(
    data: Paths | AbstractDataset,
    schema: AnySchema | None,
    ends: Ends,
    key: KeyLike | None,
    policy: object = None,
    public_key: Ed25519PublicKey | None = None,
) -> tuple[AbstractDataset, Ends, str | None]:
    """People to evaluate a policy with, or to choose one: their data, how episodes end, and the name of their unit."""
    if isinstance(data, AbstractDataset):
        if schema is not None or public_key is not None:
            raise ValueError("`schema` and `public_key` are for a table in files, and the data are not a path.")
        return data, ends, None
    if ends != Ends():
        raise ValueError("`terminal` and `rewards_at_end` are part of the schema. Leave them out here.")
    description = describe_held_out(schema, policy, public_key)
    known = _ends_of(description)
    return read_table(data, description, key), known, description.unit


def _ends_of(description: TableDescription) -> Ends:
    """What a description makes public about how episodes end and pay, and about who decided."""
    return Ends(
        tuple(description.terminal or ()),
        description.rewards_at_end,
        logged=description.propensity is not None,
        least_propensity=description.least_propensity or 0.0,
        reported=description.reported,
    )


def describe_held_out(
    schema: AnySchema | None, policy: object, public_key: Ed25519PublicKey | None
) -> TableDescription:
    """The description of a table of people who were held out.

    The report of a saved result completes the schema. The unit decides whom the certificate protects, and anyone can
    write a consistent folder, so the report completes the unit only if `public_key` signed it.
    """
    if public_key is not None:
        if not isinstance(policy, Result):
            raise ValueError("`public_key` checks a saved result, and the policy is not one. Leave it out.")
        policy.certificate.verify(public_key)
    description = TableDescription() if schema is None else TableDescription.read(schema)
    if isinstance(policy, Result):
        if description.unit is None and public_key is None:
            raise ValueError(
                "`unit` is missing. It says whom privacy protects, and no signature of the saved result was checked. "
                "Give the column with `unit`, or the key that signed the result with `public_key`."
            )
        description = description.completed_by(policy.facts.get("table", {}), "`table` in the report of the result")
    description.check_complete()
    return description


def fit_files(
    task: Task,
    paths: Paths,
    description: TableDescription,
    key: KeyLike | None,
    unit: str | None,
    store: ReleaseStore | None,
    executor: AbstractExecutor | None,
    budget: AnySharedBudget | None,
) -> Result:
    """`fit` on a table in files."""
    data = read_table(paths, description, key)
    noun = unit or description.unit
    assert noun is not None
    ends = _ends_of(description)
    paying = (budget, description.unit)
    result = fit_object(task, data, ends, key, noun, store, executor, *paying, description.products)
    rules = [*description.rules(noun), *result.rules]
    return result.reporting({**result.report, "table": description.given, "rules": rules})


def fit_object(
    task: Task,
    data: AbstractDataset | RewardFunction,
    ends: Ends,
    key: KeyLike | None,
    unit: str | None,
    store: ReleaseStore | None,
    executor: AbstractExecutor | None,
    budget: AnySharedBudget | None = None,
    unit_column: str | None = None,
    products: tuple[tuple[str, str], ...] | None = None,
) -> Result:
    """`fit` on data that are an object, with a learner or a recipe."""
    how: dict[str, Any] = {"key": optional_key(key), "unit": unit, "store": store}
    how |= {"budget": budget, "unit_column": unit_column}
    if isinstance(data, RewardFunction):
        if task.learner is None:
            raise ValueError(
                "The name of a recipe does not say in which world a `RewardFunction` pays. Give a learner such as "
                "`FunctionalReward`, or simulate: `env:interval-walk`."
            )
        return learn(data, task.learner, task.privatizer, None, executor=executor, **how)
    table: AbstractDataset = data
    if executor is not None:
        table = ShardedEpisodes.from_dataset(data, executor)  # so that workers count people, too

    def build(recipe: Recipe, people: int | None) -> AbstractLearner:
        if recipe.family == "measured":
            problem = MeasuredProblem(
                table.features, table.num_actions, table.horizon, ends.rewards_at_end, products=products
            )
            return recipe.learner(problem)
        sizes = (table.num_states, table.num_actions, table.horizon)
        known: dict[str, Any] = {"terminal": ends.terminal, "rewards_at_end": ends.rewards_at_end}
        return recipe.learner(Problem.of_table(*sizes, **known, num_episodes=people))

    people = None
    if task.recipe is not None and table.max_episodes_per_unit == 1:
        people = table.num_episodes  # public if neighbours replace one person
    learner = task.learner_for(build, people)
    comparison = task.comparison(learner, ends)
    if not task.spend_anyway:
        _check_people(table.num_units, task, learner, comparison)
    recipe = None if task.recipe is None else task.recipe.name
    return learn(table, learner, task.privatizer, comparison, recipe=recipe, **how)


def _check_people(people: int, task: Task, learner: AbstractLearner, comparison: PracticeComparison | None) -> None:
    """Refuses to spend a budget on too few people, or on an evaluation that is certain to withhold the policy."""
    check_number(people, task.privatizer)
    if comparison is None or comparison.release_anyway or not isinstance(learner, AbstractOfflineLearner):
        return
    evaluated = comparison.evaluated(learner)
    check_evaluation(
        people,
        evaluated.evaluation_releases,
        task.privatizer,
        public=comparison.practice is not None or comparison.assumption in ("logged", "randomised"),
        checked=comparison.assumption == "checked",
        markov=comparison.markov,
        limits=choose_limits(comparison.max_ratio, comparison.max_weight),
        logged=comparison.assumption == "logged",
        share=comparison.evaluate,
    )
