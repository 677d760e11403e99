"""`fit`: a table of people in, a policy and its certificate out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jaxtyping import ArrayLike, Float

from privrl.contracts.learner import AbstractLearner
from privrl.contracts.statistic import Adjacency
from privrl.data.dataset import AbstractDataset
from privrl.data.reward_function import RewardFunction
from privrl.envs.lq_worlds import LQEnv
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.envs.recorded_world import OfflineEnv
from privrl.envs.worlds_by_name import AnyEnv, make
from privrl.executors.executor import AbstractExecutor
from privrl.mdp.rule_file import RulesLike
from privrl.privacy.shared_budget import AnySharedBudget
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.recipes.pairing import BudgetArguments, privatizer_of, recipe_named
from privrl.studies.keys import KeyLike
from privrl.studies.offline.table_fit import (
    AnySchema,
    Paths,
    describe_table,
    fit_files,
    fit_object,
    is_path,
    open_store,
)
from privrl.studies.offline.task import Ends, RuleArguments, Task
from privrl.studies.offline.world_fit import WorldArguments, fit_world
from privrl.studies.results.finishing import Finish, SigningKey
from privrl.studies.results.result import Result

_WORLD = "env:"


def fit(
    data: Paths | AbstractDataset | RewardFunction | AnyEnv,
    learner: str | AbstractLearner,
    privatizer: AbstractPrivatizer | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    adjacency: Adjacency | None = None,
    schema: AnySchema | None = None,
    terminal: Sequence[int] = (),
    rewards_at_end: bool = False,
    rules: RulesLike | None = None,
    episodes: int | None = None,
    seeds: int = 1,
    evaluate: float | None = None,
    practice: Float[ArrayLike, "S A"] | str | Path | None = None,
    return_range: tuple[float, float] | None = None,
    max_ratio: float | None = None,
    max_weight: float | None = None,
    assume_recorded: bool = False,
    assume_markov: bool = False,
    release_anyway: bool = False,
    require_better: bool = False,
    spend_anyway: bool = True,
    unit: str | None = None,
    state_names: Sequence[str] = (),
    action_names: Sequence[str] = (),
    purpose: str | None = None,
    data_period: str | None = None,
    controller: str | None = None,
    sign: SigningKey | None = None,
    key: KeyLike | None = None,
    store: ReleaseStore | str | Path | None = None,
    executor: AbstractExecutor | None = None,
    budget: AnySharedBudget | None = None,
) -> Result:
    """Learns a policy from a data set at rest, or from a secret reward function, and certifies what it reveals.

    A table in a file, with a schema that declares its columns and public bounds (`privrl schema init` drafts one):

    >>> result = privrl.fit("stays.parquet", "dp-tdfp", schema="stays.toml", epsilon=1, delta=1e-6)  # doctest: +SKIP

    Simulated people, with seeded noise:

    >>> result = privrl.fit("env:riverswim", "dp-apvi", epsilon=1, delta=1e-6, episodes=500, key=0)
    >>> result
    Result(released without evidence, TabularPolicy, APVI, central privacy, epsilon 1, delta 1e-06, simulated noise)
    >>> result.report["value"] <= result.report["optimal"]
    True

    The long form takes objects:

    >>> world = privrl.envs.make("riverswim", states=3, horizon=4)
    >>> people = world.sample(world.behaviour_policy(), 500, jax.random.key(0))
    >>> table = privrl.data.Episodes.from_trajectories(people, num_states=3, num_actions=2)
    >>> result = privrl.fit(table, privrl.APVI(3, 2, 4), privrl.Central(epsilon=1, delta=1e-6), unit="patient")
    >>> result.policy.probabilities.shape
    (4, 3, 2)

    Arguments:
        data: a path (or several that make up one table) of Parquet files, with a `schema`; people from `privrl.data`;
            "env:NAME" or an environment, with `episodes`, to simulate people; or a `RewardFunction`, whose secret is
            the function. A pass over a table checks every row, and nothing is released from a pass that finds a fault.
        learner: the name of a recipe (`privrl list recipes`), or an offline learner such as `APVI`.
        privatizer: with a learner object: `Central(...)`, or `NonPrivate()`.
        epsilon, delta, rho, adjacency: the budget, with the name of a private recipe.
        schema: of a table in files: the path of a schema file, or a mapping with the same names.
        terminal, rewards_at_end: of a table that is an object: public states whose entry ends an episode, and whether
            only the last step of an episode pays. A schema and an environment have their own.
        rules: public rules on actions, a TOML file or its content ("if map < 60 then dose < 2"; the guide *Rules on
            actions* has the form). The learner does not consider forbidden actions, and the policy keeps the rules at
            every decision. Rules that leave no action are refused before anything is released.
        episodes, seeds: of an environment: the number of people to simulate, and the number of repetitions. The result
            is that of the first one.
        evaluate: the share of people to hold out, for example 0.3. A secret coin decides for each person. The policy is
            compared with current practice on them, and the result is an assisted policy (`privrl.mdp.AssistedPolicy`).
        practice: public probabilities `[S, A]` of current practice, or the path of a table of them; "env" for those of
            a simulated world. By default they are estimated, and no gain is certified.
        return_range: the public smallest and largest return of an episode; returns outside are clipped. By default from
            0 to 1 if only the last step pays, else to the largest sum of rewards.
        max_ratio: the largest factor by which the policy may raise an action's probability over current practice. By
            default several pairs of limits are compared, and the one with the largest lower bound is chosen.
        max_weight: the largest weight of an episode; a policy stops advising once an episode has reached it.
        assume_recorded: state that people decided and saw nothing but the record. Certificate and report repeat it, and
            checks of practice prevent a release only if they contradict it. Leave it out if a table has `propensity`.
        assume_markov: state that what happens next depends on the recorded state and the action alone. Certificate and
            report repeat it. The whole advice is then compared by a model, too, and is released without limits if its
            lower bound is the largest one. States must be numbered.
        release_anyway: return the assisted policy even if the evaluation does not support it
            (`Evaluation.reasons`). By default every decision is then left to current practice.
        require_better: withhold the policy unless it was shown to be better than current practice. Not together with
            `release_anyway`.
        spend_anyway: spend the budget on a table even if there are fewer than 100 people, or public numbers make it
            certain that the policy will be withheld. If false, this is a `ValueError` before anything is released. It
            only applies if the number of people is public (`adjacency="replace-one"`).
        unit: the name of one privacy unit in the certificate, for example "patient".
        state_names, action_names: names for reports, the first of state or action 0.
        purpose, data_period, controller: statements for the certificate, as they are. privrl does not verify them.
        sign: an Ed25519 private key, or the path of its PEM file, that signs the certificate.
        key: seeded, replayable noise for simulations: an integer, or a JAX key. Leave it out on real people: exact
            noise on a lattice then comes from the operating system's cryptographic randomness.
        store: a `ReleaseStore`, or its path, in which every release is kept before it is used, with a hard budget. If
            `fit` is interrupted, call it again with the same arguments, table and store: it reads what was released and
            continues. Another learner, another setting or another table is refused.
        executor: where the shards of a table in Parquet files are checked and added up: `Processes(4)`, or
            `Dask(client)`. The sums are those of one process, and noise is drawn here. Not with a `key`.
        budget: a `SharedBudget`, or its path, for all studies of the same people. The cost is reserved there before
            the first sum is computed.

    Returns:
        the policy and the certificate. The report also has what releases say about every state (`Situations`, and the
        values of states if the learner gives any).

    Raises:
        ValueError: there is no such recipe or world, the data do not fit the learner, or an argument contradicts
            another one.
        TableError: a row of the table is outside the declared bounds. The error does not quote it.
        TypeError: a privatizer or a budget is missing, or both were given.
        BudgetError: the budget is missing, meaningless or too small.
        PairingError: the privatizer cannot serve the learner.
        StudyMismatchError: the store belongs to another study.

    Warns:
        PrivacyWarning: `delta` is large for the number of people, or `key` seeds the noise of a table in files.
    """
    recipe = recipe_named(learner, "offline", "measured", "functional")
    trust = privatizer_of(recipe, privatizer, BudgetArguments(epsilon, delta, rho, adjacency))
    assumed = (assume_recorded, assume_markov)
    limits = (return_range, max_ratio, max_weight, release_anyway)
    asked = practice is not None or require_better or any(assumed) or limits != (None, None, None, False)
    if evaluate is None and asked:
        raise ValueError(
            "`practice`, `return_range`, `max_ratio`, `max_weight`, `assume_recorded`, `assume_markov`, "
            "`release_anyway` and `require_better` are about a comparison with current practice, and `evaluate` is "
            "missing. Give `evaluate` = 0.3 to hold out 30% of the people."
        )
    if release_anyway and require_better:
        raise ValueError(
            "`release_anyway` saves a policy without evidence and `require_better` saves none without it. Give one of "
            "them."
        )
    if evaluate is not None and recipe is not None and recipe.family == "functional":
        raise ValueError(f"`{recipe.name}` has no people to hold out. Leave out `evaluate`.")
    compared = (evaluate, practice, *limits, spend_anyway, *assumed)
    task = Task(None if isinstance(learner, str) else learner, recipe, trust, *compared)
    names = {"states": state_names, "actions": action_names}
    stated = {"purpose": purpose, "data_period": data_period, "controller": controller}
    world = make(data.removeprefix(_WORLD)) if isinstance(data, str) and data.startswith(_WORLD) else data
    simulated = isinstance(world, OfflineEnv | AbstractPatients)
    _refuse_foreign(simulated, store, executor, schema, episodes, seeds, (terminal, rewards_at_end), world)
    description = describe_table(recipe, schema) if is_path(world) else None
    if description is not None:
        names["actions"] = action_names or description.action_names
        if evaluate is None and description.reported:
            raise ValueError(
                "`by` and `outcome` are reported by a comparison with current practice, and `evaluate` is missing. "
                "Give `evaluate` = 0.3 to hold out 30% of the people, or leave them out."
            )
    if rules is not None:
        if isinstance(world, RewardFunction):
            raise ValueError("`rules` are about the actions of people in a table. Leave them out here.")
        doses = () if description is None else description.doses
        task = replace(task, rules=RuleArguments(rules, tuple(state_names), tuple(names["actions"]), doses))
    finish = Finish.of(require_better, names, stated, sign)
    if isinstance(world, OfflineEnv | AbstractPatients):
        if budget is not None:
            raise ValueError("`budget` pays for studies of real people, and these are simulated. Leave it out.")
        result = fit_world(task, world, WorldArguments(episodes, seeds, key), unit)
    else:
        with open_store(store) as kept:
            if isinstance(world, AbstractDataset | RewardFunction):
                ends = Ends(tuple(terminal), rewards_at_end)
                if isinstance(world, AbstractDataset):
                    known = world.bounds
                    ends = replace(ends, logged=world.logged, least_propensity=known.least_propensity)
                    ends = replace(ends, reported=known.reported)
                result = fit_object(task, world, ends, key, unit, kept, executor, budget)
            elif description is not None and is_path(world):
                result = fit_files(task, world, description, key, unit, kept, executor, budget)
            else:
                raise TypeError(f"`data` is a `{type(data).__name__}`; give a path, a dataset or an environment.")
    report = result.report if recipe is None else {"recipe": recipe.name, **result.report}
    if "choice" in report:
        report = {**report, "rules": [*result.rules, report["choice"]]}
    return finish(result.reporting(report))


def _refuse_foreign(
    simulated: bool,
    store: object,
    executor: object,
    schema: object,
    episodes: int | None,
    seeds: int,
    ends: tuple[Sequence[int], bool],
    data: object,
) -> None:
    """Refuses arguments that belong to another kind of data."""
    if isinstance(data, LQEnv):
        raise ValueError(f"`fit` learns from a table, and `{data.name}` is a linear system. Use `privrl.run`.")
    if simulated:
        if store is not None:
            raise ValueError("`store` keeps the releases of real people, and these are simulated. Leave it out.")
        if executor is not None:
            raise ValueError(
                "`executor` distributes the files of a table, and these people are simulated. Leave it out."
            )
    elif episodes is not None or seeds != 1:
        raise ValueError('`episodes` and `seeds` are for simulated people: an environment, or "env:NAME".')
    if schema is not None and not is_path(data):
        raise ValueError("`schema` describes a table in files, and `data` is not a path. Leave it out.")
    if ends != ((), False) and (simulated or is_path(data)):
        raise ValueError(
            "`terminal` and `rewards_at_end` are part of the schema or of the environment. Leave them out here."
        )
