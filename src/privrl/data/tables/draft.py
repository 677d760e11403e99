"""Draft a schema file from the names and types of a table's columns, never from its values."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from privrl.data.rows.files import parquet_files
from privrl.data.schema.columns import check_type
from privrl.data.schema.declaration import FILL_IN
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import TableError

if TYPE_CHECKING:
    import pyarrow as pa

_HINTS: dict[str, tuple[str, ...]] = {
    "unit": ("patient_id", "subject_id", "person_id", "user_id", "unit_id", "patient", "subject", "person", "user"),
    "episode": ("stay_id", "hadm_id", "admission_id", "visit_id", "episode_id", "stay", "visit", "episode"),
    "step": ("step", "hour", "t", "day", "window"),
    "reward": ("reward", "alive", "survived", "outcome"),
    "terminated": ("terminated", "done", "end", "ended", "last"),
    "action": ("action", "dose", "treatment", "drug"),
}
"""Common names of the column of each part, the likeliest first."""

_HEAD = """# A draft from the names and types of columns; no value of the table was read.
# Replace FILL-IN by public knowledge. Never read bounds off the data, because a bound that moved with one person's
# record would reveal that record. Delete the columns that do not belong to a state.
"""


def draft_schema(path: str | Path) -> str:
    """Draft a schema file to be completed by hand, for a Parquet file or a folder of Parquet files.

    **Formal guarantee.** The draft depends only on the names and the types of the columns. The footer of a Parquet file
    also holds the smallest and the largest value of each column; they are not read.
    """
    import pyarrow.parquet as pq

    file = parquet_files(path)[0]
    with redact_errors(f"The names and types of the columns of `{file.name}` cannot be read"):
        types = {field.name: field.type for field in pq.read_schema(file)}
    parts = {part: _first(names, types) for part, names in _HINTS.items()}
    lines = [f"{part} = {_quoted(parts[part] or FILL_IN)}" for part in ("unit", "step", "reward")]
    lines += [f"{part} = {_quoted(column)}" for part in ("episode", "terminated") if (column := parts[part])]
    lines += [f"horizon = {_quoted(FILL_IN)}  # the largest number of steps in an episode"]
    lines += [f"action = {_quoted(parts['action'] or FILL_IN)}"]
    lines += [
        f"action_edges = {_quoted(FILL_IN)}  # for example 0,0.02,0.05: each edge starts an action. Or num_actions = 5"
    ]
    features, categories = [], []
    for column, dtype in types.items():
        if column in parts.values():
            continue
        if _holds(dtype, "feature", column):
            features.append(f"{column}:{FILL_IN}..{FILL_IN}")
        elif _holds(dtype, "category", column):
            categories.append(f"{column}:{FILL_IN},{FILL_IN}")
        else:
            lines.append(f"# {_quoted(column)}: neither numbers nor text, so it cannot be part of a state")
    lines += _list("feature", features, "NAME:LO..HI; append :missing if values may be absent, :log for a log scale")
    lines += _list("category", categories, "NAME:a,b,c, with all values that may occur")
    return _HEAD + "\n".join(lines) + "\n"


def _first(names: tuple[str, ...], present: Iterable[str]) -> str | None:
    lower = {column.lower(): column for column in present}
    return next((lower[name] for name in names if name in lower), None)


def _holds(dtype: "pa.DataType", part: str, column: str) -> bool:
    try:
        check_type(dtype, part, column, "")
    except TableError:
        return False
    return True


def _list(name: str, entries: list[str], comment: str) -> list[str]:
    return [f"{name} = [  # {comment}", *(f"    {_quoted(entry)}," for entry in entries), "]"] if entries else []


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
