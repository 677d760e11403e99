"""`privrl shard`: a table whose people are spread over its files, written anew with every person in one file."""

from pathlib import Path
from typing import Annotated

import typer

from privrl.cli.options.table_options import PATHS
from privrl.cli.options.targets import OverwriteOption, check_folder
from privrl.cli.output import JsonOption, emit, say, waiting
from privrl.data.tables.spread import FILES, spread
from privrl.writing import check_outside


def shard(
    context: typer.Context,
    source: Annotated[list[str], typer.Argument(metavar="IN...", help=f"{PATHS}.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    unit: Annotated[str, typer.Option("--unit", metavar="COL", help="Whom privacy protects.")],
    files: Annotated[int, typer.Option("--files", help="How many files; a million rows or more each are good.")],
    episode: Annotated[str | None, typer.Option("--episode", metavar="COL", help="Sort by it, after the unit.")] = None,
    step: Annotated[str | None, typer.Option("--step", metavar="COL", help="Sort by it, after the episode.")] = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Write a table anew, with each person in one file, for `privrl fit --workers` and `--dask`. Costs no budget."""
    check_outside(out, source)
    check_folder(context, out, FILES, overwrite=overwrite)
    with waiting(f"writing {out.name}"):
        written = spread(source, out, unit=unit, files=files, episode=episode, step=step, overwrite=overwrite)
    if json:
        emit({"out": str(out), "files": written})
        return
    say(f"Wrote {written} files to {out}, sorted by `{unit}`; each person's rows are in one file.")
    say("Rows were moved and not changed, so no budget was spent. The folder is as secret as the table.")
