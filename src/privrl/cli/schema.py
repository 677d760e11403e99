"""`privrl schema init` and `check`: a file that says what is publicly known about a table."""

from pathlib import Path
from typing import Annotated

import typer

from privrl.cli.commands import App
from privrl.cli.options.csv_options import DecimalOption, DelimiterOption, EncodingOption, parse_delimiter
from privrl.cli.options.targets import OverwriteOption, check_file
from privrl.cli.output import JsonOption, complain, emit, say
from privrl.data.prepare.raw import CsvFormat, csv_names, refuse_text_ending
from privrl.data.schema.table_description import TableDescription
from privrl.data.schema.table_schema import declare_table
from privrl.data.tables.draft import draft_from_names, draft_schema
from privrl.data.tables.faults import find_faults, find_outside
from privrl.writing import whole_file

schema = App(name="schema", help="Write a draft of a schema file, or check a table against one.", no_args_is_help=True)


@schema.command()
def init(
    context: typer.Context,
    table: Annotated[Path, typer.Argument(help="A Parquet file, a folder of them, or a CSV file.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write it; on standard output unless given.")
    ] = None,
    delimiter: DelimiterOption = ",",
    decimal: DecimalOption = ".",
    encoding: EncodingOption = "utf-8",
    overwrite: OverwriteOption = False,
) -> None:
    """Write a draft from the names and types of columns alone; no value of the table is read."""
    if out is not None:
        check_file(context, out, overwrite=overwrite)
    if table.suffix.lower() == ".csv":
        names = csv_names(table, CsvFormat(parse_delimiter(delimiter), decimal, encoding))
        draft = draft_from_names(names, table.name)
    else:
        refuse_text_ending(table)
        draft = draft_schema(table)
    if out is None:
        say(draft.rstrip())
        return
    with whole_file(out, overwrite=overwrite) as file:
        file.write_text(draft, encoding="utf-8")
    complain(f"Wrote `{out}`. Fill it in, then run `privrl schema check {out} {table}`.")


@schema.command()
def check(
    file: Annotated[Path, typer.Argument(help="The schema file.")],
    table: Annotated[Path | None, typer.Argument(help="The table; without it only the file is checked.")] = None,
    json: JsonOption = False,
) -> None:
    """Say all that would be refused: each kind of fault by file, row and column, never a value. Nothing is released."""
    options = TableDescription.read(file)
    options.check_complete(f"Add them to `{file}`.")
    columns = options.columns
    declare_table(**{name: value for name, value in columns.items() if name != "sort"})
    found = [] if table is None else find_faults(table, columns)
    outside = [] if table is None else find_outside(table, columns)
    if json:
        place = None if table is None else str(table)
        emit({"schema": str(file), "table": place, "refused": found, "outside": outside})
    elif found:
        for fault in found:
            say(f"Refused: {fault}")
    else:
        say(f"`{file}` says all that is needed." if table is None else f"`{table}` is as `{file}` says.")
    if not json:
        for place in outside:
            say(f"Outside the bounds: {place}")
    if found:
        raise typer.Exit(2)
