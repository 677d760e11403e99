"""`privrl reproduce`: a paper's figure, or one of ours, from one command: data, plot, and a verdict per claim."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from privrl.cli.compilation import keep_compiled_programs
from privrl.cli.options.grouped import grouped
from privrl.cli.options.parsing import fresh_seed
from privrl.cli.options.targets import check_file
from privrl.cli.options.worker_options import WorkerOptions
from privrl.cli.output import JsonOption, complain, emit, progress, say, show_table
from privrl.figures.all_figures import get
from privrl.figures.figure import ABOUT, SEED, Reproduction, check_figure_folder, plan_cells
from privrl.figures.figure import reproduce as reproduce_figure

_MOST_WORKERS = 4  # unless asked for; every process holds a world and a compiler


@grouped
def reproduce(
    context: typer.Context,
    figure: Annotated[str, typer.Argument(help="A name from `privrl list figures`.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of this figure; finished parts in it are not run again.")],
    crew: WorkerOptions,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="A tiny part in about ten seconds: it works, and nothing is judged.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of the whole figure; every part has its own from it.")] = SEED,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run everything again.")] = False,
    json: JsonOption = False,
) -> None:
    """Reproduce a figure: run it, draw it, and judge every claim about it."""
    chosen = get(figure)
    if crew.workers is None and crew.dask is None and not smoke:
        crew = replace(crew, workers=min(len(os.sched_getaffinity(0)), _MOST_WORKERS))
    if crew.workers == 1:
        crew = replace(crew, workers=None)  # what one process would do is done here
    seed = fresh_seed(seed)
    check_figure_folder(chosen, out)
    check_file(context, out / ABOUT, overwrite=True)  # a folder of the same figure is completed
    keep_compiled_programs()
    with crew.opened() as executor, progress(chosen.name, len(plan_cells(chosen, smoke))) as advance:
        done = reproduce_figure(chosen, out, smoke=smoke, seed=seed, fresh=fresh, executor=executor, progress=advance)
    if done.changed:
        complain(f"Run again, since their settings have changed: {'; '.join(done.changed)}.")
    if done.older:
        complain(f"Kept, though made by other code than this (`--fresh` runs all again): {'; '.join(done.older)}.")
    if json:
        emit(done.to_json())
    else:
        _show(done)


def _show(done: Reproduction) -> None:
    title = f"{done.figure.name}: {done.figure.title} ({done.run} parts run, {done.kept} kept, {done.seconds:.0f} s)"
    if done.smoke:
        say(title)
        say("A smoke run: it works, and nothing is judged.")
    else:
        rows = [
            (claim.text, outcome.status, "" if outcome.number is None else f"{outcome.number:.3g}")
            for claim, outcome in done.outcomes
        ]
        show_table(title, ("claim", "verdict", "number"), rows, numbers=1)
    for name, path in done.files.items():
        say(f"{name}: {path}")
