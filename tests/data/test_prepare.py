"""Raw records to steps: as a plain reading of the definition does it, whatever the order, the pieces and the format."""

import datetime
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from privrl.data.prepare import prepare_table as preparing
from privrl.data.prepare.preparation import Preparation, parse_duration
from privrl.data.prepare.prepare_table import prepare
from privrl.data.schema.table_schema import TableError
from privrl.data.tables.parquet import read_parquet
from privrl.mdp.measurements import BinnedAction, Category, Feature

DAY = datetime.datetime(2026, 5, 1)
COLUMNS = {"map": "mean", "lactate": "last", "ward": "last", "pulse": "max", "temp": "first"}
HOW: dict[str, Any] = {
    "unit": "patient",
    "time": "at",
    "every": "4h",
    "columns": COLUMNS,
    "action": {"dose": "sum"},
    "reward": "alive",
    "horizon": 4,
    "end": "left",
    "carry": "8h",
}


def records(seed: int = 0, people: int = 40) -> dict[str, list[Any]]:
    """People with records at irregular minutes, in any order, with gaps, long stays and short ones."""
    rng = np.random.default_rng(seed)
    rows = []
    for person in range(people):
        minutes = np.sort(rng.choice(60 * 30, size=rng.integers(1, 12), replace=False))
        for i, minute in enumerate(minutes.tolist()):
            measured = [None if rng.random() < 0.4 else round(float(rng.normal()), 3) for _ in range(4)]
            ward = [None, "icu", "step-down"][rng.integers(3)]
            dose = None if rng.random() < 0.5 else round(float(rng.random()), 3)
            last = i == len(minutes) - 1
            alive = float(person % 2) if last else None
            row = [f"p{person:03d}", DAY + datetime.timedelta(minutes=minute), *measured, ward, dose, alive]
            rows.append([*row, bool(last and person % 3)])
    order = rng.permutation(len(rows))
    names = ["patient", "at", "map", "lactate", "pulse", "temp", "ward", "dose", "alive", "left"]
    return {name: [rows[i][j] for i in order] for j, name in enumerate(names)}


def by_hand(raw: dict[str, list[Any]], how: Preparation) -> dict[str, list[dict[str, Any]]]:
    """The definition, one person and one window at a time."""
    people: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for i in range(len(raw["patient"])):
        people[raw["patient"][i]].append({name: values[i] for name, values in raw.items()})
    every, carry = parse_duration(how.every, "every"), parse_duration(how.carry, "carry")
    combine = {
        "last": lambda x: x[-1],
        "first": lambda x: x[0],
        "mean": lambda x: sum(x) / len(x),
        "max": max,
        "sum": sum,
    }
    result = {}
    for person, mine in people.items():
        mine.sort(key=lambda row: row["at"])
        windows: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in mine:
            windows[int((row["at"] - mine[0]["at"]).total_seconds() // every)].append(row)
        lag = 1 if how.state_at == "start" else 0
        steps = min(max(max(windows) + 1 - lag, 1), how.horizon)
        table = []
        for k in range(steps):
            line: dict[str, Any] = {"patient": person, "step": k}
            for name, way in how.columns.items():
                line[name] = None
                for back in range(math.floor(carry / every) + 1):
                    found = [row[name] for row in windows.get(k - back, ()) if row[name] is not None]
                    if found:
                        line[name] = combine[way](found)
                        break
            doses = [row["dose"] for row in windows.get(k + lag, ()) if row["dose"] is not None]
            line["dose"] = sum(doses) if doses else 0.0
            line["alive"] = [row["alive"] for row in mine if row["alive"] is not None][-1] if k == steps - 1 else 0.0
            cut = max(windows) + 1 - lag > how.horizon
            line["terminated"] = k == steps - 1 and mine[-1]["left"] and not cut
            table.append(line)
        result[person] = table
    return result


def assert_same(path: Path, raw: dict[str, list[Any]], how: Preparation) -> None:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    seen: list[str] = []
    for row in pq.read_table(path).to_pylist():
        found[row["patient"]].append(row)
        seen += [row["patient"]] if not seen or seen[-1] != row["patient"] else []
    assert len(seen) == len(set(seen))  # every person in one piece
    expected = by_hand(raw, how)
    assert found.keys() == expected.keys()
    for person, lines in expected.items():
        assert len(lines) == len(found[person])
        for wanted, line in zip(lines, found[person], strict=True):
            for name, value in wanted.items():
                assert line[name] == (pytest.approx(value) if isinstance(value, float) else value), (person, name)


@pytest.mark.parametrize("state_at", ["start", "end"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_steps_are_what_the_definition_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, state_at: str
) -> None:
    raw = records()
    table, source = pa.table(raw), tmp_path / f"raw.{ending}"
    if ending == "csv":
        pyarrow.csv.write_csv(table, source)
    else:
        pq.write_table(table, source, row_group_size=50)
    how = Preparation(**HOW | {"state_at": state_at, "text": ("ward",)})
    for piece_bytes in (2**25, 2**10):
        monkeypatch.setattr(preparing, "_PIECE_BYTES", piece_bytes)
        prepare(source, tmp_path / "stays.parquet", how)
        assert_same(tmp_path / "stays.parquet", raw, how)
    monkeypatch.setattr(preparing, "_WINDOWS", 3)  # halves of halves
    prepare(source, tmp_path / "stays.parquet", how)
    assert_same(tmp_path / "stays.parquet", raw, how)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"raw.{ending}", "stays.parquet"]


def test_the_result_is_read_as_a_table_of_measurements(tmp_path: Path) -> None:
    pq.write_table(pa.table(records()), tmp_path / "raw.parquet")
    prepare(tmp_path / "raw.parquet", tmp_path / "stays.parquet", Preparation(**HOW))
    features = [Feature(name, -9, 9, missing=True) for name in ("map", "lactate", "pulse", "temp")]
    data = read_parquet(
        tmp_path / "stays.parquet",
        unit="patient",
        step="step",
        reward="alive",
        terminated="terminated",
        horizon=4,
        features=[*features, Category("ward", ("icu", "step-down"), missing=True)],
        action=BinnedAction("dose", (0, 0.3, 0.8)),
    )
    assert data.check().num_units == 40  # nobody is lost


def test_one_persons_rows_depend_on_that_person_alone(tmp_path: Path) -> None:
    raw = records(people=12)
    pq.write_table(pa.table(raw), tmp_path / "raw.parquet")
    prepare(tmp_path / "raw.parquet", tmp_path / "all.parquet", Preparation(**HOW))
    everybody = pq.read_table(tmp_path / "all.parquet").to_pylist()
    keep = [i for i, person in enumerate(raw["patient"]) if person != "p003"]
    pq.write_table(pa.table(raw).take(keep), tmp_path / "raw.parquet")
    prepare(tmp_path / "raw.parquet", tmp_path / "others.parquet", Preparation(**HOW))
    others = pq.read_table(tmp_path / "others.parquet").to_pylist()
    assert others == [row for row in everybody if row["patient"] != "p003"]


def test_times_may_be_numbers_and_every_step_may_pay(tmp_path: Path) -> None:
    raw = {
        "who": [7, 7, 7, 7],
        "h": [0.0, 3.5, 4.0, 9.0],
        "x": [1, 2, 3, 4],
        "a": [0, 1, 2, 1],
        "r": [0.1, 0.2, 0.3, 0.4],
    }
    pq.write_table(pa.table(raw), tmp_path / "raw.parquet")
    how = Preparation("who", "h", 4, {"x": "last"}, {"a": "last"}, "r", 9, reward_each="mean", state_at="end")
    prepare(tmp_path / "raw.parquet", tmp_path / "t.parquet", how)
    assert pq.read_table(tmp_path / "t.parquet").to_pydict() == {
        "who": [7, 7, 7],
        "step": [0, 1, 2],
        "x": [2, 3, 4],
        "a": [1.0, 2.0, 1.0],
        "r": [pytest.approx(0.15), 0.3, 0.4],
    }


def test_an_episode_goes_on_until_its_end(tmp_path: Path) -> None:
    at = [DAY, DAY + datetime.timedelta(hours=5)]
    raw = {
        "who": [1, 1],
        "at": at,
        "x": [1, 2],
        "a": [0, 1],
        "r": [None, 1],
        "out": [DAY + datetime.timedelta(hours=16)] * 2,
    }
    for ending, steps in (("parquet", 3), ("csv", 3)):
        source = tmp_path / f"raw.{ending}"
        write: Any = pq.write_table if ending == "parquet" else pyarrow.csv.write_csv
        write(pa.table(raw), source)
        prepare(
            source,
            tmp_path / "t.parquet",
            Preparation("who", "at", "4h", {"x": "last"}, {"a": "sum"}, "r", 9, end="out", end_time=True),
        )
        table = pq.read_table(tmp_path / "t.parquet").to_pydict()
        assert table["step"] == list(range(steps)) and table["terminated"] == [False] * (steps - 1) + [True]
        assert table["a"] == [1, 0, 0] and table["r"] == [0, 0, 1] and table["x"] == [1, 2, None]


TEXT, NUMBER = "zyxwvcanary", "918273645"
LINES = {
    "patient": ["a", "a", "b", "b"],
    "at": ["2026-05-01 00:00:00", "2026-05-01 05:00:00", "2026-05-01 00:00:00", "2026-05-01 05:00:00"],
    "map": ["70", "71", "", "73"],
    "dose": ["0", "0.5", "", "1"],
    "alive": ["", "1", "", "0"],
    "left": ["false", "true", "false", "false"],
    "out": ["2026-05-02 00:00:00"] * 4,
}
FAULTS: dict[str, tuple[str, int, str, str]] = {
    "text in a number": ("map", 3, TEXT, "a number at line 5"),
    "text in a dose": ("dose", 1, TEXT, "a number at line 3"),
    "infinite": ("map", 3, "inf", "infinite at line 5"),
    "infinite dose": ("dose", 3, "-inf", "infinite at line 5"),
    "infinite reward": ("alive", 3, "inf", "infinite at line 5"),
    "no time": ("at", 2, "", "null at line 4"),
    "no person": ("patient", 2, "", "null at line 4"),
    "another zone": ("at", 3, "2026-05-01T05:00:00Z", "time zone"),
    "no such time": ("at", 3, f"2026-05-{TEXT}", "a time"),
    "time twice": ("at", 3, "2026-05-01 00:00:00", "twice in one episode at line 5"),
    "no reward": ("alive", 3, "", "no value in the episode that begins at line 4"),
    "end too early": ("left", 2, "true", "before the last record of an episode at line 4"),
    "text in an end": ("left", 2, TEXT, "true or false"),
}


def write_lines(path: Path, lines: dict[str, list[str]]) -> Path:
    rows = [",".join(lines), *(",".join(row) for row in zip(*lines.values(), strict=True))]
    path.write_text("\n".join(rows) + "\n")
    return path


SIMPLE: dict[str, Any] = HOW | {"columns": {"map": "mean"}}
UNTIL: dict[str, Any] = SIMPLE | {"end": "out", "end_time": True}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_named_without_the_cell(tmp_path: Path, fault: str) -> None:
    column, row, cell, words = FAULTS[fault]
    lines = LINES | {column: [*LINES[column][:row], cell, *LINES[column][row + 1 :]]}
    with pytest.raises(TableError) as caught:
        prepare(write_lines(tmp_path / "raw.csv", lines), tmp_path / "t.parquet", Preparation(**SIMPLE))
    message = str(caught.value)
    assert f"`{column}`" in message and words in message and "raw.csv" in message, message
    assert TEXT not in message and NUMBER not in message and "2026-05-01T05" not in message
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert not (tmp_path / "t.parquet").exists() and len(list(tmp_path.iterdir())) == 1


def test_a_record_after_the_end_is_a_negative_duration(tmp_path: Path) -> None:
    how = Preparation(**UNTIL)
    prepare(write_lines(tmp_path / "raw.csv", LINES), tmp_path / "t.parquet", how)
    after = [*LINES["out"][:2], *["2026-04-30 00:00:00"] * 2]
    for out, words in (
        (after, "`at` is after `out`, a negative duration, at line 4"),
        (["2026-05-02T00:00:00Z"] * 4, "`out` does not hold a time without a time zone at line 2"),
        ([TEXT] * 4, "`out` does not hold a time without a time zone at line 2"),
    ):
        with pytest.raises(TableError) as caught:
            prepare(write_lines(tmp_path / "raw.csv", LINES | {"out": out}), tmp_path / "t.parquet", how)
        message = str(caught.value)
        assert words in message and not any(canary in message for canary in ("2026", TEXT))
        assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize("cell", ["2026-05-01T05:00:00", "2026-05-01 05:00", TEXT])
def test_a_time_without_the_zone_that_was_declared(tmp_path: Path, cell: str) -> None:
    zoned = [f"{time.replace(' ', 'T')}+02:00" for time in LINES["at"]]
    how = Preparation(**SIMPLE | {"zoned": True})
    prepare(write_lines(tmp_path / "raw.csv", LINES | {"at": zoned}), tmp_path / "t.parquet", how)
    source = write_lines(tmp_path / "raw.csv", LINES | {"at": [*zoned[:3], cell]})
    with pytest.raises(TableError, match="`at` does not hold a time with a time zone at line 5") as caught:
        prepare(source, tmp_path / "t.parquet", how)
    assert "2026" not in str(caught.value) and TEXT not in str(caught.value)


def test_a_fault_far_down_is_placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privrl.data.prepare.raw._BLOCK_BYTES", 2**12)
    count = 2000
    times = [str(DAY + datetime.timedelta(minutes=i)) for i in range(count)]
    lines = {
        "patient": ["a"] * count,
        "at": times,
        "map": ["70"] * count,
        "dose": ["0"] * count,
        "alive": ["1"] * count,
    }
    lines["map"][1917] = TEXT
    source = write_lines(tmp_path / "raw.csv", lines)
    with pytest.raises(TableError, match="`map` does not hold a number at line 1919 "):
        prepare(source, tmp_path / "t.parquet", Preparation(**SIMPLE | {"end": None}))


def test_a_broken_file_is_not_quoted(tmp_path: Path) -> None:
    for text in (f"patient,at\n{TEXT}\n{TEXT},{TEXT},{TEXT}\n", "", "patient,at,map,dose,alive,left\n"):
        (tmp_path / "raw.csv").write_text(text)
        with pytest.raises(TableError) as caught:
            prepare(tmp_path / "raw.csv", tmp_path / "t.parquet", Preparation(**SIMPLE))
        assert TEXT not in str(caught.value) and caught.value.__context__ is None
    with pytest.raises(TableError, match="no column `left`"):
        prepare(write_lines(tmp_path / "raw.csv", {k: LINES[k] for k in LINES if k != "left"}), tmp_path / "t.parquet",
                Preparation(**SIMPLE))  # fmt: skip


def test_the_first_line_may_be_somebodys_record(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text(f"{TEXT},2026-05-01 00:00:00,{NUMBER}\n" * 3)
    with pytest.raises(TableError, match="has no column `patient`. Its first line must name the columns") as caught:
        prepare(tmp_path / "raw.csv", tmp_path / "t.parquet", Preparation(**SIMPLE))
    assert TEXT not in str(caught.value) and NUMBER not in str(caught.value)


def parquet_fault(column: str, values: Any) -> dict[str, Any]:
    times = pa.array([DAY, DAY + datetime.timedelta(hours=5)] * 2)
    good = {"patient": ["a", "a", "b", "b"], "stay": [1, 1, 1, 1], "at": times, "map": [70.0, 71.0, None, 73.0]}
    good |= {"dose": [0.0, 0.5, None, 1.0], "alive": [None, 1.0, None, 0.0], "left": [False, True, False, False]}
    return good | ({column: values} if column else {})


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("patient", ["a", None, "b", "b"], "null at row 1"),
        ("patient", [918273645.5] * 4, "whole numbers or text"),
        ("stay", [1, 1, None, 1], "null at row 2"),
        ("at", pa.array([918273645] * 4, pa.time64("us")), "times or numbers"),
        ("at", pa.array([DAY, None, DAY, DAY]), "null at row 1"),
        ("at", pa.array([DAY] * 4), "twice in one episode at row 1"),
        ("at", [TEXT] * 4, "holds text"),
        ("at", [0.0, float("nan"), 1.0, 2.0], "NaN or infinite at row 1"),
        ("map", [TEXT] * 4, "holds text"),
        ("map", [float("inf"), None, None, None], "infinite at row 0"),
        ("dose", [NUMBER] * 4, "holds text"),
        ("alive", [None, float("-inf"), None, 1.0], "infinite at row 1"),
        ("left", [0.0, 918273645.0, 0.0, 0.0], "neither 0 nor 1 at row 1"),
        ("left", [TEXT] * 4, "true or false"),
        ("left", pa.array([DAY] * 4, pa.timestamp("us", "Asia/Tokyo")), "only one has a time zone"),
        ("left", pa.array([DAY - datetime.timedelta(days=1)] * 4), "a negative duration, at row 0"),
    ],
)
def test_every_fault_of_a_parquet_file_is_named_without_the_cell(
    tmp_path: Path, column: str, values: Any, words: str
) -> None:
    pq.write_table(pa.table(parquet_fault(column, values)), tmp_path / "raw.parquet")
    with pytest.raises(TableError) as caught:
        prepare(tmp_path / "raw.parquet", tmp_path / "t.parquet", Preparation(**SIMPLE | {"episode": "stay"}))
    message = str(caught.value)
    assert f"`{column}`" in message and words in message, message
    assert not any(canary in message for canary in (TEXT, "918273", "2026"))
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert not (tmp_path / "t.parquet").exists()


def test_the_faultless_file_passes(tmp_path: Path) -> None:
    pq.write_table(pa.table(parquet_fault("", None)), tmp_path / "raw.parquet")
    prepare(tmp_path / "raw.parquet", tmp_path / "t.parquet", Preparation(**SIMPLE | {"episode": "stay"}))
    assert pq.read_metadata(tmp_path / "t.parquet").num_rows == 2


def test_other_formats_of_times(tmp_path: Path) -> None:
    lines = LINES | {"at": ["01.05.2026 00:00", "01.05.2026 05:00"] * 2}
    source = write_lines(tmp_path / "raw.csv", lines)
    with pytest.raises(TableError, match="Write times as in"):
        prepare(source, tmp_path / "t.parquet", Preparation(**SIMPLE))
    prepare(source, tmp_path / "t.parquet", Preparation(**UNTIL | {"time_format": "%d.%m.%Y %H:%M"}))
    assert pq.read_metadata(tmp_path / "t.parquet").num_rows == 8  # four steps each, for the end is a day later


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"every": "4 hours"}, "such as 4h"),
        ({"every": "0h"}, "must be above 0"),
        ({"every": 4.0, "carry": 0}, "give a unit"),
        ({"carry": 3.0}, "in the same form"),
        ({"columns": {}}, "at least one column"),
        ({"action": {"map": "sum"}}, "named twice"),
        ({"columns": {"map": "median"}}, "unknown. Use one of last"),
        ({"horizon": 0}, "from 1 to"),
        ({"state_at": "middle"}, "'start' or 'end'"),
        ({"text": ("map",)}, "aggregated by last or first"),
    ],
)
def test_settings_are_checked(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    source = write_lines(tmp_path / "raw.csv", LINES)
    with pytest.raises(ValueError, match=words):
        prepare(source, tmp_path / "t.parquet", Preparation(**SIMPLE | change))


def test_an_action_that_sees_its_own_effect_is_warned_of() -> None:
    assert Preparation(**HOW).warnings == ()
    assert "effect of its own action" in Preparation(**HOW | {"state_at": "end"}).warnings[0]
