"""Round trips through Parquet against counting by hand."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import BOUNDS, COLUMNS, good_rows

from privrl.data.dataset import Summary
from privrl.data.episodes import Episodes
from privrl.data.schema.table_schema import TableError
from privrl.data.tables.parquet import read_parquet
from privrl.data.tables.write import write_parquet
from privrl.mdp.types import Trajectory, Transitions

WRITTEN = {
    "unit": "unit_id",
    "episode": "episode_id",
    "step": "step",
    "state": "state",
    "action": "action",
    "reward": "reward",
    "next_state": "next_state",
    "terminated": "terminated",
}
H, S, A = 4, 5, 3
SIZES: dict[str, Any] = {"horizon": H, "num_states": S, "num_actions": A}


def sampled(seed: int, count: int) -> Trajectory:
    rng = np.random.default_rng(seed)
    return Trajectory(
        states=rng.integers(0, S, (count, H)),
        actions=rng.integers(0, A, (count, H)),
        rewards=rng.integers(0, 5, (count, H)) / 4,  # quarters add up exactly, in any order
        next_states=rng.integers(-1, S, (count, H)),
        length=rng.integers(1, H + 1, count),
    )


def counted_by_hand(batch: Trajectory, chained: bool = False) -> dict[tuple[int, ...], tuple[float, float]]:
    """`chained`: the next state is the state of the next step, -1 at the end."""
    count: Counter[tuple[int, ...]] = Counter()
    reward: dict[tuple[int, ...], float] = defaultdict(float)
    for k, T in enumerate(np.asarray(batch.length).tolist()):
        for h in range(T):
            following = int(batch.next_states[k, h])
            if chained:
                following = int(batch.states[k, h + 1]) if h + 1 < T else -1
            row = (h, int(batch.states[k, h]), int(batch.actions[k, h]), following)
            count[row] += 1
            reward[row] += float(batch.rewards[k, h])
    return {row: (count[row], reward[row]) for row in count}


def as_dict(rows: Transitions) -> dict[tuple[int, ...], tuple[float, float]]:
    keys = zip(*(np.asarray(x).tolist() for x in (rows.step, rows.state, rows.action, rows.next_state)), strict=True)
    values = zip(rows.count.tolist(), rows.reward.tolist(), strict=True)
    return dict(zip(keys, values, strict=True))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 30),
    batch_rows=st.sampled_from([1, 2, 3, 7, 1000]),
    chained=st.booleans(),
    named=st.booleans(),
)
def test_transitions_are_those_counted_by_hand(
    tmp_path: Path, seed: int, count: int, batch_rows: int, chained: bool, named: bool
) -> None:
    batch = sampled(seed, count)
    path = tmp_path / "table.parquet"
    units = [f"person {k}" for k in range(count)] if named else None
    assert write_parquet(path, batch, units) == int(batch.length.sum())
    columns = {part: name for part, name in WRITTEN.items() if not (chained and part == "next_state")}
    data = read_parquet(path, **columns, **SIZES, batch_rows=batch_rows)
    rows = data.transitions()
    assert as_dict(rows) == counted_by_hand(batch, chained)
    code = ((rows.step * S + rows.state) * A + rows.action) * (S + 1) + rows.next_state + 1
    assert (np.diff(code) > 0).all()
    assert data.check() == Summary(count, count, 0, int(batch.length.sum()))
    if not named:  # names are written in their own order
        read = Episodes.from_arrays(
            batch.states, batch.actions, batch.rewards, batch.next_states, batch.length, **SIZES
        )
        if not chained:
            for mine, theirs in zip(data.batches(8), read.batches(8), strict=True):
                for name in ("states", "actions", "rewards", "next_states", "length"):
                    np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))


def test_batches_are_padded_to_one_shape(tmp_path: Path) -> None:
    batch = sampled(3, 10)
    write_parquet(tmp_path / "table.parquet", batch)
    data = read_parquet(tmp_path / "table.parquet", **WRITTEN, **SIZES, batch_rows=6)
    parts = list(data.batches(4))
    assert [part.states.shape for part in parts] == [(4, H)] * 3
    lengths = np.concatenate([part.length for part in parts])
    np.testing.assert_array_equal(lengths, [*batch.length, 0, 0])
    states = np.concatenate([part.states for part in parts])[:10]
    valid = np.arange(H) < batch.length[:, None]
    np.testing.assert_array_equal(states[valid], batch.states[valid])
    assert (states[~valid] == 0).all()
    types = [x.dtype for x in (parts[0].states, parts[0].actions, parts[0].rewards, parts[0].next_states)]
    assert types == [np.int32, np.int32, np.float64, np.int32]


@pytest.mark.parametrize("cut", range(1, 7))
def test_an_episode_may_straddle_two_files(tmp_path: Path, cut: int) -> None:
    table = pa.table(good_rows())
    folder = tmp_path / "shards"
    folder.mkdir()
    pq.write_table(table.slice(0, cut), folder / "a.parquet")
    pq.write_table(table.slice(cut), folder / "b.parquet")
    whole = tmp_path / "whole.parquet"
    pq.write_table(table, whole)
    for most, episodes in ((1, 2), (2, 3)):
        parts = read_parquet(folder, **COLUMNS, **BOUNDS, max_episodes_per_unit=most, batch_rows=2)
        one = read_parquet(whole, **COLUMNS, **BOUNDS, max_episodes_per_unit=most)
        assert (parts.num_units, parts.num_episodes) == (2, episodes)
        assert as_dict(parts.transitions()) == as_dict(one.transitions())
        assert parts.check().num_left_out == 3 - episodes


def test_hand_counted_table(save: Any) -> None:
    data = read_parquet(save(good_rows()), **COLUMNS, **BOUNDS, max_episodes_per_unit=2)
    assert as_dict(data.transitions()) == {
        (0, 0, 0, 1): (1, 0.0),
        (1, 1, 1, -1): (1, 1.0),
        (0, 2, 2, 3): (1, 0.5),
        (1, 3, 0, -1): (1, 0.25),
        (0, 4, 1, 0): (1, 0.0),
        (1, 0, 2, 1): (1, 0.0),
        (2, 1, 0, -1): (1, 1.0),
    }
    assert data.transitions() is data.transitions()


def test_without_an_episode_column_a_unit_is_one_episode(save: Any) -> None:
    rows = good_rows()
    rows["hour"] = [0, 1, 2, 3, 0, 1, 2]
    columns = {part: name for part, name in COLUMNS.items() if part != "episode"}
    data = read_parquet(save(rows), **columns, **BOUNDS)
    assert (data.num_units, data.num_episodes) == (2, 2)
    (batch,) = data.batches(2)
    np.testing.assert_array_equal(batch.length, [4, 3])
    np.testing.assert_array_equal(batch.next_states, [[1, 2, 3, -1], [0, 1, -1, -1]])


def test_sort_brings_shuffled_rows_back(save: Any) -> None:
    table = pa.table(good_rows())
    shuffled = table.take(np.random.default_rng(0).permutation(7))
    path = save(dict(zip(shuffled.column_names, shuffled.columns, strict=True)))
    options: dict[str, Any] = {**COLUMNS, **BOUNDS, "max_episodes_per_unit": 2}
    data = read_parquet(path, **options, sort=True, batch_rows=3)
    assert as_dict(data.transitions()) == as_dict(read_parquet(save(good_rows(), "b.parquet"), **options).transitions())
    with pytest.raises(TableError, match="sort=True"):
        read_parquet(path, **options).check()


def test_categories_and_whole_floats_are_read(save: Any) -> None:
    rows: dict[str, Any] = good_rows()
    rows["patient"] = pa.array(rows["patient"]).dictionary_encode()
    rows["ward"] = pa.array(rows["ward"], pa.float32())
    rows["drug"] = pa.array(rows["drug"], pa.uint8())
    rows["after"] = pa.array([1, None, 3, -1, 0, 1, None], pa.float64())
    data = read_parquet(save(rows), **COLUMNS, next_state="after", **BOUNDS, max_episodes_per_unit=2)
    plain = read_parquet(save(good_rows(), "plain.parquet"), **COLUMNS, **BOUNDS, max_episodes_per_unit=2)
    assert as_dict(data.transitions()) == as_dict(plain.transitions())


def test_bounds_may_come_from_the_learner(save: Any) -> None:
    data = read_parquet(save(good_rows()), **COLUMNS, horizon=4)
    with pytest.raises(ValueError, match="`num_states` is not set"):
        data.check()
    full = data.with_sizes(5, 3)
    assert (full.num_states, full.num_actions, full.num_units) == (5, 3, 2)
    with pytest.raises(ValueError, match="`num_states`=5 but are used with `num_states`=6"):
        full.with_sizes(6, 3)
    with pytest.raises(TableError, match="ward"):
        data.with_sizes(4, 3).check()


def test_a_file_that_changes_between_passes_is_noticed(save: Any) -> None:
    data = read_parquet(save(good_rows()), **COLUMNS, **BOUNDS)
    assert data.num_units == 2
    rows = good_rows()
    save({name: values + values[-1:] for name, values in rows.items()} | {"more": [0] * 8})
    with pytest.raises(TableError, match="changed"):
        data.transitions()


def test_a_dataset_is_written_with_its_units(tmp_path: Path) -> None:
    batch = sampled(5, 6)
    owners = ["x", "y", "x", "z", "y", "x"]
    data = Episodes.from_trajectories(batch, num_states=S, num_actions=A, units=owners, max_episodes_per_unit=2)
    path = tmp_path / "again.parquet"
    rows = write_parquet(path, data)
    again = read_parquet(path, **WRITTEN, **SIZES, max_episodes_per_unit=2)
    assert again.check() == Summary(3, 5, 0, rows)
    assert as_dict(again.transitions()) == as_dict(data.transitions())
    write_parquet(path, batch, owners)
    assert read_parquet(path, **WRITTEN, **SIZES, max_episodes_per_unit=3).check() == Summary(
        3, 6, 0, int(batch.length.sum())
    )


def test_several_batches_make_one_table(tmp_path: Path) -> None:
    parts = [sampled(1, 3), sampled(2, 4)]
    write_parquet(tmp_path / "table.parquet", iter(parts))
    data = read_parquet(tmp_path / "table.parquet", **WRITTEN, **SIZES)
    assert data.num_units == 7
    both = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    assert as_dict(data.transitions()) == counted_by_hand(both)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    write_parquet(path, sampled(1, 3))
    before = path.read_bytes()

    def broken() -> Any:
        yield sampled(2, 3)
        raise RuntimeError("the sampler failed")

    with pytest.raises(RuntimeError, match="the sampler failed"):
        write_parquet(path, broken())
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["table.parquet"]
    with pytest.raises(TableError, match="nothing to write"):
        write_parquet(tmp_path / "new.parquet", [])
    assert not (tmp_path / "new.parquet").exists()


def test_terminated_marks_episodes_that_ended_early(tmp_path: Path) -> None:
    batch = sampled(8, 20)
    write_parquet(tmp_path / "table.parquet", batch)
    table = pq.read_table(tmp_path / "table.parquet").to_pydict()
    ended = {episode for episode, flag in zip(table["episode_id"], table["terminated"], strict=True) if flag}
    assert ended == set(np.flatnonzero(batch.length < H).tolist())


@pytest.mark.parametrize("batch_rows", [1, 2, 1000])
def test_units_may_number_their_episodes_alike(tmp_path: Path, batch_rows: int) -> None:
    rows = good_rows() | {"stay": [1, 1, 2, 2, 1, 1, 1]}  # ann has stays 1 and 2, bob has a stay 1 of his own
    pq.write_table(pa.table(rows), tmp_path / "stays.parquet")
    data = read_parquet(tmp_path / "stays.parquet", **COLUMNS, **BOUNDS, max_episodes_per_unit=2, batch_rows=batch_rows)
    assert data.check() == Summary(num_units=2, num_episodes=3, num_left_out=0, num_rows=7)
