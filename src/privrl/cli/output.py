"""Where things are written: results on standard output, everything else on standard error."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer

from privrl.contracts.printing import printable

JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print exactly one JSON object on standard output and nothing else; if the command fails, its `error`.",
    ),
]

_WIDEST = 10_000  # columns of a table that nothing limits


def emit(content: dict[str, Any]) -> None:
    """One JSON object on standard output; infinities must already be text."""
    typer.echo(json.dumps(content, allow_nan=False))


def say(text: str = "") -> None:
    """Lines of the result, in which control characters are escaped."""
    typer.echo("\n".join(map(printable, text.split("\n"))))


def complain(*lines: str) -> None:
    """Lines that are not part of the result. They may quote a file, so line breaks are escaped too."""
    typer.echo("\n".join(map(printable, lines)), err=True)


def complain_of(error: str, arguments: Sequence[str]) -> None:
    """Prints why a command failed; with `--json` among its arguments also as its one JSON object."""
    complain(error)
    emit_error(error.removeprefix("Error: "), arguments)


def emit_error(error: str, arguments: Sequence[str]) -> None:
    """With `--json` among the arguments of a command that failed: the reason, as its one JSON object."""
    if "--json" in arguments:
        emit({"error": error})


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int = 0) -> None:
    """A table on standard output; the last `numbers` columns are aligned to the right, and never cut."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table

    table, console = Table(), Console(markup=False, highlight=False)
    for i, column in enumerate(columns):
        right = i >= len(columns) - numbers
        table.add_column(column, justify="right" if right else "left", no_wrap=right)
    for row in rows:
        table.add_row(*row)
    size = console.measure(table, options=console.options.update(width=_WIDEST))
    if size.maximum > console.width:
        for i in range(len(columns) - numbers, len(columns)):
            table.columns[i].no_wrap = False  # its name may take two lines
            table.columns[i].width = max(map(cell_len, (*columns[i].split(), *(row[i] for row in rows))))
        size = console.measure(table, options=console.options.update(width=_WIDEST))
    typer.echo(title)
    Console(markup=False, highlight=False, width=max(console.width, size.minimum)).print(table)


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on standard error; call what it gives with a word on what was just done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def advance(done: str) -> None:
            bar.update(task, advance=1, description=f"{what}: {done}" if done else what)

        yield advance


@contextlib.contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """A spinner on standard error while one long step runs; call the result with further text.

    Without a terminal it shows nothing and imports nothing.
    """
    if not sys.stderr.isatty():
        yield lambda more: None
        return
    from rich.console import Console

    with Console(stderr=True).status(what) as status:
        yield lambda more: status.update(f"{what}: {more}")
