"""`privrl schema check`: every kind of fault in every column, without a value, and none where nothing is refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data.test_bad_tables import CASES, message_of, spoiled
from tables import BOUNDS, COLUMNS

from privrl.data.schema.table_schema import TableError
from privrl.data.tables.faults import find_faults, find_outside
from privrl.data.tables.parquet import read_parquet
from privrl.mdp.measurements import BinnedAction, Category, Feature

TEXT, NUMBER = "zyxwvcanary", 918273.0
OPTIONS: dict[str, Any] = {**COLUMNS, **BOUNDS, "max_episodes_per_unit": 2}


@pytest.mark.parametrize("case", CASES)
def test_a_table_with_one_fault_has_the_message_of_the_error(tmp_path: Path, case: str) -> None:
    cells, *_ = CASES[case]
    pq.write_table(pa.table(spoiled(**cells)), tmp_path / "stays.parquet")
    assert message_of(tmp_path / "stays.parquet") in find_faults(tmp_path / "stays.parquet", OPTIONS)


def test_nothing_is_said_of_a_table_that_is_as_declared(tmp_path: Path) -> None:
    pq.write_table(pa.table(spoiled()), tmp_path / "stays.parquet")
    assert find_faults(tmp_path / "stays.parquet", OPTIONS) == []


MEASURED: dict[str, Any] = {
    "unit": "who",
    "step": "t",
    "reward": "r",
    "terminated": "left",
    "horizon": 3,
    "features": (Feature("map", 30, 130), Feature("lactate", 0.1, 20, missing=True), Category("ward", ("icu", "home"))),
    "action": (BinnedAction("fluid", (0, 250)), BinnedAction("drug", (0.5, 1.0))),
}
GOOD: dict[str, list[Any]] = {
    "who": ["a"] * 3 + ["b"] * 3 + ["c"] * 3,
    "t": [0, 1, 2] * 3,
    "r": [0.0, 0.0, 1.0] * 3,
    "left": [0.0, 0.0, 1.0] * 3,
    "map": [70.0] * 9,
    "lactate": [1.0, None, float("nan")] * 3,
    "ward": ["icu", "home", "icu"] * 3,
    "fluid": [0.0, 250.0, 9000.0] * 3,
    "drug": [0.5, 1.0, 7.0] * 3,
}
BAD: dict[str, dict[int, Any]] = {
    "r": {0: None, 1: float("nan"), 2: float("inf"), 3: NUMBER, 4: None},
    "left": {0: NUMBER, 1: 0.5},
    "map": {0: None, 1: float("-inf"), 2: float("inf"), 3: float("nan")},
    "lactate": {0: float("inf")},
    "ward": {0: TEXT, 4: None},
    "fluid": {0: -NUMBER, 1: None, 2: float("nan"), 5: float("inf")},
    "drug": {8: 0.499},
}
EXPECTED = [
    ("r", "is null at row 0"),
    ("r", "is NaN at row 1"),
    ("r", "is infinite at row 2"),
    ("r", "is out of range at row 3"),
    ("left", "has a number with a fraction at row 1"),
    ("left", "is neither 0 nor 1 at row 0"),
    ("map", "has no value (it is null or NaN) at row 0"),
    ("map", "is infinite at row 1"),
    ("lactate", "is infinite at row 0"),
    ("ward", "has no value (it is null or NaN) at row 4"),
    ("ward", "holds none of the declared values at row 0"),
    ("fluid", "is null at row 1"),
    ("fluid", "is NaN at row 2"),
    ("fluid", "is infinite at row 5"),
    ("fluid", "is below the first edge at row 0"),
    ("drug", "is below the first edge at row 8"),
]


def written(path: Path, bad: dict[str, dict[int, Any]], **columns: Any) -> Path:
    table = {name: list(values) for name, values in GOOD.items()}
    for name, cells in bad.items():
        for row, cell in cells.items():
            table[name][row] = cell
    pq.write_table(pa.table(table | columns), path, row_group_size=4)
    return path


def test_all_kinds_of_all_columns_are_listed_at_once(tmp_path: Path) -> None:
    assert find_faults(written(tmp_path / "t.parquet", {}), MEASURED) == []
    found = find_faults(written(tmp_path / "t.parquet", BAD), MEASURED)
    assert len(found) == len(EXPECTED)
    for message, (column, words) in zip(found, EXPECTED, strict=True):
        assert message.startswith(f"Column `{column}` {words} of `t.parquet`"), message
    assert not any(canary in " ".join(found) for canary in (TEXT, "918273", "0.499"))


def test_rows_in_a_wrong_order_are_listed_beside_wrong_cells(tmp_path: Path) -> None:
    order = {"t": {1: 0, 4: 2, 5: 0}, "left": {3: 1.0}, "map": {2: None}, "who": {8: "a"}}
    found = find_faults(written(tmp_path / "t.parquet", order), MEASURED)
    kinds = ["map` has no value", "t` has a step twice", "t` skips a step", "t` goes back", "was true one row earlier"]
    assert len(found) == 6
    for message, words in zip(found, [*kinds, "a unit appears again"], strict=True):
        assert words in message, message
    longer = {name: values * 2 for name, values in GOOD.items()}
    longer |= {"who": ["a"] * 4 + ["b"] * 14, "t": [0, 1, 2, 3, *range(14)], "left": [0.0] * 18}
    pq.write_table(pa.table(longer), tmp_path / "t.parquet")
    assert ["beyond the horizon at row 3" in message for message in find_faults(tmp_path / "t.parquet", MEASURED)] == [
        True
    ]


def test_all_columns_of_a_wrong_type_and_all_that_are_not_there_are_listed(tmp_path: Path) -> None:
    stamps = pa.array([0] * 9, pa.timestamp("us", "UTC"))
    path = written(tmp_path / "t.parquet", {}, map=[TEXT] * 9, t=stamps, drug=[str(NUMBER)] * 9)
    pq.write_table(pq.read_table(path).drop_columns(["r", "ward"]), path)
    found = find_faults(path, MEASURED)
    assert len(found) == 5 and not any(canary in " ".join(found) for canary in (TEXT, "918273"))
    words = ("`t` of `t.parquet` holds timestamps", "no column `r`", "`map` of `t.parquet` holds text")
    words += ("no column `ward`", "`drug` of `t.parquet` holds text")
    assert all(any(each in message for message in found) for each in words)


def test_ids_without_a_name_are_listed_and_the_order_is_left_for_later(tmp_path: Path) -> None:
    found = find_faults(written(tmp_path / "t.parquet", {"who": {4: None}, "t": {1: 0}, "map": {0: None}}), MEASURED)
    assert len(found) == 2 and "`who` is null at row 4" in found[0] and "`map` has no value" in found[1]


@pytest.mark.parametrize(("column", "row"), [(column, row) for column, cells in BAD.items() for row in cells])
def test_a_table_has_a_fault_exactly_where_it_is_refused(tmp_path: Path, column: str, row: int) -> None:
    path = written(tmp_path / "t.parquet", {column: {row: BAD[column][row]}})
    with pytest.raises(TableError) as caught:
        read_parquet(path, **MEASURED).check()
    assert find_faults(path, MEASURED) == [str(caught.value)]


def test_rows_outside_bounds_are_found_beside_faults(tmp_path: Path) -> None:
    path = written(tmp_path / "t.parquet", BAD | {"lactate": {0: float("inf"), 6: NUMBER}})
    assert find_faults(path, MEASURED)
    (found,) = find_outside(path, MEASURED)  # infinite values are faults, and not outside
    assert "`lactate` is above 20 at row 6 of `t.parquet`" in found and "918273" not in found
    text = written(tmp_path / "text.parquet", {"lactate": {6: NUMBER}}, map=[TEXT] * 9)
    assert len(find_outside(text, MEASURED)) <= 1
    pq.write_table(pq.read_table(path).drop_columns(["r"]), path)
    assert find_outside(path, MEASURED) == []
