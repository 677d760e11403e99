"""`privrl prepare`: raw records with times to a table of steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from privrl.cli.options.csv_options import DecimalOption, DelimiterOption, EncodingOption, parse_delimiter
from privrl.cli.options.targets import OverwriteOption, check_file
from privrl.cli.output import JsonOption, complain, emit, say, waiting
from privrl.data.prepare.grid import GridColumn
from privrl.data.prepare.preparation import Preparation, StateAt
from privrl.data.prepare.prepare_table import prepare as write_steps
from privrl.data.prepare.prepare_table import public_settings
from privrl.data.prepare.windows import AGGREGATIONS, Aggregation
from privrl.data.schema.outcomes import Good
from privrl.writing import whole_file

_TIME = ":time"
_NAMES = ".states.txt"
_STATE = "Measurements of a state, by how several values in a window become one"


def _combined(how: str) -> Any:
    names = {"max": "largest value", "min": "smallest value", "mean": "mean", "sum": "sum"}
    words = f"Take the {names.get(how, f'{how} value')} in a window; may be repeated."
    return typer.Option(f"--{how}", metavar="COL", help=words, rich_help_panel=_STATE)


def prepare(
    context: typer.Context,
    raw: Annotated[Path, typer.Argument(help="A CSV or Parquet file, one row per record, in any order.")],
    out: Annotated[Path, typer.Argument(help="The Parquet file to write, one row per step.")],
    unit: Annotated[str, typer.Option("--unit", metavar="COL", help="Whom privacy protects.")],
    time: Annotated[str, typer.Option("--time", metavar="COL", help="The time of a record: timestamps or numbers.")],
    every: Annotated[
        str, typer.Option("--every", help="Length of a step: 4h, 30min, 1d. If times are numbers, a number.")
    ],
    action: Annotated[
        list[str],
        typer.Option(
            "--action", metavar="COL[:HOW]", help="An action or dose, summed over a window unless HOW says otherwise."
        ),
    ],
    reward: Annotated[
        str,
        typer.Option(
            "--reward", metavar="COL[:HOW]", help="The reward, paid at the end of an episode; with HOW, at every step."
        ),
    ],
    good: Annotated[
        Good,
        typer.Option("--good", help="Which values of the reward are good; if low, 1 minus the reward is written."),
    ],
    horizon: Annotated[
        int, typer.Option("--horizon", help="The largest number of steps, public; later records are left out.")
    ] = 1000,
    episode: Annotated[
        str | None,
        typer.Option("--episode", metavar="COL", help="The episode of the unit; without it, each unit has one."),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--end", metavar="COL[:time]", help="True on the last record of an ended episode; COL:time, when it ended."
        ),
    ] = None,
    propensity: Annotated[
        str | None,
        typer.Option(
            "--propensity",
            metavar="COL",
            help="If a program decided: the logged probability of its action, once in each window.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="COL", help="A group to report by later; the first value of an episode counts."),
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option("--outcome", metavar="COL", help="A second outcome to report later, summed over each window."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="COL",
            help="Long tables (one row per measurement): the column with the name of the measurement. Other options "
            "then take names instead of columns.",
        ),
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="COL", help="Long tables: the column with the value.")
    ] = None,
    item: Annotated[
        list[str] | None,
        typer.Option("--item", metavar="NAME=ITEM", help="Long tables: the code that the table uses for a name."),
    ] = None,
    last: Annotated[list[str] | None, _combined("last")] = None,
    first: Annotated[list[str] | None, _combined("first")] = None,
    mean: Annotated[list[str] | None, _combined("mean")] = None,
    max_: Annotated[list[str] | None, _combined("max")] = None,
    min_: Annotated[list[str] | None, _combined("min")] = None,
    sum_: Annotated[list[str] | None, _combined("sum")] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text",
            metavar="COL",
            help="A measurement that is text, combined by --last or --first; all others are numbers.",
            rich_help_panel=_STATE,
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="COL:65,78[:missing]",
            help="Cut a measurement at public edges, to number the states. Once for each measurement.",
            rich_help_panel=_STATE,
        ),
    ] = None,
    carry: Annotated[
        str, typer.Option("--carry", help="Fill windows without a value with the last one, at most this old (public).")
    ] = "0",
    state_at: Annotated[
        StateAt,
        typer.Option(
            "--state-at", help="Whether a state ends before the window of its action (start), or includes it (end)."
        ),
    ] = "start",
    idle: Annotated[float, typer.Option("--idle", help="The action of a window in which none was recorded.")] = 0.0,
    time_format: Annotated[
        str | None,
        typer.Option("--time-format", help="Format of times in a CSV file that are not ISO 8601: %d.%m.%Y %H:%M."),
    ] = None,
    zoned: Annotated[
        bool, typer.Option("--zoned", help="Times in a CSV file have a zone: they end in Z or +02:00.")
    ] = False,
    delimiter: DelimiterOption = ",",
    decimal: DecimalOption = ".",
    encoding: EncodingOption = "utf-8",
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Cut raw records into steps: windows of time, states, actions, rewards, grouped by person. Costs no budget."""
    check_file(context, out, overwrite=overwrite, endings=(".parquet",))
    given: dict[Aggregation, list[str] | None] = {
        "last": last,
        "first": first,
        "mean": mean,
        "max": max_,
        "min": min_,
        "sum": sum_,
    }
    paid, each = _named(reward)
    ends = end is not None and end.endswith(_TIME)
    how = Preparation(
        unit=unit,
        time=time,
        every=every,
        columns=_columns(given),
        action={name: how or "sum" for name, how in map(_named, action)},
        reward=paid,
        horizon=horizon,
        episode=episode,
        end=end.removesuffix(_TIME) if end is not None and ends else end,
        end_time=ends,
        reward_each=each,
        carry=carry if carry != "0" else 0,
        state_at=state_at,
        idle=idle,
        time_format=time_format,
        zoned=zoned,
        text=tuple(text or ()),
        name=name,
        value=value,
        items=dict(map(_item, item or ())),
        good=good,
        propensity=propensity,
        by=by,
        outcome=outcome,
        grid=tuple(GridColumn.parse(words, text or ()) for words in grid or ()),
        delimiter=parse_delimiter(delimiter),
        decimal=decimal,
        encoding=encoding,
    )
    names = out.with_suffix(_NAMES)
    if how.states is not None:
        check_file(context, names, overwrite=overwrite)
    for warning in how.warnings:
        complain(f"Warning: {warning}")
    with waiting(f"preparing {raw.name}"):
        write_steps(raw, out, how)
    if how.states is not None:
        with whole_file(names, overwrite=True) as file:
            file.write_text("".join(f"{name}\n" for name in how.states.names), encoding="utf-8")
    settings = public_settings(how)
    if json:
        made = {} if how.states is None else {"state_names": str(names)}
        emit({"out": str(out), "state_at": state_at, "warnings": list(how.warnings), "settings": settings, **made})
        return
    say(f"Wrote the steps to {out}.")
    if good == "low":
        say(f"Low values of `{how.reward}` are good, so `{how.paid}` holds 1 - {how.reward}.")
    if how.states is not None:
        say(f"Wrote the names of the {len(how.states.names)} states to {names}; pass them as `--state-names`.")
    say("Every row comes from the records of one person and from public settings, so no budget was spent.")
    say(f"Records after the first {horizon} steps of an episode are left out (`--horizon`).")
    if state_at == "start":
        say("A state is what was known before the window of its action; the first window of an episode gives a state.")
    say(f"Go on with `privrl schema init {out}`.")


def _columns(given: Mapping[Aggregation, Sequence[str] | None]) -> dict[str, Aggregation]:
    found: dict[str, Aggregation] = {}
    for how, names in given.items():
        for name in names or ():
            if name in found:
                raise ValueError(f"`{name}` is combined in two ways. Give it once.")
            found[name] = how
    return found


def _item(words: str) -> tuple[str, str]:
    """The item of `NAME=ITEM`, and the name."""
    name, equals, item = words.partition("=")
    if not (name and equals and item):
        raise ValueError(f"`--item` is {words!r}; write NAME=ITEM, for example map=220052.")
    return item, name


def _named(words: str) -> tuple[str, Aggregation | None]:
    """The column of `COL` or `COL:HOW`, and how its values are combined."""
    name, colon, how = words.rpartition(":")
    if colon and how in AGGREGATIONS:
        return name, how
    return words, None
