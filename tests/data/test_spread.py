"""`privrl shard`: rows move, and nothing else happens to them."""

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privrl.cli.main import main
from privrl.data.schema.table_schema import TableError
from privrl.data.tables import spread as spread_module
from privrl.data.tables.spread import spread


def table(rows: int = 3000, people: int = 211, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    who = rng.integers(0, people, rows)
    return pa.table(
        {
            "id": [f"p{i}" for i in who],
            "stay": rng.integers(0, 3, rows),
            "hour": np.arange(rows),
            "note": pa.array([f"n{i}" for i in rng.integers(0, 5, rows)]).dictionary_encode(),
            "x": pa.array(rng.normal(size=rows), mask=rng.random(rows) < 0.1),
        }
    )


def as_rows(found: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*(found.column(name).to_pylist() for name in found.column_names), strict=True), key=str)


@pytest.mark.parametrize("small", [False, True])
def test_rows_are_the_same_and_people_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool) -> None:
    if small:
        monkeypatch.setattr(spread_module, "_PIECE_BYTES", 2000)  # many pieces for each file
        monkeypatch.setattr(spread_module, "_GROUP_ROWS", 100)
    source = tmp_path / "raw"
    source.mkdir()
    whole = table()
    pq.write_table(whole.slice(0, 1000), source / "a.parquet")
    pq.write_table(whole.slice(1000), source / "b.parquet")
    assert spread(source, tmp_path / "out", unit="id", episode="stay", step="hour", files=4) == 4
    parts = [pq.read_table(path) for path in sorted((tmp_path / "out").iterdir())]
    assert as_rows(pa.concat_tables(parts)) == as_rows(whole)
    people = [set(part.column("id").to_pylist()) for part in parts]
    assert sum(map(len, people)) == len(set.union(*people)) == len(set(whole.column("id").to_pylist()))
    for part in parts:
        ids = part.column("id").to_pylist()
        assert 1 + sum(a != b for a, b in itertools.pairwise(ids)) == len(set(ids))  # in one piece each
    for path in (tmp_path / "out").iterdir():
        file = pq.ParquetFile(path)
        groups = [set(file.read_row_group(i)["id"].to_pylist()) for i in range(file.num_row_groups)]
        assert sum(map(len, groups)) == len(set.union(*groups))  # row groups end between people, too
        assert len(groups) > 3 or not small
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["out", "raw"]
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0


def test_the_file_of_a_person_does_not_depend_on_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread_module, "_PIECE_BYTES", 3000)
    whole = table()
    pq.write_table(whole, tmp_path / "all.parquet")
    pq.write_table(whole.slice(0, 500), tmp_path / "few.parquet")
    homes = []
    for name in ("all", "few"):
        spread(tmp_path / f"{name}.parquet", tmp_path / name, unit="id", files=3)
        homes.append(
            {i: p.name for p in (tmp_path / name).iterdir() for i in pq.read_table(p).column("id").to_pylist()}
        )
    assert all(homes[0][person] == file for person, file in homes[1].items())


def test_what_is_wrong_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    pq.write_table(table(50), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="from 1 to 512"):
        spread(tmp_path / "t.parquet", tmp_path / "out", unit="id", files=0)
    with pytest.raises(ValueError, match="holds other files"):
        spread(tmp_path / "t.parquet", tmp_path, unit="id", files=2)
    with pytest.raises(TableError, match="no column `who`"):
        spread(tmp_path / "t.parquet", tmp_path / "out", unit="who", files=2)
    pq.write_table(pa.table({"id": pa.array(["canary-77", None])}), tmp_path / "null.parquet")
    with pytest.raises(TableError, match="Column `id` is null") as found:
        spread(tmp_path / "null.parquet", tmp_path / "out", unit="id", files=2)
    assert "canary" not in str(found.value)
    pq.write_table(table(0), tmp_path / "empty.parquet")
    with pytest.raises(TableError, match="has no rows"):
        spread(tmp_path / "empty.parquet", tmp_path / "out", unit="id", files=2)
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".privrl-*"))


def test_the_command_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of several files, the last path being the folder that is written."""
    for name in ("s", "t"):
        pq.write_table(table(100, people=1), tmp_path / f"{name}.parquet")
    paths = [str(tmp_path / name) for name in ("s.parquet", "t.parquet", "out")]
    arguments = ["shard", *paths, "--unit", "id", "--files", "3", "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == {"out": str(tmp_path / "out"), "files": 1}
    assert pq.read_table(tmp_path / "out").num_rows == 200
    assert main(arguments) == 2
    assert "exists" in capsys.readouterr().err
