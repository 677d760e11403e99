"""`privrl run`: people who arrive one after another in a simulated world, exactly evaluated."""

import io
from pathlib import Path
from typing import Annotated, Any

import jax
import typer

import privrl
from privrl.cli.options import (
    AdjacencyOption,
    DeltaOption,
    EnvArgOption,
    EnvSeedOption,
    EpsilonOption,
    JsonOption,
    Neighbours,
    RhoOption,
    env_of,
    fresh_seed,
    privatizer_of,
    recipe_of,
)
from privrl.cli.output import emit, say, show_table, waiting
from privrl.envs.base import Env
from privrl.envs.lq import LQEnv
from privrl.figures.numbers import written
from privrl.figures.plots import regret_figure
from privrl.studies.result import Run

_PLOTS = (".png", ".svg", ".pdf")


def run(
    recipe: Annotated[str, typer.Argument(help="What to learn with; see `privrl list recipes`.")],
    env: Annotated[str, typer.Option("--env", help="The world; see `privrl list envs`.")],
    episodes: Annotated[int, typer.Option("--episodes", help="How many people take part, one episode each.")],
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    adjacency: AdjacencyOption = Neighbours.replace_one,
    seeds: Annotated[int, typer.Option("--seeds", help="How many repetitions, run together.")] = 1,
    seed: Annotated[int | None, typer.Option("--seed", help="Replays a simulation; random unless given.")] = None,
    env_arg: EnvArgOption = None,
    env_seed: EnvSeedOption = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write the regret curve to this .png, .svg or .pdf file.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Simulate online learning and report the exact regret."""
    chosen = recipe_of(recipe, "online", "control")
    privatizer = privatizer_of(chosen, epsilon, delta, rho, adjacency)
    if plot is not None:
        _check_plot(plot)
    world = env_of(env, env_arg, env_seed)
    learner = chosen.build(world)
    seed = fresh_seed(seed)
    with waiting(f"{chosen.name} on {world.name}: {episodes:,} people, {seeds} seeds"):
        result = privrl.run(
            world,
            learner,
            privatizer,
            episodes=episodes,
            seeds=seeds,
            key=jax.random.key(seed),
        )
    certificate = result.certificate.to_json()
    content = {
        "recipe": chosen.name,
        "env": world.name,
        "env_seed": world.seed,
        "episodes": episodes,
        "horizon": world.horizon,
        "epsilon": certificate["epsilon"],
        "delta": certificate["delta"],
        "adjacency": certificate["adjacency"],
        "seeds": seeds,
        "seed": seed,
        "regret": result.total_regret.tolist(),
        "curve": result.curve(),
        "baselines": _baselines(world, episodes),
        "certificate": certificate,
        "seconds": result.seconds,
    }
    if plot is not None:
        _plot(plot, content)
    if json:
        emit(content)
    else:
        _show(result, content, plot)


def _baselines(env: Env | LQEnv, episodes: int) -> dict[str, float]:
    """The total regret of policies that never learn, the first one as a measure, and the value of the best."""
    if isinstance(env, LQEnv):
        never_learn = {"zero": float(env.regret(env.zero_policy()))}
    else:
        myopic = float(env.regret(env.myopic_policy()))
        never_learn = {"uniform": float(env.regret(env.uniform_policy())), "myopic": myopic}
    return {name: episodes * each for name, each in never_learn.items()} | {"optimal_value": float(env.optimal_value)}


def _never_learn(content: dict[str, Any]) -> dict[str, float]:
    return {name: total for name, total in content["baselines"].items() if name != "optimal_value"}


def _check_plot(plot: Path) -> None:
    if plot.suffix not in _PLOTS:
        raise ValueError(f"`--plot` is `{plot}`; its name must end in {', '.join(_PLOTS)}.")
    if not plot.absolute().parent.is_dir():
        raise ValueError(f"`--plot` is `{plot}`, but there is no folder `{plot.parent}`. Make it first.")


def _plot(plot: Path, content: dict[str, Any]) -> None:
    figure = regret_figure(content["curve"], _never_learn(content), f"{content['recipe']} on {content['env']}")
    drawn = io.BytesIO()
    figure.savefig(drawn, format=plot.suffix[1:], dpi=200)
    plot.write_bytes(drawn.getvalue())  # only once it is complete


def _show(result: Run, content: dict[str, Any], plot: Path | None) -> None:
    others = _never_learn(content)
    measure = next(iter(others))

    def against(total: float) -> str:
        return f"{total / others[measure]:.3f}" if others[measure] > 0 else "-"

    mean = sum(content["regret"]) / len(content["regret"])
    rows = [(content["recipe"], written(content["regret"], 2), against(mean))]
    rows += [(name, written([total], 2), against(total)) for name, total in others.items()]
    title = (
        f"{content['env']}, {content['episodes']:,} people, {content['seeds']} seeds from {content['seed']}, "
        f"{content['seconds']:.1f} s"
    )
    show_table(title, ("policy", "total regret", f"over {measure}"), rows, numbers=2)
    say(str(result.certificate))
    if plot is not None:
        say(f"The regret curve is in {plot}.")
