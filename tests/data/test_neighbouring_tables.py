"""Two tables that differ in the rows of one person, A: everybody else's rows are read alike, and ids stay distinct.

Each test puts another cell, type, folder or file of A into a table. The table is then refused, without the cell in the
message, or the rows of all other people are those that they were.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import BOUNDS, COLUMNS, good_rows

from privrl.data import Episodes, TableError, read_parquet, write_parquet
from privrl.data.prepare import raw as raw_module
from privrl.data.prepare.preparation import Preparation
from privrl.data.prepare.prepare_table import prepare
from privrl.data.rows.episode_cache import Chunk
from privrl.data.tables import shards as shards_module
from privrl.data.tables.draft import draft_schema
from privrl.data.tables.faults import find_faults
from privrl.data.tables.parquet import ParquetEpisodes
from privrl.data.tables.shards import ShardedEpisodes
from privrl.data.tables.spread import spread
from privrl.executors.executor import InProcess
from privrl.mdp.measurements import Category, Feature
from privrl.mdp.types import Trajectory

KEYS = {"unit": "patient", "episode": "stay", "step": "hour"}
TABLE: dict[str, Any] = {**COLUMNS, **BOUNDS, "max_episodes_per_unit": 2}
MEASURED: dict[str, Any] = {**KEYS, "action": "drug", "reward": "gain", "horizon": 4, "num_actions": 3}


def refused(read: Callable[[], Any]) -> tuple[Any, str]:
    """What is read, and nothing; or nothing, and why it is refused."""
    try:
        return read(), ""
    except TableError as error:
        return None, str(error)


def people(data: ParquetEpisodes) -> dict[bytes, list[Any]]:
    """The episodes of every person, by their id."""
    ids = [name for piece in data.unit_ids() for name in piece]
    assert len(set(ids)) == len(ids) == data.num_units
    found: dict[bytes, list[Any]] = {name: [] for name in ids}
    for block in data.blocks():
        for i, unit in enumerate(block.unit.tolist()):
            columns = block.slice(i, i + 1).columns.values()
            found[ids[unit]].append([(column.dtype.str, column.tolist()) for column in columns])
    return found


def in_folders(root: Path, folders: list[str], drop: tuple[str, ...], **columns: Any) -> Path:
    """A file of one stay in each folder, without the columns that the names of folders give."""
    for i, folder in enumerate(folders):
        rows = {"patient": [f"p{i}"] * 2, "stay": [i] * 2, "hour": [0, 1], "ward": [i % 5, 0], "drug": [0, i % 3]}
        rows |= {"gain": [0.0, i / 8]} | {name: [values[i]] * 2 for name, values in columns.items()}
        (root / folder).mkdir(parents=True)
        table = pa.table({name: values for name, values in rows.items() if name not in drop})
        pq.write_table(table, root / folder / "part-0.parquet")
    return root


# ------------------------------------------------------------------------------------------------ names of folders


@pytest.mark.parametrize(
    "name", ["9", "x9", "9.0", "-9", "1e5", str(2**64), "true", "2020-01-01", "%39", "nan", "NULL"]
)
@pytest.mark.parametrize("part", ["patient", "stay"])
def test_ids_in_the_names_of_folders_are_text(tmp_path: Path, part: str, name: str) -> None:
    ids = ["007", "7", "07", "7.0", name]
    place = (lambda i: f"patient={i}") if part == "patient" else (lambda i: f"patient=B/stay={i}")
    table = in_folders(tmp_path / "t", [place(i) for i in ids], ("patient", part))
    how = TABLE | {"max_episodes_per_unit": 9}
    found = people(read_parquet(table, **how))
    if part == "patient":
        assert set(found) == {b"007", b"7", b"07", b"7.0", b"9" if name == "%39" else name.encode()}
        assert [found[i] for i in (b"007", b"7", b"07", b"7.0")] == [
            people(read_parquet(table / f"patient={i}", **how))[i.encode()] for i in ("007", "7", "07", "7.0")
        ]
    else:
        assert len(found[b"B"]) == 5
    assert find_faults(table, how) == []
    data = ShardedEpisodes.from_dataset(read_parquet(table, **how), InProcess(), 1)
    assert data.check() == read_parquet(table, **how).check()


def test_a_folder_name_that_is_not_a_number_leaves_the_number_of_people_as_it_was(tmp_path: Path) -> None:
    """Read as numbers where all of them are, 007 and 7 were one person, or two if A was called x9."""
    counts = []
    for i, name in enumerate(("9", "x9")):
        folders = [f"patient={who}" for who in ("007", "7", name)]
        counts.append(read_parquet(in_folders(tmp_path / str(i), folders, ("patient",)), **TABLE).num_units)
    assert counts == [3, 3]


@pytest.mark.parametrize("name", ["3", "03", "x", "3.5", "", "1e400", "__HIVE_DEFAULT_PARTITION__", "SECRET"])
@pytest.mark.parametrize("part", ["ward", "hour", "age", "site", "end"])
def test_other_columns_in_the_names_of_folders_have_the_type_of_their_part(
    tmp_path: Path, part: str, name: str
) -> None:
    own = {"ward": "2", "hour": "0", "age": "61", "site": "2", "end": "true"}[part]
    features = {"features": [Feature("age", 0, 99), Category("site", ("2", "3", "03", "x"))]}
    how: dict[str, Any] = TABLE if part in ("ward", "hour") else MEASURED | features
    how = how | ({"terminated": "end"} if part == "end" else {})
    others = {"age": [7.0] * 2, "site": ["x"] * 2, "end": [False] * 2} if how is not TABLE else {}

    def read(root: str, last: str) -> Any:
        folders = [f"{part}={own}/a", f"{part}={last}/b"]
        table = in_folders(tmp_path / root, folders, (part,), **{k: v for k, v in others.items() if k != part})
        for path in table.rglob("*.parquet"):  # one step each, so that an end is the last row
            pq.write_table(pq.read_table(path).slice(0, 1), path)
        return people(read_parquet(table, **how))[b"p0"]

    before = read("before", own)
    after, error = refused(lambda: read("after", name))
    assert after == before if not error else f"`{part}`" in error and (len(name) < 2 or name not in error), error


def test_folder_names_that_are_not_utf8_are_refused_and_not_merged(tmp_path: Path) -> None:
    table = in_folders(tmp_path / "t", ["patient=%FF", "patient=%FE"], ("patient",))
    with pytest.raises(TableError, match=r"A folder of `part-0.parquet` \(file 1 of 2\) has a name that is not text"):
        read_parquet(table, **TABLE)


def test_no_error_quotes_the_name_of_a_folder(tmp_path: Path) -> None:
    table = in_folders(tmp_path / "t", ["patient=SECRET1", "patient=SECRET2"], ("patient",))
    for path in table.rglob("*.parquet"):
        pq.write_table(pq.read_table(path).slice(0, 0), path)
    (table / "patient=SECRET3").mkdir()
    for where in (table, f"{table}/*1", f"{table}/*3", table / "patient=SECRET3"):
        with pytest.raises(TableError, match=r"no rows|no `\*.parquet`") as caught:
            read_parquet(where, **TABLE)
        assert "SECRET" not in str(caught.value)


# ---------------------------------------------------------------------------------------------- files of other types


TYPES: list[pa.DataType] = [
    *(pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_()),
    *(pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.int64())),
    *(pa.decimal128(9, 2), pa.decimal128(12, 3), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("us", "UTC")),
    *(pa.timestamp("us", "Europe/Berlin"), pa.date32(), pa.time64("us"), pa.list_(pa.int64()), pa.null(), pa.binary()),
]


def of_type(dtype: pa.DataType, count: int) -> pa.Array:
    """Zeros (texts: 007) in this type."""
    if pa.types.is_dictionary(dtype):
        return of_type(dtype.value_type, count).dictionary_encode()
    if dtype == pa.float16():
        return pa.array(np.zeros(count, np.float16))
    cells: dict[Any, Any] = {pa.string(): "007", pa.large_string(): "007", pa.binary(): b"0", pa.null(): None}
    cells |= {pa.list_(pa.int64()): [0], pa.bool_(): False}
    return pa.array([cells.get(dtype, 0)] * count, dtype)


@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize("column", ["patient", "stay", "hour", "ward", "drug", "gain", "age", "site"])
def test_a_file_of_another_type_is_refused_or_changes_nothing(tmp_path: Path, column: str, sort: bool) -> None:
    features = {"features": [Feature("age", 0, 99), Category("site", ("0", "007", "x", "false"))]}
    how = (MEASURED | features if column in ("age", "site") else TABLE) | {"sort": sort}
    rows = good_rows() | {"age": [61.0] * 7, "site": ["x"] * 7}
    pq.write_table(pa.table(rows).slice(4), tmp_path / "b.parquet")  # Bob's
    before = people(read_parquet(tmp_path / "b.parquet", **how))[b"bob"]
    for dtype in TYPES:
        mine = pa.table(rows).slice(0, 1)
        at = mine.column_names.index(column)
        pq.write_table(mine.set_column(at, column, of_type(dtype, 1)), tmp_path / "a.parquet")
        found, error = refused(lambda: people(read_parquet(tmp_path, **how)))
        if error:
            assert f"`{column}`" in error and "007" not in error, (dtype, error)
        else:
            assert found[b"bob"] == before and len(found) == 2, dtype


@pytest.mark.parametrize("theirs", TYPES, ids=str)
@pytest.mark.parametrize("first", [False, True])
def test_shard_refuses_files_of_different_types_and_never_converts(
    tmp_path: Path, theirs: pa.DataType, first: bool
) -> None:
    """Whether A's file comes first or last."""
    source = tmp_path / "in"
    source.mkdir()
    b = pa.table({"id": ["B", "C"], "x": of_type(theirs, 2)})
    pq.write_table(b, source / "b.parquet")
    for i, mine in enumerate(TYPES):
        pq.write_table(pa.table({"id": ["A"], "x": of_type(mine, 1)}), source / ("a.parquet" if first else "c.parquet"))
        out = tmp_path / str(i)
        encoding = [dtype.value_type if pa.types.is_dictionary(dtype) else dtype for dtype in (mine, theirs)]
        texts = {pa.string(), pa.large_string()}
        if encoding[0] == encoding[1] or set(encoding) <= texts:
            spread(source, out, unit="id", files=1)
            found = pq.read_table(out).filter(pa.array([False, True, True]))
            cells, wanted = found["x"].combine_chunks(), b["x"].combine_chunks()
            assert found["x"].type == (pa.large_string() if set(encoding) <= texts else encoding[1])
            assert cells.to_pylist() == wanted.to_pylist() and found["id"].to_pylist() == ["B", "C"]
        else:
            with pytest.raises(TableError, match="Column `x` holds .* Write all files with the same type"):
                spread(source, out, unit="id", files=1)
            assert not out.exists()


def test_shard_keeps_people_apart_and_numbers_as_they_are(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [7], "x": pa.array([0.5], pa.float32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": ["007", "7"], "x": [0.1, 0.2]}), tmp_path / "b.parquet")
    with pytest.raises(TableError, match="`id` holds whole numbers of 64 bits in `a.parquet` and text in `b.parquet`"):
        spread(tmp_path, tmp_path / "out", unit="id", files=2)
    spread(tmp_path / "b.parquet", tmp_path / "out", unit="id", files=1)
    assert pq.read_table(tmp_path / "out").to_pydict() == {"id": ["007", "7"], "x": [0.1, 0.2]}


@pytest.mark.parametrize("name", ["9", "x9"])
def test_shard_keeps_what_the_names_of_folders_say(tmp_path: Path, name: str) -> None:
    folders = [f"patient={i}/site=03" for i in ("007", "7", name)]
    table = in_folders(tmp_path / "t", folders, ("patient",))
    spread(table, tmp_path / "out", **KEYS, files=3)
    assert people(read_parquet(tmp_path / "out", **TABLE)) == people(read_parquet(table, **TABLE))
    assert set(pq.read_table(tmp_path / "out")["site"].to_pylist()) == {"03"}


def test_shards_belong_to_their_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []
    remove = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path, **how: (modes.append(path.stat().st_mode), remove(path, **how)))
    pq.write_table(pa.table(good_rows()), tmp_path / "t.parquet")
    spread(tmp_path / "t.parquet", tmp_path / "out", unit="patient", files=7)
    modes += [path.stat().st_mode for path in (tmp_path / "out").iterdir()]
    assert len(modes) > 2 and {mode & 0o777 for mode in modes} == {0o600}


def test_the_footer_of_a_shard_is_not_taken_at_its_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = good_rows() | {"patient": ["B", "B", "C", "C", "D", "D", "B"], "stay": [1, 1, 2, 2, 3, 3, 4]}
    pq.write_table(pa.table(rows | {"hour": [0, 1, 0, 1, 0, 1, 0]}), tmp_path / "t.parquet", row_group_size=2)
    data = ShardedEpisodes.from_dataset(read_parquet(tmp_path / "t.parquet", **TABLE), InProcess(), 2)
    claims = {shard.data.table.pieces: (f"{i}A", f"{i}Z") for i, shard in enumerate(data.shards)}
    monkeypatch.setattr(shards_module, "_range", lambda table: claims[table.pieces])
    with pytest.raises(TableError, match="a unit is in two shards"):
        data.check()


# ------------------------------------------------------------------------------------------------------- CSV files


CELLS = [
    *(
        "",
        "5",
        "5.0",
        "05",
        "+5",
        "-0",
        "1e400",
        "1e5",
        str(2**53 + 1),
        str(2**64),
        "0x10",
        '"1,234"',
        '"1.234,5"',
        "5 %",
    ),
    *("NA", "null", "nan", "NaN", "N/A", "inf", "true", "FALSE", "yes", "x", "é", " ", '""', '"quoted"', 'in"side'),
    *("2020-01-01", "2020-01-01 00:00:00", "2020-01-01T00:00:00Z", "01.02.2020", "02/01/2020", "00:10", "20200101"),
]
WIDE = Preparation("id", "t", "1", {"m": "last", "w": "last"}, {"dose": "sum"}, "r", 10, "stay", text=("w",))
HEAD = ["id", "stay", "t", "m", "w", "dose", "r", "unused"]
OTHERS = [
    *(["007", "1", "0", "7", "NA", "0.1", "1", "z"], ["007", "1", "1", "NA", "007", "", "1", "z"]),
    *(["7", "01", "0", "8", "null", "1", "0", "z"], ["7", "1", "0", str(2**53 + 1), "", "1", "0", "z"]),
]


def prepared(path: Path, lines: list[list[str]], how: Preparation, head: list[str]) -> tuple[pa.Schema, list[Any]]:
    """The types, and the rows of all people but A."""
    path.write_text("\n".join(map(",".join, [head, *lines])) + "\n")
    prepare(path, path.with_suffix(".parquet"), how)
    table = pq.read_table(path.with_suffix(".parquet"))
    rows = table.to_pylist()
    return table.schema, [row for row in rows if row["id"] in {line[0] for line in OTHERS}]


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("column", range(len(HEAD)))
def test_a_cell_of_a_csv_file_is_refused_or_reaches_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: int, small: bool
) -> None:
    if small:
        monkeypatch.setattr(raw_module, "_BLOCK_BYTES", 100)  # types must not follow from the first cells
    own = ["A", "1", "0", "5", "w", "0", "1", "u"]
    before = prepared(tmp_path / "raw.csv", [own, *OTHERS], WIDE, HEAD)
    assert [row["w"] for row in before[1]] == ["NA", "null", None] and before[1][1]["m"] == 8.0
    for cell in CELLS:
        mine = [*own[:column], cell, *own[column + 1 :]]
        for lines in ([mine, *OTHERS], [*OTHERS, mine]):
            (tmp_path / "raw.parquet").unlink(missing_ok=True)
            after, error = refused(lambda lines=lines: prepared(tmp_path / "raw.csv", lines, WIDE, HEAD))
            if error:
                assert HEAD[column] not in ("w", "unused") and f"`{HEAD[column]}`" in error, (cell, error)
            else:
                assert after == before, cell


@pytest.mark.parametrize("kind", ["time", "zoned", "format"])
def test_a_time_of_a_csv_file_is_refused_or_reaches_nobody_else(tmp_path: Path, kind: str) -> None:
    times = {
        "time": ["2020-02-01 00:00:00", "2020-02-01"],
        "zoned": ["2020-02-01T00:00:00Z", "2020-02-01T01:30:00+01:00"],
        "format": ["01.02.2020 00:00", "02.01.2020 00:00"],
    }[kind]
    more: dict[str, Any] = {"zoned": kind == "zoned", "time_format": "%d.%m.%Y %H:%M" if kind == "format" else None}
    how = Preparation("id", "t", "1d", {"m": "last"}, {"dose": "sum"}, "r", 100, **more)
    others = [["007", times[0], "1", "0", "1"], ["7", times[1], "2", "0", "1"]]
    results = []
    for cell in [times[0], *times, *CELLS]:
        lines = [["A", cell, "3", "0", "1"], *others]
        head = ["id", "t", "m", "dose", "r"]
        result, error = refused(lambda lines=lines, head=head: prepared(tmp_path / "raw.csv", lines, how, head))
        assert not error or "`t`" in error
        results += [] if error else [result]
    assert len(results) > 2 and all(result == results[0] for result in results) and len(results[0][1]) == 2


@pytest.mark.parametrize("column", ["w", "unused"])
@pytest.mark.parametrize(
    "cells", [('"open', "x"), ('"open', 'close"'), ('"open\nline"', "x"), ('a"b', '"open'), ("x", '"')]
)
def test_an_open_quotation_mark_does_not_hide_the_rows_of_others(
    tmp_path: Path, cells: tuple[str, str], column: str
) -> None:
    own, at = ["A", "1", "0", "5", "w", "0", "1", "u"], HEAD.index(column)
    lines = [[*own[:at], cells[0], *own[at + 1 :]], *OTHERS[:2]]
    lines += [[*own[:2], "1", *own[3:at], cells[1], *own[at + 1 :]], *OTHERS[2:]]
    refusal = r"`raw.csv` holds a line break|too many or too few cells at line \d+ of `raw.csv`"
    with pytest.raises(TableError, match=refusal):
        prepared(tmp_path / "raw.csv", lines, WIDE, HEAD)
    assert not (tmp_path / "raw.parquet").exists()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n", ""])
def test_every_line_of_a_csv_file_is_a_row(tmp_path: Path, end: str) -> None:
    lines = [["A", "1", "0", "", '"a, ""b"""', "0", "1", 'in"side'], *OTHERS]
    text = (end or "\n").join(map(",".join, [HEAD, *lines])) + end
    (tmp_path / "raw.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    prepare(tmp_path / "raw.csv", tmp_path / "t.parquet", WIDE)
    assert pq.read_table(tmp_path / "t.parquet")["id"].to_pylist() == ["007", "7", "7", "A"]


@pytest.mark.parametrize("marker", ["NA", "null", "nan", "NaN", "N/A", "NULL"])
def test_only_an_empty_cell_of_text_is_missing(tmp_path: Path, marker: str) -> None:
    own = [[marker, marker, "0", marker, marker, marker, "1", marker], [marker, marker, "1", "5", "", "1", "1", ""]]
    prepared(tmp_path / "raw.csv", [*own, *OTHERS], WIDE, HEAD)
    rows = [row for row in pq.read_table(tmp_path / "raw.parquet").to_pylist() if row["id"] == marker]
    assert [(row["stay"], row["m"], row["w"], row["dose"]) for row in rows] == [(marker, None, marker, 1.0)]
    for column in (0, 1):
        empty = [*own[0][:column], "", *own[0][column + 1 :]]
        with pytest.raises(TableError, match=f"`{HEAD[column]}` is null"):
            prepared(tmp_path / "raw.csv", [empty, *OTHERS], WIDE, HEAD)


# ----------------------------------------------------------------------------------------------------- long tables


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("name", ["m", "w", "r", "other", "NA", "1.0", "001"])
def test_a_value_of_a_long_table_is_refused_or_reaches_nobody_else(
    tmp_path: Path, name: str, text: bool, ending: str
) -> None:
    columns = {"m": "last"} | ({"w": "last"} if text else {})
    more: dict[str, Any] = {"text": ("w",) if text else (), "name": "item", "value": "x", "items": {"1": "m"}}
    how = Preparation("id", "t", "1", columns, {"dose": "sum"}, "r", 10, **more)
    others = [["007", "0", "1", "7"], ["007", "0", "r", "1"], ["7", "0", "m", "NA"], ["7", "0", "r", "0.1"]]
    others += [["7", "0", "w", "NA"], ["7", "1", "w", ""]] if text else [["7", "0", "dose", "0.1"]]

    def result(cell: str) -> tuple[pa.Schema, list[Any]]:
        lines = [["A", "0", "r", "1"], ["A", "1", name, cell], *others]
        if ending == "csv":
            return prepared(tmp_path / "raw.csv", lines, how, ["id", "t", "item", "x"])
        cells = dict(zip(["id", "t", "item", "x"], map(list, zip(*lines, strict=True)), strict=True))
        numbers = {"t": [float(t) for t in cells["t"]]}
        if not text:
            numbers["x"] = [float(x) if x.strip("NA") else None for x in cells["x"]]  # type: ignore[misc]
        pq.write_table(pa.table(cells | numbers), tmp_path / "raw.parquet")
        prepare(tmp_path / "raw.parquet", tmp_path / "t.parquet", how)
        table = pq.read_table(tmp_path / "t.parquet")
        return table.schema, [row for row in table.to_pylist() if row["id"] != "A"]

    before = result("1")
    assert before[1][0]["m"] == 7.0 and before[1][1]["m"] is None
    assert not text or [row["w"] for row in before[1]] == [None, "NA"]
    for cell in CELLS:
        if ending == "parquet" and not text:
            try:
                float(cell)
            except ValueError:
                continue
        after, error = refused(lambda cell=cell: result(cell.strip('"') if ending == "parquet" else cell))
        if error:
            assert (name != "w" or not text) and "`x`" in error, (cell, error)
        else:
            assert after == before, cell


# ------------------------------------------------------------------------------------ what is written, kept or drafted


@pytest.mark.parametrize("encode", [False, True])
def test_cells_of_one_file_do_not_reach_each_other(save: Callable[..., Path], encode: bool) -> None:
    """Dictionaries, narrow types of kept numbers, and drafts of schemas, whatever the cells of A are."""
    found, drafts = [], []
    for gain, ward, hour, stay in ((0.0, 0, 0, 10), (0.1, 4, 2**40, -(2**63)), (1.0, 1, -5, 2**63 - 1)):
        rows = good_rows()
        rows["gain"][:2], rows["ward"][:2], rows["stay"][:2] = [gain] * 2, [ward] * 2, [stay] * 2
        rows["hour"][:2] = [hour, hour + 1]
        columns = {name: pa.array(values) for name, values in rows.items()}
        path = save({k: v.dictionary_encode() for k, v in columns.items()} if encode else columns)
        data = read_parquet(path, **TABLE)
        blocks = [chunk.to_block() for chunk in data.chunks()]
        kept = [(b.rewards[b.unit.repeat(b.lengths) == 1].tolist(), b.rewards.dtype) for b in blocks]
        found.append((people(data)[b"bob"], people(data)[b"ann"][-1:], kept))
        drafts.append(draft_schema(path))
    assert found[0] == found[1] == found[2] and len(set(drafts)) == 1


def test_numbers_that_are_kept_narrow_come_back_as_they_were(save: Callable[..., Path]) -> None:
    rows = good_rows()
    block = next(read_parquet(save(rows), **TABLE).blocks())
    for reward in (0.0, 1.0, 0.5, 0.1, -0.0, np.nextafter(1.0, 0.0)):
        rewards = block.rewards.copy()
        rewards[:2] = reward
        other = type(block)(block.unit, block.lengths, block.states, block.actions, rewards, block.next_states)
        again = Chunk.from_block(other, 0, read_parquet(save(rows), **TABLE).bounds).to_block()
        assert again.rewards.tobytes() == rewards.tobytes()


MIXED = [[7, "007"], [7, 9.0], [2**53, 2**53 + 1, 0.5], [True, 7], [7, None], [b"7", "7"], ["7", 7.0]]


@pytest.mark.parametrize("units", MIXED, ids=str)
def test_ids_of_several_types_are_not_written(tmp_path: Path, units: list[Any]) -> None:
    """NumPy would make text or rounded numbers of all of them."""
    n = len(units)
    trajectories = Trajectory(
        *(np.zeros((n, 2), int) for _ in range(2)), np.zeros((n, 2)), np.zeros((n, 2), int), np.full(n, 2)
    )
    with pytest.raises(TableError, match="`units`") as caught:
        write_parquet(tmp_path / "t.parquet", trajectories, units=units)
    assert "007" not in str(caught.value) and not (tmp_path / "t.parquet").exists()


@pytest.mark.parametrize(
    "units", [["a", "a\0", "A"], [2**63 - 1, 2**63 - 2, -1], np.array([3, 1, 2], np.uint8), jnp.arange(3)], ids=str
)
def test_ids_are_written_as_they_are(tmp_path: Path, units: Any) -> None:
    grid = np.zeros((3, 2), int)
    trajectories = Trajectory(grid, grid, np.arange(6).reshape(3, 2) / 8, grid, np.full(3, 2))
    write_parquet(tmp_path / "t.parquet", trajectories, units=units)
    found = pq.read_table(tmp_path / "t.parquet")
    assert dict(zip(found["unit_id"].to_pylist()[::2], found["reward"].to_pylist()[::2], strict=True)) == {
        unit: 2 * i / 8 for i, unit in enumerate(np.asarray(units).tolist() if hasattr(units, "dtype") else units)
    }


@pytest.mark.parametrize("other", [5, "5", 5.0, "x", 2**70, np.int8(5), "5.0"], ids=repr)
def test_ids_in_memory_are_each_their_own(other: Any) -> None:
    ids = ["007", "7", 2**53, 2**53 + 1, "9", other]
    grid = np.zeros((6, 2), int)
    data = Episodes.from_arrays(grid, grid, grid * 0.0, units=ids, horizon=2, num_states=1, num_actions=1)
    assert [name for piece in data.unit_ids() for name in piece][:5] == [str(i).encode() for i in ids[:5]]
    assert data.num_units == 6


def test_lists_in_memory_are_refused_or_read_alike() -> None:
    found = []
    for cell in (0.5, 1, True, 2**70, "1", None, 0.1):
        rewards: Any = [[cell, 0.0], [1, 0.1]]
        try:
            data = Episodes.from_arrays([[0, 0]] * 2, [[0, 0]] * 2, rewards, horizon=2, num_states=1, num_actions=1)
        except TableError:
            continue
        found.append([block.rewards[2:].tolist() for block in data.blocks()])
    assert len(found) == 4 and all(each == found[0] for each in found)
