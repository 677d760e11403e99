"""Long tables, one row per measurement: the same steps as the wide form, and the same faults without cells."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from data.test_prepare import DAY, HOW, NUMBER, TEXT, records

from privrl.data.prepare import prepare_table as preparing
from privrl.data.prepare.preparation import Preparation
from privrl.data.prepare.prepare_table import prepare
from privrl.data.schema.table_schema import TableError

LONG = {"name": "item", "value": "amount"}
NAMES = ("map", "lactate", "pulse", "temp", "ward", "dose", "alive", "left")


def long_of(raw: dict[str, list[Any]], seed: int = 1) -> dict[str, list[Any]]:
    """The same records in any order, one row for each cell that is given, and rows of names that nobody asks for."""
    rows: list[tuple[Any, ...]] = []
    for i, (person, time) in enumerate(zip(raw["patient"], raw["at"], strict=True)):
        rows += [(person, time, name, str(raw[name][i])) for name in NAMES[:-1] if raw[name][i] is not None]
        rows += [(person, time, "left", "1" if raw["left"][i] else "0"), (person, time, "other", TEXT)]
        rows += [(person, time, "other", None)] if i % 2 else []
    order = np.random.default_rng(seed).permutation(len(rows))
    return {name: [rows[i][j] for i in order] for j, name in enumerate(("patient", "at", "item", "amount"))}


@pytest.mark.parametrize("state_at", ["start", "end"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_long_table_gives_the_steps_of_the_wide_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, state_at: str
) -> None:
    raw = records()
    write: Any = pyarrow.csv.write_csv if ending == "csv" else pq.write_table
    write(pa.table(raw), tmp_path / f"wide.{ending}")
    write(pa.table(long_of(raw)), tmp_path / f"long.{ending}")
    how = HOW | {"state_at": state_at, "text": ("ward",)}
    prepare(tmp_path / f"wide.{ending}", tmp_path / "wide_steps.parquet", Preparation(**how))
    wide = pq.read_table(tmp_path / "wide_steps.parquet")
    for piece_bytes, windows in ((2**25, 2**19), (2**10, 2**19), (2**25, 3)):
        monkeypatch.setattr(preparing, "_PIECE_BYTES", piece_bytes)
        monkeypatch.setattr(preparing, "_WINDOWS", windows)
        prepare(tmp_path / f"long.{ending}", tmp_path / "steps.parquet", Preparation(**how, **LONG))
        steps = pq.read_table(tmp_path / "steps.parquet").sort_by([("patient", "ascending"), ("step", "ascending")])
        assert steps.to_pylist() == wide.to_pylist() and steps.column_names == wide.column_names


def test_names_may_be_numbers_and_nobody_is_lost_who_has_other_names_alone(tmp_path: Path) -> None:
    raw = {"who": [7, 7, 7, 8, 8], "h": [0.0, 0.0, 5.0, 1.0, 6.0], "item": [220052, 9, 9, 4711, 9]}
    raw |= {"amount": [70.0, 0.5, 1.0, None, 0.25]}
    pq.write_table(pa.table(raw), tmp_path / "raw.parquet")
    how = Preparation("who", "h", 4, {"220052": "last"}, {"11": "sum"}, "9", horizon=9, **LONG)
    prepare(tmp_path / "raw.parquet", tmp_path / "t.parquet", how)
    steps = {"who": [7, 8], "step": [0, 0], "220052": [70.0, None], "11": [0.0, 0.0], "9": [1.0, 0.25]}
    assert pq.read_table(tmp_path / "t.parquet").to_pydict() == steps


def test_a_name_may_have_other_words_in_the_table(tmp_path: Path) -> None:
    raw = {"who": [7, 7, 7, 7], "h": [0.0, 1.0, 1.0, 5.0], "item": [220052, 220181, 9, 11]}
    pq.write_table(pa.table(raw | {"amount": [70.0, 80.0, 0.5, 2.0]}), tmp_path / "raw.parquet")
    items = {"220052": "map", "220181": "map", "9": "alive"}
    how = Preparation("who", "h", 4, {"map": "mean"}, {"11": "sum"}, "alive", horizon=9, items=items, **LONG)
    prepare(tmp_path / "raw.parquet", tmp_path / "t.parquet", how)
    steps = {"who": [7], "step": [0], "map": [75.0], "11": [2.0], "alive": [0.5]}
    assert pq.read_table(tmp_path / "t.parquet").to_pydict() == steps
    pq.write_table(
        pa.table(raw | {"h": [1.0, 1.0, 1.0, 5.0], "amount": [70.0, 80.0, 0.5, 2.0]}), tmp_path / "raw.parquet"
    )
    with pytest.raises(TableError, match="`h` has a time twice in one episode under one name at row 1"):
        prepare(tmp_path / "raw.parquet", tmp_path / "t.parquet", how)


CELLS = [
    ["a", "2026-05-01 00:00:00", "map", "70"],
    ["a", "2026-05-01 00:00:00", "dose", "0.5"],
    ["a", "2026-05-01 05:00:00", "alive", "1"],
    ["b", "2026-05-01 00:00:00", "map", "71"],
    ["b", "2026-05-01 05:00:00", "ward", "icu"],
    ["b", "2026-05-01 05:00:00", "alive", "0"],
]
FAULTS: dict[str, tuple[int, int, str, str]] = {
    "no name": (3, 2, "", "`item` is null at line 5"),
    "no time": (3, 1, "", "`at` is null at line 5"),
    "no person": (3, 0, "", "`patient` is null at line 5"),
    "another zone": (3, 1, "2026-05-01T05:00:00Z", "`at` does not hold a time without a time zone at line 5"),
    "text in a number": (3, 3, TEXT, "`amount` does not hold a number at line 5"),
    "infinite": (3, 3, "-inf", "`amount` is infinite at line 5"),
    "twice": (1, 2, "map", "`at` has a time twice in one episode under one name at line 3"),
    "no reward": (5, 2, "other", "`alive` has no value in the episode that begins at line 5"),
}


def write_cells(path: Path, cells: list[list[str]]) -> Path:
    path.write_text("\n".join([",".join(["patient", "at", "item", "amount"]), *map(",".join, cells)]) + "\n")
    return path


@pytest.mark.parametrize("text", [(), ("ward",)])
@pytest.mark.parametrize("fault", [*FAULTS, None])
def test_every_fault_is_named_without_the_cell(tmp_path: Path, fault: str | None, text: tuple[str, ...]) -> None:
    cells = [list(row) for row in CELLS if text or row[2] != "ward"]
    columns = {"map": "mean", "ward": "last"} if text else {"map": "mean"}
    how = Preparation(**HOW | LONG | {"columns": columns, "text": text, "end": None})
    if fault is None:
        prepare(write_cells(tmp_path / "raw.csv", cells), tmp_path / "t.parquet", how)
        return
    row, column, cell, words = FAULTS[fault]
    at = row if text or row < 5 else row - 1
    cells[at][column] = cell
    with pytest.raises(TableError) as caught:
        prepare(write_cells(tmp_path / "raw.csv", cells), tmp_path / "t.parquet", how)
    message = str(caught.value)
    assert words in message and TEXT not in message and NUMBER not in message and "05:00" not in message, message
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert not (tmp_path / "t.parquet").exists()


def test_one_persons_rows_depend_on_that_person_alone(tmp_path: Path) -> None:
    table = pa.table(long_of(records(people=12)))
    how = Preparation(**HOW, **LONG, text=("ward",))
    found = []
    for keep in (np.full(table.num_rows, True), np.asarray(table.column("patient")) != "p003"):
        pq.write_table(table.take(np.flatnonzero(keep)), tmp_path / "raw.parquet")
        prepare(tmp_path / "raw.parquet", tmp_path / "t.parquet", how)
        found.append([row for row in pq.read_table(tmp_path / "t.parquet").to_pylist() if row["patient"] != "p003"])
    assert found[0] == found[1]


def test_settings_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a column of names and a column of values"):
        Preparation(**HOW, name="item")
    for items, more in (({"1": "pulse"}, {}), ({"1": "nobody"}, LONG), ({"pulse": "map"}, LONG)):
        with pytest.raises(ValueError, match="maps codes of a long table"):
            Preparation(**HOW, items=items, **more)
    with pytest.raises(ValueError, match="`item` is named twice"):
        Preparation(**HOW, name="item", value="item")
    pq.write_table(pa.table({"patient": ["a"], "at": [DAY], "item": [1.5], "amount": [1.0]}), tmp_path / "raw.parquet")
    with pytest.raises(TableError, match="the name must be whole numbers or text"):
        prepare(tmp_path / "raw.parquet", tmp_path / "t.parquet", Preparation(**HOW, **LONG))


# ---------------------------------------------------------------------------------- ends that are numbers, as times are

HOURS: dict[str, Any] = {
    "who": ["a", "a", "b"],
    "h": [0.0, 5.0, 2.0],
    "x": [1.0, 2.0, 3.0],
    "a": [0.0, 1.0, 0.0],
    "r": [None, 1.0, 0.0],
    "out": [16.0, None, None],
}
UNTIL: dict[str, Any] = {"unit": "who", "time": "h", "every": 4, "columns": {"x": "last"}, "action": {"a": "sum"}}
UNTIL |= {"reward": "r", "horizon": 9, "end": "out", "end_time": True}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_end_is_a_number_where_times_are(tmp_path: Path, ending: str) -> None:
    write: Any = pyarrow.csv.write_csv if ending == "csv" else pq.write_table
    write(pa.table(HOURS), tmp_path / f"raw.{ending}")
    prepare(tmp_path / f"raw.{ending}", tmp_path / "t.parquet", Preparation(**UNTIL))
    found = pq.read_table(tmp_path / "t.parquet").to_pydict()
    assert found["who"] == ["a"] * 3 + ["b"] and found["terminated"] == [False, False, True, False]
    assert found["a"] == [1, 0, 0, 0] and found["r"] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ([16.0, 4.0, None], "`h` is after `out`, a negative duration, at row 1"),
        ([16.0, float("-inf"), None], "`out` is infinite at row 1"),
        ([True, None, None], "one holds numbers"),
        (pa.array([DAY, None, None]), "one holds numbers"),
    ],
)
def test_an_end_that_cannot_be(tmp_path: Path, out: Any, words: str) -> None:
    pq.write_table(pa.table(HOURS | {"out": out}), tmp_path / "raw.parquet")
    with pytest.raises(TableError, match=words) as caught:
        prepare(tmp_path / "raw.parquet", tmp_path / "t.parquet", Preparation(**UNTIL))
    assert "16" not in str(caught.value) and "inf " not in str(caught.value)
