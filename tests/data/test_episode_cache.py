"""What is kept of checked episodes: every number comes back as it was, in few bytes, and changed files are noticed."""

import os
import pickle
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privrl
from privrl.data import TableError, read_parquet, write_parquet
from privrl.data.rows.episode_cache import Chunk, EpisodeCache, Rectangle, padded_width, padded_widths
from privrl.data.rows.transitions import Block
from privrl.data.schema.table_schema import Bounds
from privrl.data.tables.parquet import ParquetEpisodes
from privrl.mdp.measurements import ENDED, NOT_RECORDED, Feature

ENV = privrl.envs.RiverSwim(states=3, horizon=30)
NAMES = {"unit": "unit_id", "episode": "episode_id", "step": "step", "state": "state", "action": "action"}


def block(rewards: Any, vectors: bool = False, people: int = 300, horizon: int = 30, seed: int = 0) -> Block:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, horizon + 1, people)
    rows = int(lengths.sum())
    states = rng.integers(0, 3, rows).astype(np.int32)
    after = np.where(rng.random(rows) < 0.1, -1, states[::-1]).astype(np.int32)
    if vectors:
        states, after = rng.normal(size=(rows, 2)), rng.normal(size=(rows, 2))
        states[::7, 1], after[::5], after[::11] = np.nan, NOT_RECORDED, ENDED
    unit = np.sort(rng.integers(0, people // 2, people))
    return Block(unit, lengths, states, rng.integers(0, 2, rows).astype(np.int32), rewards(rng, rows), after)


def bounds(vectors: bool = False, horizon: int = 30) -> Bounds:
    columns = (Feature("x", 0, 1), Feature("y", 0, 1, missing=True)) if vectors else ()
    return Bounds(horizon, None if vectors else 3, 2, (-1.0, 1.0), 300, columns)


def same(left: Block, right: Block) -> None:
    for name in ("unit", "lengths", "states", "actions", "rewards", "next_states"):
        a, b = getattr(left, name), getattr(right, name)
        np.testing.assert_array_equal(a, b)
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize(
    ("rewards", "kind"),
    [
        (lambda rng, n: rng.integers(0, 2, n) * 1.0, np.int8),
        (lambda rng, n: rng.integers(0, 9, n) / 8.0, np.float32),
        (lambda rng, n: rng.random(n), np.float64),
        (lambda rng, n: -0.0 * np.ones(n), np.float32),
    ],
)
def test_episodes_come_back_as_they_were(rewards: Any, kind: Any, vectors: bool) -> None:
    before = block(rewards, vectors)
    chunk = Chunk.from_block(before, 0, bounds(vectors))
    assert {one.rewards.dtype.type for one in chunk.rectangles} == {kind}
    same(chunk.to_block(), before)
    for one in chunk.rectangles:  # the width depends on the episode's own length
        np.testing.assert_array_equal(padded_width(one.length, 30), one.width)


@pytest.mark.parametrize("limit", [0, 10_000, 2**28])
def test_a_scratch_file_holds_the_same_and_belongs_to_its_owner(limit: int) -> None:
    held = EpisodeCache(bounds(), limit)
    blocks = [block(lambda rng, n: rng.random(n), seed=i) for i in range(40)]
    for one in blocks:
        held.add(one)
    assert held.nbytes > 10_000 and (held._file is None) == (limit == 2**28)
    for _ in range(2):
        same(Block.concatenate([chunk.to_block() for chunk in held]), Block.concatenate(blocks))
    assert [chunk.first for chunk in held] == np.cumsum([0, *(chunk.count for chunk in held)])[:-1].tolist()
    if held._file is not None:
        mode = os.fstat(held._file.fileno())
        assert stat.S_IMODE(mode.st_mode) == 0o600 and mode.st_nlink == 0  # nobody else, and no name


def test_widths_are_few_and_end_at_the_horizon() -> None:
    assert (
        padded_widths(20) == (8, 20)
        and padded_widths(5) == (5,)
        and padded_widths(1) == (1,)
        and padded_widths(12) == (8, 12)
    )
    assert padded_widths(1000) == (8, 20, 50, 125, 312, 1000)
    for horizon in (1, 7, 20, 333):
        lengths = np.arange(1, horizon + 1)
        assert (padded_width(lengths, horizon) >= lengths).all()


def test_people_of_a_part_keep_their_episodes() -> None:
    before = block(lambda rng, n: rng.random(n))
    chosen = np.random.default_rng(1).random(150) < 0.4
    number = np.cumsum(chosen) - 1
    found = Chunk.from_block(before, 0, bounds()).select_units(chosen, number, 0).to_block()
    keep = chosen[before.unit]
    expected = before.take(keep, np.repeat(keep, before.lengths))
    np.testing.assert_array_equal(found.unit, number[expected.unit])
    np.testing.assert_array_equal(found.rewards, expected.rewards)


@pytest.mark.slow
def test_icu_sepsis_takes_16_bytes_a_row_at_most() -> None:
    import jax

    env = privrl.envs.ICUSepsis()
    sampled = env.sample(env.behaviour_policy(), 5_000, jax.random.key(0))
    data = privrl.data.Episodes.from_trajectories(sampled, num_states=env.num_states, num_actions=env.num_actions)
    held = data._held
    assert isinstance(held, EpisodeCache) and held.nbytes <= 16 * data.check().num_rows


def test_nothing_of_a_person_is_in_a_repr() -> None:
    chunk = Chunk.from_block(block(lambda rng, n: rng.random(n)), 0, bounds())
    assert "array" not in repr(chunk) and "array" not in repr(chunk.rectangles[0])
    assert isinstance(chunk.rectangles[0], Rectangle)


def table(path: Path, people: int = 50, seed: int = 0, **options: Any) -> ParquetEpisodes:
    import jax

    write_parquet(path, ENV.sample(ENV.behaviour_policy(), people, jax.random.key(seed)))
    public = {"reward": "reward", "horizon": 30, "num_states": 3, "num_actions": 2}
    return read_parquet(path, **NAMES, **public, **options)


def test_rows_are_read_once_and_a_pickle_holds_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = table(tmp_path / "t.parquet")
    read = []
    batches = type(data.table).batches
    monkeypatch.setattr(type(data.table), "batches", lambda self, parts: read.append(parts) or batches(self, parts))
    data.check()
    assert data.with_sizes(3, 2) is data
    blocks = [list(data.blocks()), list(data.blocks()), list(data.chunks())]
    assert len(read) == 1 and all(blocks)
    again = pickle.loads(pickle.dumps(data))
    assert not again._passed and again.check() == data.check()


@pytest.mark.parametrize("how", ["time", "content", "inode", "gone"])
def test_a_file_that_changes_between_two_passes_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "t.parquet"
    data = table(path)
    list(data.chunks())
    before = path.stat()
    if how == "time":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    elif how == "gone":
        path.unlink()
    else:  # another file with the old time; with the old content, or with other people of the same size
        content = path.read_bytes()
        other = content if how == "inode" else content.replace(b"PAR1", b"PAR1", 1)[:-40] + bytes(32) + content[-8:]
        (tmp_path / "new").write_bytes(other)
        if how == "inode":
            os.replace(tmp_path / "new", path)
        else:
            path.write_bytes(other)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for again in (lambda: list(data.chunks()), lambda: list(data.blocks()), lambda: data.digest(bytes(32))):
        with pytest.raises(TableError, match="has changed since|cannot be read"):
            again()
