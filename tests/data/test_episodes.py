"""Episodes in memory: checks, owners, and the choice among too many episodes."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tables import BOUNDS, COLUMNS

from privrl.data.dataset import Summary
from privrl.data.episodes import Episodes
from privrl.data.schema.fingerprints import hash_strings, keep_smallest
from privrl.data.schema.table_schema import TableError
from privrl.data.tables.parquet import read_parquet

SECRET = 918273


def grids(count: int = 3, steps: int = 3) -> dict[str, Any]:
    return {
        "states": np.arange(count * steps).reshape(count, steps) % 5,
        "actions": np.arange(count * steps).reshape(count, steps) % 3,
        "rewards": np.full((count, steps), 0.5),
    }


def test_next_states_are_the_following_states_within_the_length() -> None:
    data = Episodes.from_arrays(**grids(), lengths=[3, 1, 2], **BOUNDS)
    (batch,) = data.batches(3)
    np.testing.assert_array_equal(batch.states, [[0, 1, 2, 0], [3, 0, 0, 0], [1, 2, 0, 0]])
    np.testing.assert_array_equal(batch.next_states, [[1, 2, -1, -1], [-1, -1, -1, -1], [2, -1, -1, -1]])
    np.testing.assert_array_equal(batch.length, [3, 1, 2])
    assert data.check() == Summary(3, 3, 0, 6)


def test_padding_is_never_looked_at() -> None:
    arrays = grids()
    arrays["states"][1, 1:] = SECRET
    arrays["rewards"][1, 1:] = np.nan
    data = Episodes.from_arrays(**arrays, lengths=[3, 1, 2], **BOUNDS)
    assert data.transitions().count.sum() == 6


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("states", SECRET, "out of range"),
        ("states", -1, "out of range"),
        ("actions", SECRET, "out of range"),
        ("rewards", SECRET, "out of range"),
        ("rewards", np.nan, "NaN"),
        ("rewards", np.inf, "infinite"),
        ("next_states", SECRET, "out of range"),
    ],
)
def test_bad_entries_are_placed_and_not_quoted(name: str, value: float, words: str) -> None:
    arrays = grids() | {"next_states": np.zeros((3, 3), int)}
    arrays[name][2, 1] = value
    with pytest.raises(TableError) as caught:
        Episodes.from_arrays(**arrays, **BOUNDS)
    message = str(caught.value)
    assert f"`{name}`" in message and "episode 2, step 1" in message and words in message
    assert str(SECRET) not in message


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"actions": np.zeros((3, 2), int)}, "`actions` has shape [3, 2] and `states` has [3, 3]"),
        ({"states": np.array([["secret"] * 3] * 3)}, "holds text"),
        ({"states": np.full((3, 3), 0.5)}, "fraction"),
        ({"lengths": [3, 4, 1]}, "`lengths` is out of range at episode 1"),
        ({"lengths": [3, 3, 0]}, "`lengths` is out of range at episode 2"),
        ({"lengths": [3, 3]}, "one per episode"),
        ({"units": ["a", "b"]}, "names 2 owners"),
        ({"units": ["secret", None, "secret"]}, "`units` at episode 1: An id is missing"),
        ({"units": [1.0, 1.0, np.nan]}, "`units` at episode 2: An id is missing"),
        ({"units": ["secret", ("secret",), "secret"]}, "`units` at episode 1: An id is a `tuple`"),
        ({"units": [1, True, 2]}, "`units` at episode 1: An id is a `bool`"),
        ({"horizon": 2}, "`horizon` is 2"),
        (grids(0), "holds no step"),
    ],
)
def test_bad_arguments(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(TableError) as caught:
        Episodes.from_arrays(**{**grids(), **BOUNDS, **changed})
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_printed_dataset_shows_no_person() -> None:
    data = Episodes.from_arrays(**grids(), units=["secret"] * 3, max_episodes_per_unit=3, **BOUNDS)
    assert "secret" not in repr(data) and "array" not in repr(data)


def first_states(data: Any) -> list[int]:
    return np.concatenate([batch.states[batch.length > 0, 0] for batch in data.batches(16)]).tolist()


def test_owners_need_not_be_next_to_each_other() -> None:
    arrays = grids(5, 1)
    data = Episodes.from_arrays(**arrays, units=[7, 8, 7, 9, 8], max_episodes_per_unit=2, **BOUNDS)
    assert data.check() == Summary(3, 5, 0, 5)
    assert first_states(data) == [0, 2, 1, 4, 3]
    (block,) = data.blocks()
    np.testing.assert_array_equal(block.unit, [0, 0, 1, 1, 2])
    fewer = Episodes.from_arrays(**arrays, units=[7, 8, 7, 9, 8], **BOUNDS)
    assert (fewer.num_units, fewer.num_episodes, fewer.check().num_left_out) == (3, 3, 2)
    kept = first_states(fewer)
    assert kept[0] in (0, 2) and kept[1] in (1, 4) and kept[2] == 3


def stays(units: list[Any], episodes: list[Any], states: list[int]) -> dict[str, Any]:
    ones = [0] * len(units)
    return dict(zip(COLUMNS.values(), (units, episodes, ones, states, ones, [0.0] * len(units)), strict=True))


@pytest.mark.parametrize("texts", [False, True])
def test_the_choice_is_uniform(save: Any, texts: bool) -> None:
    # 400 people with 4 stays each, 1 or 3 kept. Counts over the 4 positions: |z| < 4.5 for each, error level 1e-5 each.
    people, each = 400, 4
    units, episodes = np.repeat(np.arange(people), each), np.arange(people * each)
    names = (pa.array(units).cast(pa.string()), pa.array(episodes).cast(pa.string())) if texts else (units, episodes)
    path = save(stays([*names[0]], [*names[1]], [0, 1, 2, 3] * people))
    for most in (1, 3):
        data = read_parquet(path, **COLUMNS, **BOUNDS, max_episodes_per_unit=most, seed=most, batch_rows=37)
        count = np.bincount(first_states(data), minlength=each)
        assert count.sum() == people * most == data.num_episodes
        share = most / each
        assert (np.abs(count - people * share) < 4.5 * np.sqrt(people * share * (1 - share))).all()
        arrays = [np.tile(np.arange(each), people)[:, None], np.zeros((people * each, 1), int)]
        memory = Episodes.from_arrays(*arrays, arrays[1], units=units, max_episodes_per_unit=most, seed=most, **BOUNDS)
        count = np.bincount(first_states(memory), minlength=each)
        assert count.sum() == people * most
        assert (np.abs(count - people * share) < 4.5 * np.sqrt(people * share * (1 - share))).all()


def kept_ids(save: Any, states: list[int], rewards: list[float], batch_rows: int, seed: int | None) -> list[int]:
    """Which of 12 stays of 3 people are kept, read off from an action that numbers them."""
    rows = stays(["a"] * 4 + ["b"] * 4 + ["c"] * 4, list(range(12)), states)
    rows["gain"], rows["drug"] = rewards, list(range(12))
    data = read_parquet(
        save(rows),
        **COLUMNS,
        horizon=4,
        num_states=5,
        num_actions=12,
        max_episodes_per_unit=2,
        seed=seed,
        batch_rows=batch_rows,
    )
    return sorted(data.transitions().action.tolist())


def test_the_choice_does_not_look_at_content(save: Any) -> None:
    calm = kept_ids(save, [0] * 12, [0.0] * 12, 100, seed=3)
    rng = np.random.default_rng(0)
    for batch_rows in (1, 3, 5, 100):
        wild = kept_ids(save, rng.integers(0, 5, 12).tolist(), rng.random(12).tolist(), batch_rows, seed=3)
        assert wild == calm
    assert [sum(k // 4 == person for k in calm) for person in range(3)] == [2, 2, 2]


def test_without_a_seed_the_choice_is_drawn_anew(save: Any) -> None:
    # 6^3 = 216 choices: 12 draws agree by chance with probability 216^-11
    assert len({tuple(kept_ids(save, [0] * 12, [0.0] * 12, 5, seed=None)) for _ in range(12)}) > 1


def test_passes_over_one_dataset_agree(save: Any) -> None:
    rows = stays(["a"] * 9, list(range(9)), [0, 1, 2, 3, 4, 0, 1, 2, 3])
    data = read_parquet(save(rows), **COLUMNS, **BOUNDS, max_episodes_per_unit=3, batch_rows=2)
    once, again = first_states(data), first_states(data)
    assert once == again and sorted(once) == sorted(
        np.repeat(data.transitions().state, data.transitions().count.astype(int))
    )


def test_smallest_ranks_by_hand() -> None:
    owner = np.array([5, 5, 5, 2, 2, 9])
    rank = np.array([30, 10, 20, 7, 6, 1], np.uint64)
    np.testing.assert_array_equal(keep_smallest(owner, rank, 1), [False, True, False, False, True, True])
    np.testing.assert_array_equal(keep_smallest(owner, rank, 2), [False, True, True, True, True, True])


def test_hashes_of_texts_do_not_depend_on_their_neighbours() -> None:
    words = ["", "a", "b", "ab", "ba", "abc", "a\0", "\0a", "\0", "ä", "person 10", "person 01"]
    raw = [word.encode() for word in words]
    data = np.frombuffer(b"".join(raw), np.uint8)
    ends = np.cumsum([0, *map(len, raw)])
    together = hash_strings(ends, data, salt=5)
    assert len(set(together.tolist())) == len(words)
    for k, word in enumerate(raw):
        alone = hash_strings(np.array([0, len(word)]), np.frombuffer(word, np.uint8), salt=5)
        assert alone[0] == together[k]
    assert not (hash_strings(ends, data, salt=6)[1:] == together[1:]).any()


def test_what_somebody_else_has_does_not_choose_my_episodes():
    """With a seed that everybody knows: one more episode of one person moves the sums by that person alone."""

    def kept(extra: int, seed: int) -> np.ndarray:
        units = [0] * (1 + extra) + [p for p in range(1, 60) for _ in range(2)]
        states = np.array([0] * (1 + extra) + [0, 1] * 59)[:, None]
        zeros = np.zeros(states.shape)
        data = Episodes.from_arrays(
            states, zeros.astype(int), zeros, units=units, horizon=1, num_states=2, num_actions=1, seed=seed
        )
        return np.bincount(next(data.blocks()).states, minlength=2)

    splits = [kept(0, seed) for seed in range(20)]
    for seed, split in enumerate(splits):
        assert np.linalg.norm(split - kept(1, seed)) <= np.sqrt(2)
    assert len({tuple(split) for split in splits}) > 1  # and it is a choice
