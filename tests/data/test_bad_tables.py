"""Each way in which a table can be wrong has its own message: file, row and column, and never what was in the cell."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import BOUNDS, COLUMNS, good_rows

from privrl.data.schema.table_schema import TableError
from privrl.data.tables.parquet import read_parquet

SECRET_NUMBER = 918273
SECRET_TEXT = "zyxwv"
NULL = None


def spoiled(**cells: Any) -> dict[str, Any]:
    """The good table with `column=(row, value)` replaced, all patients renamed to secret names."""
    rows = good_rows()
    rows["patient"] = [SECRET_TEXT + name for name in rows["patient"]]
    rows["stay"] = [SECRET_NUMBER * 100 + stay for stay in rows["stay"]]
    rows["hour"] = [SECRET_NUMBER * 10 + hour for hour in rows["hour"]]
    for column, (row, value) in cells.items():
        rows[column] = list(rows[column])
        rows[column][row] = value
    return rows


def message_of(path: Path, **options: Any) -> str:
    with pytest.raises(TableError) as caught:
        read_parquet(path, **{**COLUMNS, **BOUNDS, "max_episodes_per_unit": 2, **options}).transitions()
    message = str(caught.value)
    assert str(SECRET_NUMBER) not in message and SECRET_TEXT not in message
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return message


HOUR = SECRET_NUMBER * 10
CASES = {
    "state above": ({"ward": (3, SECRET_NUMBER)}, "ward", 3, "out of range"),
    "state negative": ({"ward": (3, -SECRET_NUMBER)}, "ward", 3, "out of range"),
    "state fraction": ({"ward": (4, SECRET_NUMBER + 0.5)}, "ward", 4, "fraction"),
    "state huge": ({"ward": (4, SECRET_NUMBER * 1e300)}, "ward", 4, "too large"),
    "state null": ({"ward": (1, NULL)}, "ward", 1, "null"),
    "state nan": ({"ward": (1, float("nan"))}, "ward", 1, "NaN"),
    "action above": ({"drug": (6, SECRET_NUMBER)}, "drug", 6, "out of range"),
    "action null": ({"drug": (6, NULL)}, "drug", 6, "null"),
    "reward above": ({"gain": (2, float(SECRET_NUMBER))}, "gain", 2, "out of range"),
    "reward below": ({"gain": (2, -0.918273)}, "gain", 2, "out of range"),
    "reward nan": ({"gain": (2, float("nan"))}, "gain", 2, "NaN"),
    "reward infinite": ({"gain": (2, float("-inf"))}, "gain", 2, "infinite"),
    "reward null": ({"gain": (2, NULL)}, "gain", 2, "null"),
    "unit null": ({"patient": (5, NULL)}, "patient", 5, "null"),
    "episode null": ({"stay": (5, NULL)}, "stay", 5, "null"),
    "step null": ({"hour": (5, NULL)}, "hour", 5, "null"),
    "step twice": ({"hour": (1, HOUR)}, "hour", 1, "twice"),
    "step missing": ({"hour": (6, HOUR + 2)}, "hour", 6, "skips a step"),
    "step back": ({"hour": (1, HOUR - 1)}, "hour", 1, "goes back"),
    "unit appears again": (
        {"patient": (4, SECRET_TEXT + "cat"), "stay": (4, 99), "hour": (5, HOUR)}
        | {"patient": (5, SECRET_TEXT + "ann")},
        "patient",
        5,
        "unit appears again",
    ),
    "episode appears again": (
        {"stay": (6, SECRET_NUMBER * 100 + 12)} | {"stay": (5, 99)},
        "stay",
        6,
        "episode appears again",
    ),
}


@pytest.mark.parametrize("batch_rows", [1, 2, 1000])
@pytest.mark.parametrize("case", CASES)
def test_every_fault_is_named_and_placed(save: Any, case: str, batch_rows: int) -> None:
    cells, column, row, words = CASES[case]
    message = message_of(save(spoiled(**cells)), batch_rows=batch_rows)
    assert f"`{column}`" in message and words in message
    assert f"row {row} of `stays.parquet`" in message


@pytest.mark.parametrize("row", range(7))
def test_rows_are_counted_in_their_own_file(tmp_path: Path, row: int) -> None:
    table = pa.table(spoiled(ward=(row, SECRET_NUMBER)))
    pq.write_table(table.slice(0, 4), tmp_path / "a.parquet")
    pq.write_table(table.slice(4), tmp_path / "b.parquet")
    expected = f"row {row} of `a.parquet`" if row < 4 else f"row {row - 4} of `b.parquet`"
    assert expected in message_of(tmp_path, batch_rows=2)
    assert expected in message_of(tmp_path, batch_rows=2, sort=True)


def test_too_long_an_episode(save: Any) -> None:
    for batch_rows in (1, 1000):
        message = message_of(save(spoiled()), horizon=2, batch_rows=batch_rows)
        assert "beyond the horizon" in message and "row 6" in message and "`horizon` is 2" in message


def test_missing_column_lists_those_that_exist(save: Any) -> None:
    message = message_of(save(spoiled()), state="bed")
    assert "no column `bed`" in message and "`state=`" in message
    assert all(f"`{name}`" in message for name in good_rows())


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("ward", pa.array([SECRET_TEXT] * 7), "text"),
        ("ward", pa.array([True] * 7), "true or false"),
        ("gain", pa.array([SECRET_TEXT] * 7), "text"),
        ("hour", pa.array([SECRET_NUMBER] * 7, pa.timestamp("s")), "timestamp"),
        (
            "patient",
            pa.array([float(SECRET_NUMBER)] * 7),
            "floating-point numbers of 64 bits; the unit must be whole numbers or text",
        ),
        ("stay", pa.nulls(7), "null"),
    ],
)
def test_wrong_types_are_refused_when_the_table_is_opened(save: Any, column: str, values: Any, words: str) -> None:
    with pytest.raises(TableError) as caught:
        read_parquet(save(good_rows() | {column: values}), **COLUMNS, **BOUNDS)
    message = str(caught.value)
    assert f"`{column}`" in message and words in message and "`stays.parquet`" in message
    assert SECRET_TEXT not in message and str(SECRET_NUMBER) not in message


def test_files_with_mixed_types(tmp_path: Path) -> None:
    rows = good_rows()
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    pq.write_table(pa.table(rows | {"patient": [SECRET_NUMBER] * 7}), tmp_path / "b.parquet")
    assert "text in `a.parquet` and whole numbers of 64 bits in `b.parquet`" in message_of(tmp_path)


@pytest.mark.parametrize(
    ("flags", "row"), [([True, False, False, False, False, False, True], 1), ([0, 1, 0, 1, 0, 1, 0], 6)]
)
def test_an_episode_does_not_go_on_after_its_end(save: Any, flags: list[Any], row: int) -> None:
    for batch_rows in (1, 1000):
        message = message_of(save(spoiled() | {"end": flags}), terminated="end", batch_rows=batch_rows)
        assert "`end`" in message and f"row {row} " in message and "continues" in message
    assert "neither 0 nor 1" in message_of(save(spoiled() | {"end": [SECRET_NUMBER] * 7}), terminated="end")


def test_next_state_out_of_range(save: Any) -> None:
    rows = spoiled() | {"after": [0, -1, None, SECRET_NUMBER, 0, 0, 0]}
    message = message_of(save(rows), next_state="after")
    assert "`after`" in message and "row 3 " in message


def test_nothing_there(save: Any, tmp_path: Path) -> None:
    empty = save({name: pa.array(values)[:0] for name, values in good_rows().items()}, "empty.parquet")
    assert "no rows" in message_of(empty)
    assert "no file or folder" in message_of(tmp_path / "absent.parquet")
    (tmp_path / "folder").mkdir()
    assert "holds no `*.parquet`" in message_of(tmp_path / "folder")
    (tmp_path / "text.parquet").write_text(SECRET_TEXT * 10)
    assert "not a Parquet file" in message_of(tmp_path / "text.parquet")


def test_checks_come_before_the_first_batch(save: Any) -> None:
    data = read_parquet(save(spoiled(gain=(6, 2.0))), **COLUMNS, **BOUNDS, batch_rows=1)
    with pytest.raises(TableError, match="gain"):
        data.batches(1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"horizon": 0},
        {"num_states": 0},
        {"num_actions": -1},
        {"max_episodes_per_unit": 0},
        {"reward_range": (1.0, 0.0)},
        {"reward_range": (0.0, np.inf)},
        {"num_states": 2**31 - 1, "num_actions": 2**20},
    ],
)
def test_bounds_are_checked_too(save: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="|".join(f"`{re.escape(name)}`" for name in wrong)):
        read_parquet(save(good_rows()), **COLUMNS, **{**BOUNDS, **wrong})
