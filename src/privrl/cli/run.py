"""`privrl run`: people who arrive one after another in a simulated world, exactly evaluated."""

from pathlib import Path
from typing import Annotated, Any

import typer

import privrl
from privrl.cli.options.arrival_options import ComingOptions
from privrl.cli.options.grouped import grouped
from privrl.cli.options.parsing import (
    AdjacencyOption,
    DeltaOption,
    EnvArgOption,
    EnvSeedOption,
    EpsilonOption,
    RhoOption,
    env_of,
    fresh_seed,
)
from privrl.cli.options.targets import OverwriteOption, check_file
from privrl.cli.options.worker_options import WorkerOptions, waiting_for
from privrl.cli.output import JsonOption, emit, say, show_table
from privrl.envs.base import Env
from privrl.envs.lq_worlds import LQEnv
from privrl.plots.charts import draw_regret
from privrl.plots.means import format_mean
from privrl.plots.style import to_file
from privrl.studies.results.result import Run
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
    epsilon: EpsilonOption = None,
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
        Path | None, typer.Option("--plot", help="Write the regret curve to this .png, .svg or .pdf file.")
    ] = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Simulate online learning and report the exact regret."""
    if plot is not None:
        check_file(context, plot, overwrite=overwrite, endings=(".png", ".svg", ".pdf"))
    world = env_of(env, env_arg, env_seed)
    seed = fresh_seed(seed)
    what = f"{recipe} on {world.name}: {episodes:,} people, {seeds} seeds"
    how = {"episodes": episodes, "seeds": seeds, "seeds_per_program": seeds_per_program, **coming.arguments}
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rho": rho, "adjacency": adjacency}
    with crew.opened() as executor, waiting_for(what, executor):
        result = privrl.run(world, recipe, key=seed, executor=executor, **budget, **how)
    assert isinstance(world, Env | LQEnv)
    certificate = result.certificate.to_json()
    policies: dict[str, Any] = world.fixed_policies()
    never_learn = {name: world.total_regret(policies[name], episodes) for name in _NEVER_LEARN if name in policies}
    content = {
        "recipe": recipe,
        "env": world.name,
        "env_seed": world.seed,
        "episodes": episodes,
        **coming.facts,
        "horizon": world.horizon,
        **{name: certificate[name] for name in ("epsilon", "delta", "adjacency")},
        "seeds": seeds,
        "seed": seed,
        "regret": result.total_regret.tolist(),
        "curve": result.curve(),
        "baselines": never_learn | {"optimal_value": float(world.optimal_value)},
        "certificate": certificate,
        "seconds": result.seconds,
    }
    if plot is not None:
        figure = draw_regret(content["curve"], never_learn, f"{recipe} on {world.name}")
        with whole_file(plot, overwrite=overwrite) as file:
            file.write_bytes(to_file(figure, plot.suffix[1:]))
    if json:
        emit(content)
    else:
        _show(result, content, never_learn, plot)


def _show(result: Run, content: dict[str, Any], others: dict[str, float], plot: Path | None) -> None:
    """The total regret beside that of policies that never learn; the first of these is the measure."""
    measure = next(iter(others))

    def against(total: float) -> str:
        return f"{total / others[measure]:.3f}" if others[measure] > 0 else "-"

    mean = sum(content["regret"]) / len(content["regret"])
    rows = [(content["recipe"], format_mean(content["regret"], 2), against(mean))]
    rows += [(name, format_mean([total], 2), against(total)) for name, total in others.items()]
    title = (
        f"{content['env']}, {content['episodes']:,} people, {content['seeds']} seeds from {content['seed']}, "
        f"{content['seconds']:.1f} s"
    )
    show_table(title, ("policy", "total regret", f"over {measure}"), rows, numbers=2)
    say(str(result.certificate))
    if plot is not None:
        say(f"The regret curve is in {plot}.")
