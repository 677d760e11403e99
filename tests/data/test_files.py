"""Tables as people have them: a file, a folder, a pattern, several paths, and columns in the names of folders."""

from pathlib import Path

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest

import privrl
from privrl.data import TableError, read_parquet, write_parquet
from privrl.data.rows.files import parquet_files
from privrl.data.tables.parquet import ParquetEpisodes

ENV = privrl.envs.RiverSwim(states=3, horizon=4)
KEY = bytes(32)


def opened(paths: object, unit: str = "unit_id") -> ParquetEpisodes:
    names = {"episode": "episode_id", "step": "step", "state": "state", "action": "action", "reward": "reward"}
    return read_parquet(paths, unit=unit, **names, horizon=4, num_states=3, num_actions=2, max_episodes_per_unit=9)


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Three files of one table, in folders that say where people come from."""
    made = []
    for site in range(3):
        folder = tmp_path / "stays" / f"site={site}" / "year=2%30"
        folder.mkdir(parents=True)
        path = folder / "part-0.parquet"
        sampled = ENV.sample(ENV.behaviour_policy(), 20, jax.random.key(site))
        write_parquet(path, sampled, units=np.arange(20) + 100 * site)
        made.append(path)
    (tmp_path / "stays" / "_temporary").mkdir()
    (tmp_path / "stays" / "_temporary" / "part-9.parquet").write_bytes(b"no table")
    return made


def test_a_folder_a_pattern_and_several_paths_are_one_table(parts: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "stays"
    ways = [
        folder,
        str(folder),
        f"{folder}/site=*/*/*.parquet",
        f"{folder}/**/part-0.parquet",
        parts,
        [*map(str, parts)],
    ]
    assert {opened(way).digest(KEY) for way in ways} == {opened(parts).digest(KEY)}
    assert all(opened(way).check().num_units == 60 for way in ways)
    assert parquet_files([folder / "site=1", folder / "site=0"]) == (parts[1], parts[0])
    assert opened([folder / "site=1", parts[2]]).check().num_units == 40


def test_a_column_may_be_in_the_names_of_folders(parts: list[Path]) -> None:
    for path in parts:
        table = pq.read_table(path)
        pq.write_table(table.drop_columns(["unit_id"]), path)
    by_site, by_year = opened(parts, unit="site"), opened(parts[:1], unit="year")
    assert by_site.check().num_units == 3 and by_year.check().num_units == 1
    with pytest.raises(TableError, match="appears again"):
        opened(parts, unit="year").check()
    with pytest.raises(TableError, match="unit_id"):
        opened(parts)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda p: [p[0], p[0]], "given twice"),
        (lambda p: [], "No path"),
        (lambda p: p[0].parent / "*.csv", "matches no file"),
        (lambda p: p[0].parent / "no.parquet", "no file or folder"),
    ],
)
def test_what_is_no_table_is_refused_in_words(parts: list[Path], wrong: object, words: str) -> None:
    with pytest.raises(TableError, match=words):
        parquet_files(wrong(parts))  # type: ignore[operator]


def test_errors_number_files_of_one_name_and_never_name_folders(parts: list[Path]) -> None:
    table = pq.read_table(parts[1])
    actions = table["action"].to_numpy().copy()
    actions[7] = 17
    pq.write_table(table.set_column(4, "action", [actions]), parts[1])
    with pytest.raises(TableError) as caught:
        opened(parts).check()
    assert "row 7 of `part-0.parquet` (file 2 of 3)" in str(caught.value) and "site" not in str(caught.value)


def test_pieces_of_a_table_are_its_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_parquet(path, ENV.sample(ENV.behaviour_policy(), 40, jax.random.key(0)), rows_per_group=40)
    table = opened(path).table
    assert table.row_groups == ((40,) * 4,)
    rows = [batch.num_rows for batch, _ in table.select(((0, 1, 3),)).batches(["unit"])]
    place = next(place(0) for _, place in table.select(((0, 1, 3),)).batches(["unit"]))
    assert sum(rows) == 80 == table.select(((0, 1, 3),)).num_rows and place.startswith("row 40 of")
