"""`privrl fit`: a policy from a table of people, or from data sampled in a simulated world."""

import contextlib
import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import equinox as eqx
import jax
import typer

import privrl
from privrl.cli.evaluation import (
    NOT_BETTER,
    DeviationOption,
    DialOption,
    EvaluateOption,
    EvaluateOptions,
    PracticeOption,
    RequireBetterOption,
    ReturnBoundOption,
    check_comparison,
    evaluation_json,
    show_evaluation,
    simulation_key,
    truth_of,
)
from privrl.cli.options import (
    AdjacencyOption,
    DeltaOption,
    EnvArgOption,
    EnvSeedOption,
    EpsilonOption,
    JsonOption,
    RhoOption,
    StoreHeadOption,
    env_of,
    fresh_seed,
    privatizer_of,
    recipe_of,
)
from privrl.cli.output import complain, emit, progress, say, show_table, waiting
from privrl.cli.table_options import (
    COLUMNS,
    REQUIRED,
    ActionOption,
    EpisodeOption,
    HorizonOption,
    MaxEpisodesOption,
    NextStateOption,
    NumActionsOption,
    NumStatesOption,
    RewardOption,
    RewardsAtEndOption,
    SortOption,
    StateOption,
    StepOption,
    TerminalOption,
    TerminatedOption,
    UnitNounOption,
    UnitOption,
    columns_of,
    ends_of,
    flag,
    given,
    refuse,
)
from privrl.envs.grid_table import GridTable
from privrl.envs.recorded import OfflineEnv
from privrl.figures.numbers import written
from privrl.privacy.accounting.signature import read_private_key
from privrl.privacy.store.releases import AfterCrash
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.recipes.recipe import Problem, Recipe
from privrl.studies.result import Result, check_folder
from privrl.studies.simulated import baseline_values, sampled

_WORLD = "Simulated world"
_LARGE_DELTA = 1e-5
_SIMULATED = ("episodes", "seeds", "env_arg", "env_seed")
_COMPARED = ("evaluate", "practice", "return_bound", "require_better")
_KEPT = ("store", "store_head")
Opened = Callable[[], contextlib.AbstractContextManager[privrl.ReleaseStore | None]]


def fit(
    data: Annotated[str, typer.Argument(help="A Parquet file, a folder of them, or env:NAME for simulated people.")],
    recipe: Annotated[str, typer.Option("--recipe", help="What to learn with; see `privrl list recipes`.")],
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    adjacency: AdjacencyOption = "replace-one",
    unit: UnitOption = None,
    episode: EpisodeOption = None,
    step: StepOption = None,
    state: StateOption = None,
    action: ActionOption = None,
    reward: RewardOption = None,
    next_state: NextStateOption = None,
    terminated: TerminatedOption = None,
    horizon: HorizonOption = None,
    num_states: NumStatesOption = None,
    num_actions: NumActionsOption = None,
    terminal: TerminalOption = None,
    rewards_at_end: RewardsAtEndOption = False,
    max_episodes_per_unit: MaxEpisodesOption = None,
    sort: SortOption = False,
    unit_noun: UnitNounOption = None,
    evaluate: EvaluateOption = None,
    practice: PracticeOption = None,
    dial: DialOption = 1.5,
    deviation: DeviationOption = 4.0,
    return_bound: ReturnBoundOption = None,
    require_better: RequireBetterOption = False,
    episodes: Annotated[
        int | None, typer.Option("--episodes", help="How many people to simulate.", rich_help_panel=_WORLD)
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="How many repetitions (1 unless given).", rich_help_panel=_WORLD)
    ] = None,
    env_arg: EnvArgOption = None,
    env_seed: EnvSeedOption = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Replays a simulation. On a table of real people leave it out."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", help="File that keeps every release, so that a killed fit can go on where it was."),
    ] = None,
    store_head: StoreHeadOption = None,
    after_crash: Annotated[
        AfterCrash,
        typer.Option("--after-crash", help="What becomes of a release that a crash interrupted."),
    ] = "burn",
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the policy and its certificate; required for a table.")
    ] = None,
    sign: Annotated[
        Path | None, typer.Option("--sign", help="PEM file with an Ed25519 private key: sign the certificate.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Learn a policy from a table of people (or simulated ones) and certify what it reveals."""
    options = dict(locals())
    chosen = recipe_of(recipe, "offline", "functional")
    privatizer = privatizer_of(chosen, epsilon, delta, rho, adjacency)
    if out is not None:
        check_folder(out)  # before anything is spent, and so is the key
    elif sign is not None:
        raise ValueError("`--sign` signs what is saved; say where with `--out`.")
    key = None if sign is None else read_private_key(sign)
    table, world, kept, compared = (given(options, names) for names in (COLUMNS, _SIMULATED, _KEPT, _COMPARED))
    check_comparison(compared)
    comparison = None if evaluate is None else EvaluateOptions(evaluate, practice, dial, deviation, return_bound)
    if comparison is not None and chosen.family == "functional":
        raise ValueError(f"`{chosen.name}` has no people to hold out. Leave out `--evaluate`.")
    name = data.removeprefix("env:")
    if name != data:
        refuse(kept, "keeps the releases of real people; these are simulated")
        result, content = _on_world(chosen, privatizer, name, table, world, seed, comparison, unit_noun)
    else:
        _check_table(chosen, table, world, kept, out)
        opened: Opened = contextlib.nullcontext
        if store is not None:
            opened = partial(privrl.ReleaseStore, store, after_crash=after_crash, head=store_head)
        result, content = _on_table(chosen, privatizer, data, table, seed, opened, comparison, unit_noun)
    better = result.evaluation is not None and result.evaluation.verdict == "better"
    if require_better and not better:
        result = result.withheld("it was not shown to be better than practice, which was required")
    if key is not None:
        result = result.signed(key)
    if out is not None:
        if out.exists():
            complain(f"Replacing the result that was in `{out}`.")
        result.save(out)
    certificate = result.certificate.to_json()
    content = {
        "recipe": chosen.name,
        **{name: result.report[name] for name in ("users", "episodes") if name in result.report},
        **{name: certificate[name] for name in ("epsilon", "delta", "adjacency", "unit")},
        **{name: value for name, value in content.items() if name != "truth"},
        "evaluation": evaluation_json(result.evaluation, content.get("truth")),
        "certificate": certificate,
        "out": None if out is None else str(out),
    }
    if result.policy is None:
        content["policy"] = None
    _warn_of_delta(certificate["delta"], content.get("users"))
    if json:
        emit(content)
    else:
        _show(result, content)
    if require_better and not better:
        raise typer.Exit(NOT_BETTER)


def _warn_of_delta(delta: float, users: int | None) -> None:
    """Whether delta is too large: against the number of people where that is public, else against one number."""
    if users is None and delta > _LARGE_DELTA:
        complain(
            f"Warning: `delta` is {delta:g}, and the number of people is not public here. Choose one well below one "
            f"over that number; {_LARGE_DELTA:g} or less is usual."
        )
    if users is not None and delta * users > 1:
        complain("Warning: `delta` is above one over the number of people; choose a smaller one.")


def _check_table(
    recipe: Recipe, table: dict[str, Any], world: dict[str, Any], kept: dict[str, Any], out: Path | None
) -> None:
    """Refuses what does not go with a table, and a table of which too little is said."""
    if recipe.family == "functional":
        raise ValueError(
            f"`{recipe.name}` hides a reward function, not the people of a table. Use `env:interval-walk`."
        )
    refuse(world, "only makes sense with simulated people, `privrl fit env:NAME`")
    if "store" not in kept:
        refuse(kept, "belongs to a store, and `--store` is missing")
    missing = [flag(name) for name in REQUIRED if name not in table] + (["`--out`"] if out is None else [])
    if missing:
        raise ValueError(f"A table needs {', '.join(missing)} too. See `privrl fit --help`.")


def _on_table(
    recipe: Recipe,
    privatizer: AbstractPrivatizer,
    data: str,
    table: dict[str, Any],
    seed: int | None,
    opened: Opened,
    comparison: EvaluateOptions | None,
    noun: str | None,
) -> tuple[Result, dict[str, Any]]:
    ends, columns = ends_of(table), columns_of(table)
    episodes = privrl.data.read_parquet(data, seed=seed, **columns)
    one_each = privatizer.adjacency == "replace-one" and episodes.max_episodes_per_unit == 1
    share = 1.0 if comparison is None else 1.0 - comparison.share
    public = round(share * episodes.num_episodes) if one_each else None
    sizes = (table[name] for name in ("num_states", "num_actions", "horizon"))
    learner: Any = recipe.learner(Problem.of_table(*sizes, **ends, num_episodes=public))
    if comparison is not None:
        learner = comparison.learner(learner, ends)
    if seed is not None:
        complain("Warning: noise from a `--seed` can be replayed and protects nobody. Leave it out on real people.")
    key = None if seed is None else jax.random.key(fresh_seed(seed))
    with waiting(f"learning with {recipe.name}"), opened() as store:
        result = privrl.fit(episodes, learner, privatizer, key=key, unit=noun or table["unit"], store=store)
    report = {"recipe": recipe.name, **result.report, "table": table}
    return dataclasses.replace(result, report=report), {"seed": seed}


def _on_world(
    recipe: Recipe,
    privatizer: AbstractPrivatizer,
    name: str,
    table: dict[str, Any],
    world: dict[str, Any],
    seed: int | None,
    comparison: EvaluateOptions | None,
    noun: str | None,
) -> tuple[Result, dict[str, Any]]:
    """Every seed has its own people and its own noise; the result of the first one is kept."""
    functional = recipe.family == "functional"
    if functional:
        both = world | table
        refuse({k: both[k] for k in ("episodes", "unit") if k in both}, "speaks of people; the secret is a function")
    named = table.pop("unit", "user")
    unit = noun or named
    refuse(table, "describes a table; a simulated world has its own (see `--env-arg`)")
    episodes = world.get("episodes", recipe.episodes)
    if episodes is None and not functional:
        raise ValueError("Say with `--episodes` how many people to simulate.")
    seeds = world.get("seeds", 1)
    if seeds < 1 or (episodes is not None and episodes < 1):
        raise ValueError(f"`--episodes` is {episodes} and `--seeds` is {seeds}; both must be at least 1.")
    seed = fresh_seed(seed)
    env = env_of(name, world.get("env_arg"), world.get("env_seed"))
    public = episodes if privatizer.adjacency == "replace-one" else None
    if public is not None and comparison is not None:
        public = round((1.0 - comparison.share) * public)
    learner: Any = recipe.build(env, public)
    assert isinstance(env, OfflineEnv)
    if comparison is not None:
        ends = {"terminal": env.terminal, "rewards_at_end": Problem.of(env).rewards_at_end}
        learner = comparison.learner(learner, ends, env)
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
                result = privrl.fit(people, learner, privatizer, key=noise_key, unit=unit)
            values.append(float(value_of(result.policy if comparison is None else result.advice)))
            kept = kept or result
            advance("")
    assert kept is not None
    baselines = baseline_values(env)
    report = {"recipe": recipe.name, "env": env.name, "seed": seed, **kept.report, "value": values[0], **baselines}
    content = {
        "env": env.name,
        "env_seed": env.seed,
        "horizon": env.horizon,
        "seed": seed,
        "seeds": seeds,
        "value": values,
        "baselines": baselines,
        "exact": not isinstance(env, GridTable),
    }
    if comparison is not None:
        content["truth"] = truth_of(env, kept, key=simulation_key(seed))
    return dataclasses.replace(kept, report=report), content


def _reward_function(env: OfflineEnv) -> privrl.data.RewardFunction:
    """The secret of a simulated world: what it pays for arriving at a place."""
    if env.arrival is None:
        raise ValueError(
            f"`{env.name}` pays for states and actions; a reward that depends on the place alone is needed."
        )
    return privrl.data.RewardFunction(env.arrival)


def _show(result: Result, content: dict[str, Any]) -> None:
    if "value" in content:
        rows = [(content["recipe"], written(content["value"]))]
        rows += [(name, written([value])) for name, value in content["baselines"].items()]
        people = f"{content['episodes']:,} people, " if content.get("episodes") else ""
        known = "Exact" if content["exact"] else "Simulated"
        title = f"{known} value in {content['env']}, {people}seed {content['seed']}"
        show_table(title, ("policy", "value"), rows, numbers=1)
    say(str(result.certificate))
    if content["out"] and result.policy is None:
        say(f"Saved in {content['out']}: certificate.json. The budget is spent, and there is no policy.")
    elif content["out"]:
        say(f"Saved in {content['out']}: policy, certificate.json. Check it with `privrl certify {content['out']}`.")
    show_evaluation(result.evaluation, (content["evaluation"] or {}).get("truth"))
