"""`privrl fit`: a policy from a table of people, or from data sampled in a simulated world."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import privrl
from privrl.cli.next_pilot import suggest_pilot
from privrl.cli.options.budget_options import BudgetOptions
from privrl.cli.options.evaluation_options import (
    NOT_BETTER,
    ComparisonOptions,
    EvaluateOptions,
    SpendAnywayOption,
    decision_json,
    evaluation_json,
    show_decision,
    show_evaluation,
)
from privrl.cli.options.grouped import given, grouped, refuse
from privrl.cli.options.parsing import AdjacencyOption, DeltaOption, EpsilonOption, RhoOption, env_of
from privrl.cli.options.store_options import StoreOptions
from privrl.cli.options.study_options import RulesOption, StatedOptions, StudyNameOptions
from privrl.cli.options.table_options import PATHS, TableOptions
from privrl.cli.options.targets import OverwriteOption, check_folder, save
from privrl.cli.options.worker_options import WorkerOptions, waiting_for
from privrl.cli.options.world_options import WorldOptions
from privrl.cli.output import JsonOption, emit, say, show_table
from privrl.envs.patients.grid_table import GridTable
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.envs.worlds_by_name import AnyEnv
from privrl.plots.means import format_mean
from privrl.studies.results.result import KNOWN, Result

_WORLD = "env:"
_BASELINES = ("optimal", "uniform", "behaviour", "mode")


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
    paying: BudgetOptions,
    named: StudyNameOptions,
    stated: StatedOptions,
    crew: WorkerOptions,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    adjacency: AdjacencyOption = "replace-one",
    rules: RulesOption = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Replays a simulation. On a table of real people leave it out."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the policy and its certificate; required for a table.")
    ] = None,
    overwrite: OverwriteOption = False,
    spend_anyway: SpendAnywayOption = False,
    sign: Annotated[
        Path | None, typer.Option("--sign", help="PEM file with an Ed25519 private key: sign the certificate.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Learn a policy from a table of people (or simulated ones) and certify what it reveals."""
    if out is not None:
        check_folder(context, out, KNOWN, overwrite=overwrite)
    elif sign is not None:
        raise ValueError("`--sign` signs what is saved; say where with `--out`.")
    names = named.read()
    arguments: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "rho": rho,
        "adjacency": adjacency,
        **wanted.arguments(comparison),
        **dataclasses.asdict(stated),
        "state_names": names.states,
        "action_names": names.actions,
        "rules": rules,
        "sign": sign,
    }
    world_name = _world_of(data)
    if world_name is None:
        refuse(given(world), "only makes sense with simulated people, `privrl fit env:NAME`")
        crew.check_seed(seed)
        if out is None:
            raise ValueError("A table needs `--out` too, a folder for the policy. See `privrl fit --help`.")
        arguments |= {"schema": table.description, "key": seed, "unit": named.unit_noun, "spend_anyway": spend_anyway}
        with crew.opened() as executor, waiting_for(f"learning with {recipe}", executor), kept.opened() as store:
            result = privrl.fit(data, recipe, **arguments, store=store, executor=executor, budget=paying.shared)
        found: dict[str, Any] = {"seed": seed, "rules": result.report["rules"]}
    else:
        refuse(given(kept, ("store", "store_log")), "keeps the releases of real people; these are simulated")
        refuse(given(paying), "pays for studies of real people; these are simulated")
        refuse(given(crew), "shares out the files of a table, and these people are simulated")
        described = given(table)
        unit = described.pop("unit", None)
        refuse(described, "describes a table; a simulated world has its own (see `--env-arg`)")
        env = env_of(world_name, world.env_arg, world.env_seed)
        seeds = 1 if world.seeds is None else world.seeds
        arguments |= {"episodes": world.episodes, "seeds": seeds, "key": seed, "unit": named.unit_noun or unit}
        with waiting_for(f"learning with {recipe}", None):
            result = privrl.fit(env, recipe, **arguments)
        found = _facts(env, result, seeds)
    if out is not None:
        save(out, partial(result.save, overwrite=overwrite))
    content = _content(result, found, out)
    if json:
        emit(content)
    else:
        _show(result, content)
    if wanted.require_better and result.policy is None:
        raise typer.Exit(NOT_BETTER)


def _world_of(data: list[str]) -> str | None:
    """The name of a simulated world, if people come from one."""
    if not any(path.startswith(_WORLD) for path in data):
        return None
    if len(data) > 1:
        raise ValueError(f"`{_WORLD}NAME` is a simulated world, and cannot be one of several paths. Give it alone.")
    return data[0].removeprefix(_WORLD)


def _facts(env: AnyEnv, result: Result, seeds: int) -> dict[str, Any]:
    """What the command reports about a simulated world."""
    report = result.report
    return {
        "env": env.name,
        "env_seed": env.seed,
        "horizon": env.horizon,
        "seed": report["seed"],
        "seeds": seeds,
        **({"value": report.get("value_by_seed", [report["value"]])} if "value" in report else {}),
        "baselines": {name: report[name] for name in _BASELINES if name in report},
        "exact": not isinstance(env, GridTable | AbstractPatients),
        "rules": report.get("rules", []),
    }


def _content(result: Result, found: dict[str, Any], out: Path | None) -> dict[str, Any]:
    """What the command says, as JSON."""
    place = None if result.policy is None else "POLICY" if out is None else str(out)
    pilot = (
        None if result.evaluation is None else suggest_pilot(result.evaluation, result.certificate.return_range, place)
    )
    certificate = result.certificate.to_json()
    return {
        **decision_json(result.decision),
        **{name: result.report[name] for name in ("recipe", "users", "episodes") if name in result.report},
        **{name: certificate[name] for name in ("epsilon", "delta", "adjacency", "unit")},
        **found,
        "evaluation": evaluation_json(result.evaluation, result.facts.get("truth")),
        **({} if pilot is None else {"pilot": pilot.to_json()}),
        "certificate": certificate,
        "out": None if out is None else str(out),
        **({"policy": None} if result.policy is None else {}),
    }


def _show(result: Result, content: dict[str, Any]) -> None:
    show_decision(result.decision, result.evaluation)
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
    if "pilot" in content:
        say(content["pilot"]["sentence"])
