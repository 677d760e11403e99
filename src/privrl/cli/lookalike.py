"""`privrl lookalike`: a table of invented people in the shape that a schema file declares."""

from pathlib import Path
from typing import Annotated

import typer

from privrl.cli.options.parsing import fresh_seed
from privrl.cli.options.targets import OverwriteOption, check_file
from privrl.cli.output import JsonOption, emit, say
from privrl.data.schema.table_description import TableDescription
from privrl.data.schema.table_schema import declare_table
from privrl.data.sources.lookalike_table import write_lookalike


def lookalike(
    context: typer.Context,
    schema: Annotated[Path, typer.Argument(help="A schema file, see `privrl schema init`.")],
    people: Annotated[int, typer.Option("--people", help="How many people to invent.")],
    out: Annotated[Path, typer.Option("--out", help="The Parquet file to write.")],
    overwrite: OverwriteOption = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Invents the same people again.")] = None,
    json: JsonOption = False,
) -> None:
    """Invent a table in the shape of yours from public bounds alone, to try commands before any budget is spent."""
    check_file(context, out, overwrite=overwrite, endings=(".parquet",))
    options = TableDescription.read(schema)
    options.check_complete(f"Add them to `{schema}`.")
    columns = {name: value for name, value in options.columns.items() if name != "sort"}
    seed = fresh_seed(seed)
    ends = options.rewards_at_end
    rows = write_lookalike(out, *declare_table(**columns), people=people, rewards_at_end=ends, seed=seed)
    if json:
        emit({"out": str(out), "people": people, "rows": rows, "seed": seed})
    else:
        say(f"Wrote {rows:,} steps of {people:,} invented people to {out}, from `{schema}` alone: no data were read.")
        say("Try commands, run time and widths on it. Its values mean nothing: these people are invented.")
