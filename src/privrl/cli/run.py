"""`privrl run`: people who arrive one after another in a simulated world, exactly evaluated."""

import inspect
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer
from pyarrow import concat_tables
from pyarrow.csv import write_csv

import privrl
from privrl.cli.options.arrival_options import ComingOptions
from privrl.cli.options.grouped import grouped
from privrl.cli.options.parsing import (
    AdjacencyOption,
    DeltaOption,
    EnvArgOption,
    EnvSeedOption,
    RhoOption,
    env_of,
    fresh_seed,
)
from privrl.cli.options.targets import OverwriteOption, check_file
from privrl.cli.options.worker_options import WorkerOptions, waiting_for
from privrl.cli.output import JsonOption, emit, say, show_table
from privrl.envs.base import Env
from privrl.envs.lq_worlds import LQEnv
from privrl.figures.finished_cells import describe_code
from privrl.plots.charts import draw_regret
from privrl.plots.means import format_mean
from privrl.plots.style import to_file
from privrl.recipes.pairing import recipe_named
from privrl.studies.results.run_result import Run
from privrl.writing import whole_file

_NEVER_LEARN = ("zero", "uniform", "myopic")


@grouped
def run(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="What to learn with; see `privrl list recipes`.")],
    env: Annotated[str, typer.Option("--env", help="The world; see `privrl list envs`.")],
    episodes: Annotated[int, typer.Option("--episodes", help="How many episodes there are, one for each person.")],
    crew: WorkerOptions,
    coming: ComingOptions,
    epsilon: Annotated[
        str | None,
        typer.Option(
            "--epsilon",
            help="Privacy budget; without --delta it is pure. Several, as 1,3,10, are run one after another.",
            rich_help_panel="Privacy budget",
        ),
    ] = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    adjacency: AdjacencyOption = "replace-one",
    seeds: Annotated[int, typer.Option("--seeds", help="How many repetitions, run together.")] = 1,
    seeds_per_program: Annotated[
        int | None,
        typer.Option(
            "--seeds-per-program",
            help="The largest number of seeds compiled together; by default 32 on a CPU, and all on an accelerator "
            "whose memory suffices.",
            min=1,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Replays a simulation; random unless given.")] = None,
    env_arg: EnvArgOption = None,
    env_seed: EnvSeedOption = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write the regret curves to this .png, .svg or .pdf file.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Write a row for each budget, seed and block to this .csv file.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder that keeps finished budgets. The same command with --seed continues there; --overwrite runs "
            "again what was made with other settings or other code.",
        ),
    ] = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Simulate online learning and report the exact regret."""
    if plot is not None:
        check_file(context, plot, overwrite=overwrite, endings=(".png", ".svg", ".pdf"))
    if csv is not None:
        check_file(context, csv, overwrite=overwrite, endings=(".csv",))
    if out is not None and seed is None:
        raise ValueError("`--out` continues a simulation, which needs the same seed. Add `--seed`.")
    world = env_of(env, env_arg, env_seed)
    seed = fresh_seed(seed)
    how = {"episodes": episodes, "seeds": seeds, "seeds_per_program": seeds_per_program, **coming.arguments}
    facts = {
        "recipe": recipe,
        "env": world.name,
        "env_args": sorted(env_arg or ()),
        "env_seed": world.seed,
        "episodes": episodes,
        **coming.facts,
        "delta": delta,
        "rho": rho,
        "adjacency": adjacency,
        "seeds": seeds,
        "seed": seed,
    }
    code = None if out is None else _code(recipe)
    simulated: dict[str, Run] = {}
    with crew.opened() as executor:
        for budget in _budgets(epsilon):
            name = f"{recipe}" if budget is None else f"epsilon {budget:g}"
            kept = None if out is None else out / name.replace(" ", "-")
            written = dumps({**facts, "epsilon": budget, "code": code}, sort_keys=True)
            if kept is not None and (finished := _finished(kept, written, overwrite)) is not None:
                simulated[name] = finished
                continue
            what = f"{recipe} on {world.name}: {episodes:,} people, {seeds} seeds"
            with waiting_for(what, executor):
                simulated[name] = privrl.run(
                    world,
                    recipe,
                    key=seed,
                    executor=executor,
                    epsilon=budget,
                    delta=delta,
                    rho=rho,
                    adjacency=adjacency,
                    **how,
                )
            if kept is not None:
                simulated[name].save(kept, facts=written)
    assert isinstance(world, Env | LQEnv)
    policies: dict[str, Any] = world.fixed_policies()
    never_learn = {name: world.total_regret(policies[name], episodes) for name in _NEVER_LEARN if name in policies}
    described = {**facts, "horizon": world.horizon}
    contents = [_content(result, described, never_learn, float(world.optimal_value)) for result in simulated.values()]
    if plot is not None:
        curves = {name: result.curve() for name, result in simulated.items()}
        figure = draw_regret(curves, never_learn, f"{recipe} on {world.name}")
        with whole_file(plot, overwrite=overwrite) as file:
            file.write_bytes(to_file(figure, plot.suffix[1:]))
    if csv is not None:
        with whole_file(csv, overwrite=overwrite) as file:
            write_csv(concat_tables([result.table() for result in simulated.values()]), file)
    if json:
        emit(contents[0] if len(contents) == 1 else {"runs": contents})
        return
    _show(simulated, described, never_learn)
    for path, content in ((plot, "regret curve is"), (csv, "rows are"), (out, "finished runs are")):
        if path is not None:
            say(f"The {content} in {path}.")


def _code(recipe: str) -> dict[str, str]:
    """What a simulation depends on besides its settings: the source of privrl, and that of the learner's module."""
    found = recipe_named(recipe, "online", "control")
    assert found is not None
    module = inspect.getmodule(found.algorithm.learner)
    assert module is not None
    return describe_code() | {"learner": sha256(inspect.getsource(module).encode()).hexdigest()[:16]}


def _finished(folder: Path, facts: str, overwrite: bool) -> Run | None:
    """The run that the folder holds; `None` if there is none, or one to be replaced."""
    if not folder.is_dir():
        return None
    try:
        return Run.load(folder, facts=facts)
    except ValueError as error:
        if overwrite:
            return None
        raise ValueError(f"{error} Or add `--overwrite` to run it again.") from error


def _budgets(epsilon: str | None) -> list[float | None]:
    """The budgets of `--epsilon`, in the order in which they were given."""
    if epsilon is None:
        return [None]
    try:
        found = [float(part) for part in epsilon.split(",")]
    except ValueError:
        raise ValueError(f"`--epsilon` is {epsilon!r}; write a number, or several as 1,3,10.") from None
    if len(set(found)) < len(found):
        raise ValueError(f"`--epsilon` is {epsilon!r}; give every budget once.")
    return [*found]


def _content(result: Run, facts: dict[str, Any], never_learn: dict[str, float], optimal_value: float) -> dict[str, Any]:
    """One simulation for JSON."""
    certificate = result.certificate.to_json()
    return {
        **facts,
        **{name: certificate[name] for name in ("epsilon", "delta", "adjacency")},
        "regret": result.total_regret.tolist(),
        "curve": result.curve(),
        "baselines": never_learn | {"optimal_value": optimal_value},
        "certificate": certificate,
        "seconds": result.seconds,
    }


def _show(simulated: dict[str, Run], facts: dict[str, Any], others: dict[str, float]) -> None:
    """The total regret above that of policies that never learn; the first of these is the measure."""
    measure = next(iter(others))

    def against(total: float) -> str:
        return f"{total / others[measure]:.3f}" if others[measure] > 0 else "-"

    several = len(simulated) > 1
    rows = [
        (
            f"{facts['recipe']}, {name}" if several else facts["recipe"],
            format_mean(result.total_regret.tolist(), 2),
            against(float(result.total_regret.mean())),
        )
        for name, result in simulated.items()
    ]
    rows += [(name, format_mean([total], 2), against(total)) for name, total in others.items()]
    title = (
        f"{facts['env']}, {facts['episodes']:,} people, {facts['seeds']} seeds from {facts['seed']}, "
        f"{sum(result.seconds for result in simulated.values()):.1f} s"
    )
    show_table(title, ("policy", "total regret", f"over {measure}"), rows, numbers=2)
    for result in simulated.values():
        say(str(result.certificate))
