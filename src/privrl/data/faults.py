"""What a table would be refused for, as far as one look at each of its columns finds it."""

from pathlib import Path
from typing import Any

from privrl.data.parquet import read_parquet
from privrl.data.schema import TableError


def faults(path: str | Path, columns: dict[str, Any]) -> list[str]:
    """The first fault of the table, and where states are measurements the first one of each column; `columns` is what
    `read_parquet` takes.

    A message names the file, the row and the column, and never the value that was found there.
    """
    found = [_fault(path, columns)]
    if found != [None] and len(columns.get("features", ())) > 1:
        found += [_fault(path, columns | {"features": (feature,)}) for feature in columns["features"]]
    return [message for message in dict.fromkeys(found) if message is not None]


def _fault(path: str | Path, columns: dict[str, Any]) -> str | None:
    try:
        read_parquet(path, **columns).check()
    except TableError as error:
        return str(error)
    return None
