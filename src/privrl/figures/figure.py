"""A reproducible figure: cells to run, a plot to draw, and claims to judge.

`reproduce` runs the missing cells and writes one file for each, so that an interrupted figure can be resumed. Then it
draws the plot and writes the verdict from the finished cells.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jax

from privrl.executors.executor import AbstractExecutor
from privrl.figures import finished_cells as _finished
from privrl.figures.cell import Cell, Measured
from privrl.figures.claims import Claim, ClaimOutcome
from privrl.figures.panels import Panel, draw_panels
from privrl.figures.verdict import NOTHING_EARLIER, Earlier, EarlierComparison, compose_verdict
from privrl.plots.style import to_file

SEED = 20261117
ABOUT = "figure.json"
_VERDICT = "verdict.md"


@dataclass(frozen=True)
class Figure:
    """A figure and the claims about it.

    Arguments:
        name: its name on the command line.
        paper: the key of the paper, or "privrl" for figures that privrl adds.
        title, summary: one line each.
        cells: everything that is run at full size; claims and panels refer to these.
        smoke: the cells that a smoke run makes, at a tiny size.
        panels: the plot.
        claims: the claims of the paper, with the rules that judge them.
        earlier: earlier measurements; also the source of findings whose claims name no other.
        notes: differences from the paper's protocol, with reasons.
    """

    name: str
    paper: str
    title: str
    summary: str
    cells: tuple[Cell, ...]
    smoke: tuple[Cell, ...]
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...]
    earlier: Earlier = NOTHING_EARLIER
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        slugs = [cell.slug for cell in self.cells]
        if len(set(slugs)) != len(slugs) or not set(self.smoke) <= set(self.cells):
            raise ValueError(
                f"Figure `{self.name}` has two cells with the same name, or a smoke cell that is not one of its cells."
            )
        claims = tuple(replace(claim, where=claim.where or self.earlier.where) for claim in self.claims)
        object.__setattr__(self, "claims", claims)


@dataclass(frozen=True)
class Reproduction:
    """The outcome of `reproduce`.

    Attributes:
        figure, smoke, seed: what was run.
        outcomes: the judged claims; empty in a smoke run.
        comparisons: current and earlier numbers.
        files: the files that were written.
        run, kept: the number of cells that were run, and that were finished already.
        changed: cells that existed with other settings and were run again.
        older: cells that another version of the code made and that were kept.
        seconds: the running time.
    """

    figure: Figure
    smoke: bool
    seed: int
    outcomes: tuple[tuple[Claim, ClaimOutcome], ...]
    comparisons: tuple[EarlierComparison, ...]
    files: dict[str, Path]
    run: int
    kept: int
    changed: tuple[str, ...]
    older: tuple[str, ...]
    seconds: float

    def to_json(self) -> dict[str, object]:
        """Return everything as JSON."""
        claims = [
            {
                "claim": claim.text,
                "status": outcome.status,
                "number": _finished.to_json_number(outcome.number),
                "standard_error": _finished.to_json_number(outcome.error),
                "text": outcome.text,
                "found_before": claim.found,
            }
            for claim, outcome in self.outcomes
        ]
        return {
            "figure": self.figure.name,
            "paper": self.figure.paper,
            "smoke": self.smoke,
            "seed": self.seed,
            "claims": claims,
            "references": [comparison.to_json() for comparison in self.comparisons],
            "cells": {
                "run": self.run,
                "kept": self.kept,
                "changed": list(self.changed),
                "older_code": list(self.older),
            },
            "files": {name: str(path) for name, path in self.files.items()},
            "seconds": self.seconds,
        }


def plan_cells(figure: Figure, smoke: bool) -> dict[Cell, Cell]:
    """Return what to run for each cell of the figure: the cell itself, or its tiny version in a smoke run."""
    return {cell: cell.shrink() for cell in figure.smoke} if smoke else {cell: cell for cell in figure.cells}


def check_figure_folder(figure: Figure, folder: str | Path) -> Path:
    """Return the folder if it is new, empty, or contains this figure; raise `ValueError` otherwise."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`{folder}` is a file. Give `--out` a folder.")
    about = folder / ABOUT
    if about.is_file():
        name = json.loads(about.read_text()).get("figure")
        if name != figure.name:
            raise ValueError(f"`{folder}` contains figure `{name}`. Give `{figure.name}` its own folder.")
    elif folder.exists() and any(folder.iterdir()):
        raise ValueError(f"`{folder}` contains other files. Give `{figure.name}` its own folder.")
    return folder


def reproduce(
    figure: Figure,
    folder: str | Path,
    *,
    smoke: bool = False,
    seed: int = SEED,
    executor: AbstractExecutor | None = None,
    fresh: bool = False,
    progress: Callable[[str], None] = lambda done: None,
) -> Reproduction:
    """Run the missing cells, draw the plot and write the verdict.

    Arguments:
        figure: the figure.
        folder: the figure's own folder; finished cells in it are used again.
        smoke: run a tiny part that shows that everything works, and judge no claim.
        seed: the seed of the figure, from which every cell derives its own.
        executor: where cells are run, each by one worker; on similar machines the numbers do not depend on it.
        fresh: run every cell again.
        progress: called with a line of text after every cell, including those that were finished already.
    """
    started = time.perf_counter()
    folder = check_figure_folder(figure, folder)
    folder.mkdir(parents=True, exist_ok=True)
    code = _finished.describe_code()
    (folder / ABOUT).write_text(json.dumps({"figure": figure.name, "smoke": smoke, "seed": seed, **code}))
    wanted = plan_cells(figure, smoke)
    todo: list[tuple[Cell, Cell]] = []
    changed: list[str] = []
    for cell, actual in wanted.items():
        kept = _finished.read_cell(folder, cell.slug)
        if not fresh and kept is not None and _finished.is_current(kept, actual, seed):
            progress(cell.label)
            continue
        if kept is not None and not fresh:
            changed.append(cell.label)
        todo.append((cell, actual))
    for i, measured in _run_all([actual for _, actual in todo], seed, smoke, executor):
        cell, actual = todo[i]
        _finished.write_cell(folder, cell.slug, figure.name, actual, seed, measured)
        progress(actual.label)
    kept_cells = {cell: _finished.read_cell(folder, cell.slug) for cell in wanted}
    finished = {cell: kept for cell, kept in kept_cells.items() if kept is not None}
    assert len(finished) == len(wanted)
    results = {cell: kept.measured for cell, kept in finished.items()}
    older = tuple(cell.label for cell, kept in finished.items() if kept.code != code)
    files = {"runs": _finished.merge_cells(folder, [cell.slug for cell in wanted])}
    files |= _draw(figure, folder, results)
    outcomes = () if smoke else tuple((claim, claim.rule(results)) for claim in figure.claims)
    comparisons = () if smoke else figure.earlier.compare(results)
    text = compose_verdict(figure, results, outcomes, comparisons, smoke=smoke, seed=seed, older=older, code=code)
    files["verdict"] = folder / _VERDICT
    files["verdict"].write_text(text, encoding="utf-8")
    return Reproduction(
        figure=figure,
        smoke=smoke,
        seed=seed,
        outcomes=outcomes,
        comparisons=comparisons,
        files=files,
        run=len(todo),
        kept=len(wanted) - len(todo),
        changed=tuple(changed),
        older=older,
        seconds=time.perf_counter() - started,
    )


def _run_cell(cell: Cell, seed: int, smoke: bool) -> Measured:
    """Run a cell. Tiny cells take longer to compile than to run, so they are compiled without optimisation."""
    with _quick_compiler() if smoke else contextlib.nullcontext():
        return cell.how(cell, cell.seed(seed))


def _run_all(
    cells: Sequence[Cell], seed: int, smoke: bool, executor: AbstractExecutor | None
) -> Iterator[tuple[int, Measured]]:
    """Yield the position and the outcome of each cell as soon as it is finished."""
    if executor is None:
        for i, cell in enumerate(cells):
            yield i, _run_cell(cell, seed, smoke)
        return
    largest_first = sorted(range(len(cells)), key=lambda i: -cells[i].people * cells[i].seeds)
    executor.start([cells[i] for i in largest_first])
    for place, measured in executor.map_shards(_run_cell, seed, smoke):
        yield largest_first[place], measured


@contextlib.contextmanager
def _quick_compiler() -> Iterator[None]:
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def _draw(figure: Figure, folder: Path, results: dict[Cell, Measured]) -> dict[str, Path]:
    drawn = draw_panels(figure.panels, results)
    files = {kind: folder / f"{figure.name}.{kind}" for kind in ("svg", "png")}
    for kind, file in files.items():
        file.write_bytes(to_file(drawn, kind))
    return files
