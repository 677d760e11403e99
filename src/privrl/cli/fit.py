"""`privrl fit`: a policy from a table of people, or from data sampled in a simulated world."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jax
import typer

import privrl
from privrl.cli.fit_world import WorldOptions, fit_world, world_noun
from privrl.cli.options.evaluation_options import (
    NOT_BETTER,
    ComparisonOptions,
    EvaluateOptions,
    check_comparison,
    evaluation_json,
    show_evaluation,
)
from privrl.cli.options.grouped import given, grouped, refuse
from privrl.cli.options.parsing import (
    AdjacencyOption,
    DeltaOption,
    EpsilonOption,
    RhoOption,
    fresh_seed,
    privatizer_of,
    recipe_of,
)
from privrl.cli.options.store_options import StoreOptions
from privrl.cli.options.study_options import StatedOptions, StudyNameOptions
from privrl.cli.options.table_options import PATHS, TableOptions
from privrl.cli.options.targets import OverwriteOption, check_folder, save
from privrl.cli.options.worker_options import WorkerOptions, waiting_for
from privrl.cli.output import JsonOption, complain, emit, say, show_table
from privrl.data.dataset import AbstractDataset
from privrl.data.tables.shards import ShardedEpisodes
from privrl.executors.executor import AbstractExecutor
from privrl.plots.means import format_mean
from privrl.privacy.accounting.signature import read_private_key
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.recipes.recipe import MeasuredProblem, Problem, Recipe
from privrl.studies.results.result import KNOWN, Result

_LARGE_DELTA = 1e-5
_WORLD = "env:"


@grouped
def fit(
    context: typer.Context,
    data: Annotated[list[str], typer.Argument(help=f"{PATHS}; or env:NAME for simulated people.")],
    recipe: Annotated[str, typer.Option("--recipe", help="What to learn with; see `privrl list recipes`.")],
    table: TableOptions,
    wanted: EvaluateOptions,
    comparison: ComparisonOptions,
    world: WorldOptions,
    kept: StoreOptions,
    named: StudyNameOptions,
    stated: StatedOptions,
    crew: WorkerOptions,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    adjacency: AdjacencyOption = "replace-one",
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Replays a simulation. On a table of real people leave it out."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the policy and its certificate; required for a table.")
    ] = None,
    overwrite: OverwriteOption = False,
    sign: Annotated[
        Path | None, typer.Option("--sign", help="PEM file with an Ed25519 private key: sign the certificate.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Learn a policy from a table of people (or simulated ones) and certify what it reveals."""
    chosen = recipe_of(recipe, "offline", "measured", "functional")
    privatizer = privatizer_of(chosen, epsilon, delta, rho, adjacency)
    if out is not None:
        check_folder(context, out, KNOWN, overwrite=overwrite)  # before anything is spent, and so is the key
    elif sign is not None:
        raise ValueError("`--sign` signs what is saved; say where with `--out`.")
    key = None if sign is None else read_private_key(sign)
    table = table.resolved()
    names = named.read().fill_from(table.action_words)
    stated.check()
    check_comparison(wanted, comparison)
    if wanted.evaluate is not None and chosen.family == "functional":
        raise ValueError(f"`{chosen.name}` has no people to hold out. Leave out `--evaluate`.")
    world_name = _world_of(data)
    if world_name is not None:
        refuse(given(kept, ("store", "store_log")), "keeps the releases of real people; these are simulated")
        refuse(given(crew), "shares out the files of a table, and these people are simulated")
        noun = world_noun(chosen, table, named.unit_noun)
        compared = (wanted, comparison)
        result, content = fit_world(chosen, privatizer, world_name, world, seed, *compared, noun)
    else:
        _check_table(chosen, table, world, out)
        crew.check_seed(seed)
        compared = (wanted, comparison)
        with crew.opened() as executor:
            how = (seed, kept, executor)
            result, content = _on_table(chosen, privatizer, data, table, *how, *compared, named.unit_noun)
    result, content = _with_choice(result, content)
    better = result.evaluation is not None and result.evaluation.verdict == "better"
    if wanted.require_better and not better:
        result = result.withheld("it was not shown to be better than practice, which was required")
    result = result.reporting({**result.report, **({"names": names.to_json()} if names.to_json() else {})})
    result = dataclasses.replace(result, certificate=stated.on(result.certificate))
    if key is not None:
        result = result.signed(key)
    if out is not None:
        save(out, partial(result.save, overwrite=overwrite))
    content = _content(chosen, result, content, out)
    _warn_of_delta(content["delta"], content.get("users"))
    if json:
        emit(content)
    else:
        _show(result, content)
    if wanted.require_better and not better:
        raise typer.Exit(NOT_BETTER)


def _world_of(data: list[str]) -> str | None:
    """The name of a simulated world, if people come from one."""
    if not any(path.startswith(_WORLD) for path in data):
        return None
    if len(data) > 1:
        raise ValueError(f"`{_WORLD}NAME` is a simulated world, and cannot be one of several paths. Give it alone.")
    return data[0].removeprefix(_WORLD)


def _with_choice(result: Result, content: dict[str, Any]) -> tuple[Result, dict[str, Any]]:
    """What was chosen, or why nothing was, among the rules that the output and the report state."""
    if "choice" not in result.report:
        return result, content
    rules = [*content.get("rules", ()), result.report["choice"]]
    return result.reporting({**result.report, "rules": rules}), {**content, "rules": rules}


def _content(recipe: Recipe, result: Result, found: dict[str, Any], out: Path | None) -> dict[str, Any]:
    """What the command says, as JSON."""
    certificate = result.certificate.to_json()
    return {
        "recipe": recipe.name,
        **{name: result.report[name] for name in ("users", "episodes") if name in result.report},
        **{name: certificate[name] for name in ("epsilon", "delta", "adjacency", "unit")},
        **{name: value for name, value in found.items() if name != "truth"},
        "evaluation": evaluation_json(result.evaluation, found.get("truth")),
        "certificate": certificate,
        "out": None if out is None else str(out),
        **({"policy": None} if result.policy is None else {}),
    }


def _warn_of_delta(delta: float, users: int | None) -> None:
    """Whether delta is too large: against the number of people where that is public, else against one number."""
    if users is None and delta > _LARGE_DELTA:
        complain(
            f"Warning: `delta` is {delta:g}, and the number of people is not public here. Choose one well below one "
            f"over that number; {_LARGE_DELTA:g} or less is usual."
        )
    if users is not None and delta * users > 1:
        complain("Warning: `delta` is above one over the number of people; choose a smaller one.")


def _check_table(recipe: Recipe, table: TableOptions, world: WorldOptions, out: Path | None) -> None:
    """Refuses what does not go with a table, and a table of which too little is said."""
    if recipe.family == "functional":
        raise ValueError(
            f"`{recipe.name}` hides a reward function, not the people of a table. Use `env:interval-walk`."
        )
    refuse(given(world), "only makes sense with simulated people, `privrl fit env:NAME`")
    if table.measured and recipe.family == "offline":
        raise ValueError(
            f"`{recipe.name}` learns from numbered states, and `--feature` or `--category` declares measurements. Use "
            "`--recipe dp-lap`, or discretise the measurements into one column of numbers with public rules, and name "
            "it with `--state`."
        )
    if recipe.family == "measured" and not table.measured:
        raise ValueError(
            f"`{recipe.name}` learns from measurements. Declare their columns with `--feature NAME:LO..HI` and "
            "`--category NAME:a,b,c`, or in a file with `--schema`; for numbered states use `--recipe dp-tdfp`."
        )
    missing = table.missing + (["`--out`"] if out is None else [])
    if missing:
        raise ValueError(f"A table needs {', '.join(missing)} too. See `privrl fit --help`.")


def _on_table(
    recipe: Recipe,
    privatizer: AbstractPrivatizer,
    data: list[str],
    table: TableOptions,
    seed: int | None,
    kept: StoreOptions,
    executor: AbstractExecutor | None,
    wanted: EvaluateOptions,
    comparison: ComparisonOptions,
    noun: str | None,
) -> tuple[Result, dict[str, Any]]:
    ends = table.ends
    episodes: AbstractDataset = privrl.data.read_parquet(data, seed=seed, **table.columns)
    if executor is not None:
        episodes = ShardedEpisodes.from_dataset(episodes, executor)  # so that workers count people, too
    one_each = privatizer.adjacency == "replace-one" and episodes.max_episodes_per_unit == 1
    problem: Problem | MeasuredProblem
    if table.measured:
        sizes = (episodes.features, episodes.num_actions, episodes.horizon)
        problem = MeasuredProblem(*sizes, rewards_at_end=ends["rewards_at_end"], products=table.products)
    else:
        public = round((1.0 - (wanted.evaluate or 0.0)) * episodes.num_episodes) if one_each else None
        problem = Problem.of_table(*table.sizes, **ends, num_episodes=public)
    learner: Any = recipe.learner(problem)
    compared = wanted.arguments(learner, comparison, ends)
    if seed is not None:
        complain("Warning: noise from a `--seed` can be replayed and protects nobody. Leave it out on real people.")
    key = None if seed is None else jax.random.key(fresh_seed(seed))
    unit = noun or table.unit
    assert unit is not None
    with waiting_for(f"learning with {recipe.name}", executor), kept.opened() as store:
        result = privrl.fit(episodes, learner, privatizer, **compared, key=key, unit=unit, store=store)
    rules = table.rules(unit)
    report = {"recipe": recipe.name, **result.report, "table": given(table), "rules": rules}
    return result.reporting(report), {"seed": seed, "rules": rules}


def _show(result: Result, content: dict[str, Any]) -> None:
    if "value" in content:
        rows = [(content["recipe"], format_mean(content["value"]))]
        rows += [(name, format_mean([value])) for name, value in content["baselines"].items()]
        people = f"{content['episodes']:,} people, " if content.get("episodes") else ""
        known = "Exact" if content["exact"] else "Simulated"
        title = f"{known} value in {content['env']}, {people}seed {content['seed']}"
        show_table(title, ("policy", "value"), rows, numbers=1)
    say(str(result.certificate))
    for rule in content.get("rules", ()):
        say(rule)
    if content["out"] and result.policy is None:
        say(f"Saved in {content['out']}: certificate.json. The budget is spent, and there is no policy.")
    elif content["out"]:
        say(f"Saved in {content['out']}: policy, certificate.json. Check it with `privrl certify {content['out']}`.")
    show_evaluation(result.evaluation, (content["evaluation"] or {}).get("truth"))
