"""`privrl list`: recipes, worlds and figures."""

from collections.abc import Callable
from typing import Annotated, Literal

import typer

from privrl.cli.output import JsonOption, emit, show_table
from privrl.envs.worlds_by_name import names
from privrl.envs.zoo.catalogue import CHOOSING, WORLDS
from privrl.figures.all_figures import figures
from privrl.recipes.all_recipes import all_recipes

_LISTED: dict[str, Callable[[], list[dict[str, str]]]] = {
    "recipes": lambda: [
        {"name": r.name, "family": r.family, "trust": r.trust, "summary": r.summary} for r in all_recipes().values()
    ],
    "envs": lambda: [{"name": name, "summary": summary} for name, summary in names().items()],
    "figures": lambda: [{"name": f.name, "paper": f.paper, "summary": f.summary} for f in figures.values()],
}


def _zoo() -> list[dict[str, str]]:
    """The offline worlds: which list they are on, and the values of practice and of the best policy."""
    return [
        {
            "name": world.name,
            "for": "choosing" if world.name in CHOOSING else "reporting",
            "practice": f"{world.practice:.4f}",
            "best": f"{world.best:.4f}",
            "summary": f"{world.kind}: {world.summary}",
        }
        for world in WORLDS.values()
    ]


def list_(
    what: Annotated[Literal["recipes", "envs", "figures"], typer.Argument(help="recipes, envs or figures")],
    offline: Annotated[
        bool, typer.Option("--offline", help="Only the worlds of the zoo, with their known values; `envs` alone.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List what there is, with one line each."""
    if offline and what != "envs":
        raise ValueError(f"`--offline` applies to worlds, not to {what}. Use `privrl list envs --offline`.")
    entries = _zoo() if offline else _LISTED[what]()
    if json:
        emit({what: entries})
    else:
        show_table(what, list(entries[0]), [list(entry.values()) for entry in entries])
