"""A reproducible figure: cells to run, a plot to draw, and claims to judge.

`reproduce` runs what is not there yet, one file per finished cell, so that an interrupted figure goes on where it was;
then it draws the plot and writes the verdict, both from the finished cells alone.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax

from privrl.executors.executor import AbstractExecutor
from privrl.figures import store as _store
from privrl.figures.cell import Cell, Measured
from privrl.figures.claims import Claim, Outcome
from privrl.figures.panels import Panel, draw
from privrl.figures.verdict import NOTHING_EARLIER, Comparison, Earlier, verdict_text
from privrl.plots.style import to_file

SEED = 20261117
ABOUT = "figure.json"
_VERDICT = "verdict.md"


@dataclass(frozen=True)
class Figure:
    """What is shown, how it is run, and what the paper says about it.

    Arguments:
        name: what it is called on the command line.
        paper: the key of the paper, or "privrl" for our own.
        title, summary: in a line each.
        cells: everything that is run at full size; claims and panels refer to these.
        smoke: those of the cells that a smoke run makes, at a tiny size.
        panels: the plot.
        claims: what the paper says, with the rule that judges it.
        earlier: what we have measured before; claims that do not say where we found them say the same.
        notes: where this differs from the paper's protocol, and why.
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
                f"Figure `{self.name}` has two cells of one name, or a smoke cell that is none of its own."
            )
        claims = tuple(replace(claim, where=claim.where or self.earlier.where) for claim in self.claims)
        object.__setattr__(self, "claims", claims)


@dataclass(frozen=True)
class Reproduction:
    """What became of a figure: claims judged (none in a smoke run), numbers compared, files written.

    `changed` cells were there with other settings and were run again; `older` cells were made by other code than
    this and were kept.
    """

    figure: Figure
    smoke: bool
    seed: int
    outcomes: tuple[tuple[Claim, Outcome], ...]
    comparisons: tuple[Comparison, ...]
    files: dict[str, Path]
    run: int
    kept: int
    changed: tuple[str, ...]
    older: tuple[str, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        claims = [
            {
                "claim": claim.text,
                "status": outcome.status,
                "number": _store.number(outcome.number),
                "standard_error": _store.number(outcome.error),
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


def plan(figure: Figure, smoke: bool) -> dict[Cell, Cell]:
    """What is run for each cell of the figure: itself, or its tiny version in a smoke run."""
    return {cell: cell.tiny() for cell in figure.smoke} if smoke else {cell: cell for cell in figure.cells}


def check_folder(figure: Figure, folder: str | Path) -> Path:
    """The folder, if it is new, empty, or holds this very figure."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`{folder}` is a file. Give `--out` a folder of its own.")
    about = folder / ABOUT
    if about.is_file():
        name = json.loads(about.read_text()).get("figure")
        if name != figure.name:
            raise ValueError(f"`{folder}` holds figure `{name}`. Give `{figure.name}` a folder of its own.")
    elif folder.exists() and any(folder.iterdir()):
        raise ValueError(f"`{folder}` holds something else. Give `{figure.name}` a folder of its own.")
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
    """Runs what is missing, draws the plot and writes the verdict.

    Arguments:
        folder: a folder of the figure's own; finished cells in it are used again.
        smoke: a tiny part, which shows that everything works and judges nothing.
        seed: of the whole figure; every cell has a seed of its own that follows from it.
        executor: where cells are run, each by one worker; their numbers do not depend on it, on like machines.
        fresh: run every cell again.
        progress: called with a line of text after every cell, also one that was there.
    """
    started = time.perf_counter()
    folder = check_folder(figure, folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ABOUT).write_text(json.dumps({"figure": figure.name, "smoke": smoke, "seed": seed, **_store.code()}))
    wanted = plan(figure, smoke)
    todo: list[tuple[Cell, Cell]] = []
    changed: list[str] = []
    for cell, actual in wanted.items():
        kept = _store.read(folder, cell.slug)
        if not fresh and kept is not None and _store.fits(kept, actual, seed):
            progress(cell.label)
            continue
        if kept is not None and not fresh:
            changed.append(cell.label)
        todo.append((cell, actual))
    for i, measured in _run_all([actual for _, actual in todo], seed, smoke, executor):
        cell, actual = todo[i]
        _store.write(folder, cell.slug, figure.name, actual, seed, measured)
        progress(actual.label)
    kept_cells = {cell: _store.read(folder, cell.slug) for cell in wanted}
    finished = {cell: kept for cell, kept in kept_cells.items() if kept is not None}
    assert len(finished) == len(wanted)
    results = {cell: kept.measured for cell, kept in finished.items()}
    older = tuple(cell.label for cell, kept in finished.items() if kept.code != _store.code())
    files = {"runs": _store.merge(folder, [cell.slug for cell in wanted])}
    files |= _draw(figure, folder, results)
    outcomes = () if smoke else tuple((claim, claim.rule(results)) for claim in figure.claims)
    comparisons = () if smoke else figure.earlier.compared(results)
    text = verdict_text(figure, results, outcomes, comparisons, smoke=smoke, seed=seed, older=older, code=_store.code())
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


def _measured(cell: Cell, seed: int, smoke: bool) -> Measured:
    """Runs a cell; tiny cells take longer to compile than to run, so they are compiled without care."""
    with _quick_compiler() if smoke else contextlib.nullcontext():
        return cell.how(cell, cell.seed(seed))


def _run_all(
    cells: Sequence[Cell], seed: int, smoke: bool, executor: AbstractExecutor | None
) -> Iterator[tuple[int, Measured]]:
    """What every cell found, with its number, as soon as it is there."""
    if executor is None:
        for i, cell in enumerate(cells):
            yield i, _measured(cell, seed, smoke)
        return
    largest_first = sorted(range(len(cells)), key=lambda i: -cells[i].people * cells[i].seeds)
    executor.start([cells[i] for i in largest_first])
    for place, measured in executor.each(_measured, seed, smoke):
        yield largest_first[place], measured


@contextlib.contextmanager
def _quick_compiler() -> Iterator[None]:
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def _draw(figure: Figure, folder: Path, results: dict[Cell, Any]) -> dict[str, Path]:
    drawn = draw(figure.panels, results)
    files = {kind: folder / f"{figure.name}.{kind}" for kind in ("svg", "png")}
    for kind, file in files.items():
        file.write_bytes(to_file(drawn, kind))
    return files
