"""Groups and a second outcome: declared, checked, kept with their rows, and part of a table's identity."""

import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from contract import tiny_world

from privrl.data.dataset import AbstractDataset
from privrl.data.episodes import Episodes
from privrl.data.rows.episode_cache import EpisodeCache
from privrl.data.schema.table_description import TableDescription
from privrl.data.schema.table_schema import TableError, declare_table
from privrl.data.sources.lookalike_table import write_lookalike
from privrl.data.tables.faults import find_faults, find_outside
from privrl.data.tables.parquet import read_parquet
from privrl.data.tables.write import write_parquet
from privrl.mdp.measurements import Category, Feature
from privrl.mdp.reported_columns import ReportedColumns
from privrl.mdp.types import Trajectory
from privrl.statistics.off_policy import StayReturns
from privrl.studies.offline.batched_sums import EpisodeForm, batches_of

ENV = tiny_world(4)
H = ENV.horizon
KEY = b"k" * 32
SEX, COST = Category("sex", ("female", "male")), Feature("cost", 0, 50_000)
SIZES: dict[str, Any] = {"num_states": ENV.num_states, "num_actions": ENV.num_actions}
COLUMNS: dict[str, Any] = {
    "unit": "unit_id",
    "episode": "episode_id",
    "step": "step",
    "state": "state",
    "action": "action",
    "reward": "reward",
    "next_state": "next_state",
    "horizon": H,
    **SIZES,
}
SCHEMA: dict[str, Any] = {**COLUMNS, "by": "sex:female,male", "outcome": "cost:50000"}


def stays_with(people: int, seed: int = 0) -> Trajectory:
    """Stays with a group for each person (a third has none) and costs of 0.1, which no short float holds."""
    rng = np.random.default_rng(seed)
    stays = jax.tree.map(np.asarray, ENV.sample(ENV.behaviour_policy(), people, jax.random.key(seed)))
    group = np.broadcast_to(rng.choice([0.0, 1.0, np.nan], (people, 1)), (people, H))
    extras = np.stack([group, rng.integers(0, 9000, (people, H)) + 0.1], axis=-1)
    kept = (stays.states, stays.actions, stays.rewards, stays.next_states, stays.length)
    return Trajectory(*kept, None, np.where(np.arange(H)[:, None] < stays.length[:, None, None], extras, 0.0))


def table(stays: Trajectory, **more: Any) -> Episodes:
    return Episodes.from_trajectories(stays, **SIZES, **{"by": SEX, "outcome": COST, **more})


def extras_of(data: AbstractDataset) -> np.ndarray:
    return np.concatenate([block.columns["extras"] for block in data.blocks()])


def changed(path: Path, **columns: Any) -> Path:
    """The table with other columns."""
    found = pq.read_table(path)
    for name, values in columns.items():
        found = found.set_column(found.schema.get_field_index(name), name, pa.array(values))
    pq.write_table(found, path)
    return path


def test_extras_stay_with_their_rows_in_files_in_memory_and_in_a_scratch_file(tmp_path: Path) -> None:
    stays = stays_with(60)
    write_parquet(tmp_path / "stays.parquet", stays, by=SEX, outcome=COST)
    columns = TableDescription.read(SCHEMA).columns
    read = read_parquet(tmp_path / "stays.parquet", **columns)
    expected = stays.extras[np.arange(H) < stays.length[:, None]]
    for data in (read, table(stays), read_parquet(tmp_path / "stays.parquet", **columns, in_memory=0)):
        assert data.reported == ReportedColumns(SEX, COST)
        for _ in range(2):  # as read, and from the cache
            np.testing.assert_array_equal(extras_of(data), expected)
        (batch,) = data.batches(60)
        np.testing.assert_array_equal(batch.extras, stays.extras)
        chunks = [chunk.to_block().extras for chunk in data.chunks()]
        np.testing.assert_array_equal(np.concatenate(chunks), expected)
    assert (write_parquet(tmp_path / "again.parquet", read)) == len(expected)
    again = read_parquet(tmp_path / "again.parquet", **columns)
    np.testing.assert_array_equal(extras_of(again), expected)
    np.testing.assert_array_equal(extras_of(pickle.loads(pickle.dumps(again))), expected)
    without = read_parquet(tmp_path / "stays.parquet", **COLUMNS)
    assert not without.reported and next(without.batches(60)).extras is None


def test_records_of_people_with_several_stays_keep_their_extras() -> None:
    stays, owner = stays_with(40), np.repeat(np.arange(20), 2)
    data = table(stays, units=owner, max_episodes_per_unit=2)
    (batch,) = batches_of(StayReturns(), data.chunks(), EpisodeForm(H, 0, 2))
    there = np.asarray(batch.taking_part)
    found = np.asarray(batch.records.extras)[there]
    np.testing.assert_array_equal(found, stays.extras.reshape(20, 2, H, 2))


@pytest.mark.parametrize("entry", [0, 1])
def test_a_table_with_another_group_or_outcome_is_another_table(entry: int) -> None:
    one, other = stays_with(6), stays_with(6)
    before = table(one).digest(KEY)
    assert table(other).digest(KEY) == before
    kept = other.extras[2, 0, entry]
    other.extras[2, 0, entry] = np.nextafter(kept, 0.0) if entry else (np.nan if kept == kept else 1.0)
    assert table(other).digest(KEY) != before
    assert table(one, by=None).digest(KEY) != before
    bare = Trajectory(one.states, one.actions, one.rewards, one.next_states, one.length)
    assert Episodes.from_trajectories(bare, **SIZES).digest(KEY) != table(one, by=None).digest(KEY)


def test_files_and_arrays_count_what_is_missing_alike(tmp_path: Path) -> None:
    stays = stays_with(9)
    path = tmp_path / "stays.parquet"
    write_parquet(path, stays, by=SEX, outcome=COST)
    rows = pq.read_metadata(path).num_rows
    cost = [None, float("nan"), -3.0, 60_000.0, -0.0, *[7.0] * (rows - 5)]
    sex = [None, "male", *["female"] * (rows - 2)]
    read = read_parquet(changed(path, cost=cost, sex=sex), **COLUMNS, by=SEX, outcome=COST)
    found = extras_of(read)
    np.testing.assert_array_equal(found[:6, 1], [0.0, 0.0, 0.0, 50_000.0, 0.0, 7.0])
    assert not np.signbit(found[:, 1]).any()
    np.testing.assert_array_equal(found[:3, 0], [np.nan, 1.0, 0.0])
    grid = np.zeros((1, rows, 2))
    grid[0] = np.stack([[np.nan, 1.0, *[0.0] * (rows - 2)], [np.nan if x is None else x for x in cost]], axis=1)
    zeros = np.zeros((1, rows), int)
    same = Episodes.from_arrays(zeros, zeros, zeros, extras=grid, by=SEX, outcome=COST, horizon=rows, **SIZES)
    np.testing.assert_array_equal(extras_of(same), found)


def test_an_unknown_group_is_refused_and_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "stays.parquet"
    write_parquet(path, stays_with(9), by=SEX, outcome=COST)
    rows = pq.read_metadata(path).num_rows
    changed(path, sex=["female", "secret", *["male"] * (rows - 2)], cost=[50_001.0, *[float("inf")] * (rows - 1)])
    columns = TableDescription.read(SCHEMA).columns
    with pytest.raises(TableError, match="`sex` holds none of the declared values at row 1") as caught:
        read_parquet(path, **columns).check()
    faults = " ".join(find_faults(path, columns))
    assert "secret" not in str(caught.value) and "secret" not in faults and "50001" not in faults
    assert "`sex` holds none of the declared values" in faults and "`cost` is infinite at row 1" in faults
    assert find_outside(path, columns) == [
        "Column `cost` is above 50000 at row 0 of `stays.parquet` (rows count from 0). "
        "It is moved to the bound. If this is unexpected, check the unit of measurement, and correct the bound."
    ]
    stays = stays_with(5)
    stays.extras[3, 0, 0] = 2.0
    with pytest.raises(TableError, match=r"sex.* is not the position of a category at episode 3, step 0"):
        table(stays)
    with pytest.raises(ValueError, match="`extras` holds the values"):
        table(stays, by=None, outcome=None)
    zeros = np.zeros((1, 2), int)
    with pytest.raises(TableError, match=r"must be \[episodes, steps, 2\]"):
        Episodes.from_arrays(zeros, zeros, zeros, extras=np.zeros((1, 2)), by=SEX, horizon=2, **SIZES)


def test_columns_of_the_wrong_type_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "stays.parquet"
    write_parquet(path, stays_with(9), by=SEX, outcome=COST)
    rows = pq.read_metadata(path).num_rows
    changed(path, sex=[0.5] * rows)
    with pytest.raises(TableError, match="the group must be text"):
        read_parquet(path, **COLUMNS, by=SEX)
    changed(path, sex=["female"] * rows, cost=["much"] * rows)
    with pytest.raises(TableError, match="the second outcome must be numbers") as caught:
        read_parquet(path, **COLUMNS, outcome=COST)
    assert "much" not in str(caught.value)


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({"by": "sex"}, "not a declared category"),
        ({"by": "sex:female"}, "at least two different texts"),
        ({"by": ["sex:female,male"]}, "must be a declaration in quotes"),
        ({"outcome": "cost"}, "does not declare a second outcome"),
        ({"outcome": "cost:0"}, "does not declare a second outcome"),
        ({"outcome": "cost:nan"}, "does not declare a second outcome"),
        ({"outcome": "cost:many"}, "in place of a number"),
        ({"outcome": 3}, "must be a declaration in quotes"),
    ],
)
def test_declarations_that_say_too_little_are_refused(declared: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        TableDescription.read({**COLUMNS, **declared})


@pytest.mark.parametrize("part", ["unit", "episode", "step", "action", "reward", "next_state"])
def test_a_column_that_says_something_else_is_refused(part: str) -> None:
    for declared in ({"by": f"{COLUMNS[part]}:a,b"}, {"outcome": f"{COLUMNS[part]}:3"}):
        with pytest.raises(ValueError, match=f"is the `{part}` too"):
            declare_table(**TableDescription.read({**COLUMNS, **declared}).columns)
    with pytest.raises(ValueError, match="is the `outcome` too"):
        declare_table(**TableDescription.read({**COLUMNS, "by": "cost:a,b", "outcome": "cost:3"}).columns)


def test_a_category_of_the_state_can_be_the_group() -> None:
    said = {name: value for name, value in COLUMNS.items() if name not in ("state", "next_state", "num_states")}
    description = TableDescription.read({**said, "category": ["sex:female,male"], "by": "sex"})
    assert description.reported.groups == ("female", "male")
    schema, bounds = declare_table(**description.columns)
    assert schema.columns["by"] == schema.columns["category sex"] == "sex" and bounds.reported == schema.reported
    assert any("belongs to the group (`sex`)" in rule for rule in description.rules("patient"))


def test_a_lookalike_has_a_group_for_each_person_and_outcomes_within_their_bound(tmp_path: Path) -> None:
    columns = TableDescription.read(SCHEMA).columns
    path = tmp_path / "invented.parquet"
    write_lookalike(path, *declare_table(**columns), people=200)
    data = read_parquet(path, **columns)
    groups = [set(block.slice(i, i + 1).extras[:, 0]) for block in data.blocks() for i in range(len(block.lengths))]
    assert all(len(one) == 1 for one in groups) and set.union(*groups) == {0.0, 1.0}
    assert 0.0 < extras_of(data)[:, 1].max() <= 50_000 / H
    assert find_outside(path, columns) == []


def test_blocks_with_and_without_extras_are_not_mixed() -> None:
    stays = stays_with(4)
    bare = Trajectory(stays.states, stays.actions, stays.rewards, stays.next_states, stays.length)
    data = table(stays)
    cache = EpisodeCache(data.bounds)
    for block in (*data.blocks(), *Episodes.from_trajectories(bare, **SIZES).blocks()):
        cache.add(block)
    with pytest.raises(ValueError, match="do not have the same columns"):
        list(cache)
