"""Whatever one person's records are, the rows of another person stay as they were."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privrl.data.prepare.preparation import Preparation
from privrl.data.prepare.prepare_table import prepare
from privrl.data.prepare.windows import SortedRecords, Windows, count_windows, subtract_times
from privrl.data.schema.table_schema import TableError

DAY = 86_400 * 10**9
FIRST, LAST = -(2**63) + 1, 2**63 - 1  # nanoseconds that an int64 can hold; the smallest one is a null of NumPy
HOW: dict[str, Any] = {"unit": "id", "time": "t", "columns": {"hr": "last"}, "action": {"dose": "sum"}, "reward": "r"}


def rows_of_a(folder: Path, times: pa.Array, how: Preparation, **more: Any) -> list[dict[str, Any]]:
    """The result for A, of whom are all records but the last two, which are of B."""
    count = len(times)
    ids = ["A"] * (count - 2) + ["B"] * 2
    raw = {"id": ids, "t": times, "hr": [60.0 + i for i in range(count)], "dose": [0.0] * count, "r": [1.0] * count}
    pq.write_table(pa.table(raw | more), folder / "raw.parquet")
    prepare(folder / "raw.parquet", folder / "t.parquet", how)
    rows = pq.read_table(folder / "t.parquet").to_pylist()
    assert {row["id"] for row in rows} == {"A", "B"}
    return [row for row in rows if row["id"] == "A"]


@pytest.mark.parametrize("state_at", ["start", "end"])
@pytest.mark.parametrize("far", [(FIRST, LAST), (FIRST, 0), (-1, LAST), (0, LAST), (-(2**62), 2**62)])
def test_times_as_far_apart_as_there_are_do_not_reach_another_person(
    tmp_path: Path, far: tuple[int, int], state_at: Any
) -> None:
    how = Preparation(**HOW, every="1d", horizon=10, state_at=state_at)
    near = rows_of_a(tmp_path, pa.array([0, DAY, 0, DAY], pa.timestamp("ns")), how)
    assert rows_of_a(tmp_path, pa.array([0, DAY, *far], pa.timestamp("ns")), how) == near


def test_dates_as_tables_have_them_do_not_reach_another_person(tmp_path: Path) -> None:
    days = (np.datetime64("2020-01-01") + np.arange(900)).astype("M8[ns]")
    how = Preparation(**HOW, every="1d", horizon=1000)
    near, far = (
        rows_of_a(tmp_path, pa.array(np.append(days, np.array(stay, "M8[ns]"))), how)
        for stay in (["2020-01-01", "2020-01-02"], ["1900-01-01", "2262-04-11"])
    )
    assert near == far


def test_an_end_as_far_away_as_there_is_does_not_reach_another_person(tmp_path: Path) -> None:
    how = Preparation(**HOW, every="1d", horizon=10, end="out")
    tables = []
    for begin, end in ((0, 2 * DAY), (FIRST, LAST)):
        times, out = (
            pa.array(x, pa.timestamp("ns")) for x in ([0, DAY, begin, begin + DAY], [3 * DAY, 3 * DAY, end, end])
        )
        tables.append(rows_of_a(tmp_path, times, how, out=out))
        lengths = pq.read_table(tmp_path / "t.parquet").column("id").to_pylist().count("B")
    assert tables[0] == tables[1] and len(tables[0]) == 2 and lengths == 10


def test_an_end_that_the_unit_of_the_times_cannot_hold_is_refused(tmp_path: Path) -> None:
    out = pa.array([datetime.datetime(2020, 1, 1)] * 3 + [datetime.datetime(9000, 1, 1)], pa.timestamp("s"))
    how = Preparation(**HOW, every="1d", end="out")
    with pytest.raises(TableError, match="`out` cannot be read") as caught:
        rows_of_a(tmp_path, pa.array([0, DAY, 0, DAY], pa.timestamp("ns")), how, out=out)
    assert "9000" not in str(caught.value)


@pytest.mark.parametrize(("times", "every"), [((0.0, 1e19), "1"), ((0.0, 1e308), "0.5"), ((-1e308, 1e308), "1")])
def test_numbers_too_far_apart_are_refused_in_words(tmp_path: Path, times: tuple[float, float], every: str) -> None:
    with pytest.raises(TableError, match="`t` is too far from the first record of its episode at row 3") as caught:
        rows_of_a(tmp_path, pa.array([0.0, 1.0, *times]), Preparation(**HOW, every=every, horizon=10))
    assert "e+" not in str(caught.value) and caught.value.__context__ is None
    assert not (tmp_path / "t.parquet").exists()


def test_differences_of_times_are_exact_and_windows_bounded() -> None:
    ends = np.array([-(2**63), -1, 0, 1, 2**63 - 1])
    for earlier in ends.tolist():
        later = ends[ends >= earlier]
        found = subtract_times(later, np.full_like(later, earlier)).tolist()
        assert found == [int(x) - earlier for x in later.tolist()]
    assert count_windows(np.array([2**64 - 1], np.uint64), 4, "t", str).tolist() == [2**62 - 1]
    for since in (np.array([2**64 - 1], np.uint64), np.array([np.inf]), np.array([np.nan]), np.array([1e19])):
        with pytest.raises(TableError, match="too far"):
            count_windows(since, 1, "t", str)


def test_a_record_in_a_window_below_zero_is_in_no_window() -> None:
    rows = SortedRecords(np.arange(4), np.array([0, 2]), np.zeros(4, np.int64))
    windows = Windows.from_records(rows, np.array([0, 1, 0, -1]), np.array([2, 2]))
    assert windows.group_of.tolist() == [0, 1, 2, -1]


@pytest.mark.parametrize("text", [False, True])
def test_a_cell_of_one_person_does_not_change_how_another_ones_are_read(tmp_path: Path, text: bool) -> None:
    how = Preparation("id", "t", "1", {"m": "last"}, {"dose": "sum"}, "r", 10, text=("m",) if text else ())
    found = []
    for cell in ("5", "", "x", "true", "2020-01-01", "00:10", "1e5"):
        (tmp_path / "raw.csv").write_text(f"id,t,m,dose,r\n1,0,{cell},0,1\n2,0,007,0,1\n")
        if text or cell in ("5", "", "1e5"):
            prepare(tmp_path / "raw.csv", tmp_path / "t.parquet", how)
            table = pq.read_table(tmp_path / "t.parquet")
            found.append((table.schema, table.to_pylist()[-1]))
        else:
            with pytest.raises(TableError, match="`m` does not hold a number at line 2 of .*`--text`"):
                prepare(tmp_path / "raw.csv", tmp_path / "t.parquet", how)
    assert all(each == found[0] for each in found)
    assert found[0][1]["m"] == ("007" if text else 7.0)


@pytest.mark.parametrize("zoned", [False, True])
@pytest.mark.parametrize("time", [0, 1, 2, 3])
def test_what_the_columns_of_a_csv_file_are_is_a_function_of_the_settings(zoned: bool, time: int) -> None:
    """Timestamps or numbers, truths or times of an end."""
    how = Preparation(**HOW, every=("1h", 1)[time % 2], end="out", end_time=time > 1, zoned=zoned)
    stamp = ("zoned time" if zoned else "time", "number")[time % 2]
    assert how.cells["t"] == stamp and how.cells["out"] == (stamp if time > 1 else "truth")


def test_text_in_a_parquet_file_is_text_already(tmp_path: Path) -> None:
    times = pa.array([0, DAY, 0, DAY], pa.timestamp("ns"))
    how = Preparation(**HOW, every="1d", text=("hr",))
    with pytest.raises(TableError, match="`hr` of `raw.parquet` holds floating-point numbers .* declared as text"):
        rows_of_a(tmp_path, times, how)
    assert rows_of_a(tmp_path, times, how, hr=["w", "w", "x", "y"])[0]["hr"] == "w"


def test_episodes_of_a_person_are_in_the_order_of_time_if_times_are_timestamps() -> None:
    """Ids of stays need not follow time: the first stay of `b` is number 9, of `a` number 2. With plain numbers, which
    may begin anew in every stay, it is the one that appears first: 4 and 7."""
    people = pa.array(["b", "b", "b", "a", "a", "b"])
    stays = pa.array([4, 9, 4, 7, 2, 9])
    times = np.array([50, 10, 40, 30, 20, 11])
    for dtype, expected in ((np.int64, [4, 3, 1, 5, 2, 0]), (np.float64, [3, 4, 2, 0, 1, 5])):
        rows = SortedRecords.from_columns(people, stays, times.astype(dtype))
        assert rows.order.tolist() == expected and rows.starts.tolist() == [0, 1, 2, 4]
