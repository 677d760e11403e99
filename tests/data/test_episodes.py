"""Episodes in memory: checks, owners, and the choice among too many episodes."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tables import BOUNDS, COLUMNS

from privrl.data.dataset import Summary
from privrl.data.episodes import Episodes
from privrl.data.rows.transitions import keep_first
from privrl.data.schema.fingerprints import hash_strings
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
@pytest.mark.parametrize("batch_rows", [1, 2, 3, 37, 1000])
def test_the_first_episodes_of_each_unit_are_used(save: Any, texts: bool, batch_rows: int) -> None:
    """Whatever their ids, their content and the batches are, and however many there are of each."""
    rng = np.random.default_rng(batch_rows)
    counts = rng.integers(1, 6, 40)
    units, place = np.repeat(np.arange(40), counts), np.concatenate([np.arange(count) for count in counts])
    episodes = rng.permutation(len(units))
    names = (pa.array(units).cast(pa.string()), pa.array(episodes).cast(pa.string())) if texts else (units, episodes)
    path = save(stays([*names[0]], [*names[1]], place.tolist()))
    for most in (1, 3):
        data = read_parquet(path, **COLUMNS, **BOUNDS, max_episodes_per_unit=most, batch_rows=batch_rows)
        expected = place[place < most].tolist()
        assert first_states(data) == first_states(data) == expected
        assert (data.num_episodes, data.check().num_left_out) == (len(expected), len(units) - len(expected))
        grid = [place[:, None], np.zeros((len(units), 1), int), np.zeros((len(units), 1))]
        shuffled = rng.permutation(40)[units]  # in memory, episodes of a unit need not be next to each other
        order = np.argsort(rng.random(len(units)) + place, kind="stable")
        memory = Episodes.from_arrays(
            *(x[order] for x in grid), units=shuffled[order], max_episodes_per_unit=most, **BOUNDS
        )
        assert sorted(first_states(memory)) == sorted(expected)


def test_passes_over_one_dataset_agree(save: Any) -> None:
    rows = stays(["a"] * 9, list(range(9)), [0, 1, 2, 3, 4, 0, 1, 2, 3])
    data = read_parquet(save(rows), **COLUMNS, **BOUNDS, max_episodes_per_unit=3, batch_rows=2)
    once, again = first_states(data), first_states(data)
    assert once == again and sorted(once) == sorted(
        np.repeat(data.transitions().state, data.transitions().count.astype(int))
    )


def test_sorting_keeps_the_order_of_appearance_of_stays(save: Any) -> None:
    """Stay "9" comes before stay "10", also if rows of other people and of both stays are mixed."""
    units, names = ["b", "a", "b", "a", "b", "b"], ["9", "7", "10", "2", "9", "10"]
    columns = (units, names, [1, 0, 1, 0, 0, 0], [1, 2, 3, 4, 0, 4], [0] * 6, [0.0] * 6)
    rows = dict(zip(COLUMNS.values(), columns, strict=True))
    for most, expected in ((1, [2, 0]), (2, [2, 4, 0, 4])):
        data = read_parquet(save(rows), **COLUMNS, **BOUNDS, max_episodes_per_unit=most, sort=True)
        assert first_states(data) == expected


def test_the_first_of_each_owner_by_hand() -> None:
    owner = np.array([5, 2, 5, 5, 2, 9])
    np.testing.assert_array_equal(keep_first(owner, 1), [True, True, False, False, False, True])
    np.testing.assert_array_equal(keep_first(owner, 2), [True, True, True, False, True, True])


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


def test_the_episodes_of_others_do_not_choose_mine() -> None:
    """One more episode of one person moves the sums by that person alone."""

    def kept(extra: int) -> np.ndarray:
        units = [0] * (1 + extra) + [p for p in range(1, 60) for _ in range(2)]
        states = np.array([1] * extra + [0] + [0, 1] * 59)[:, None]
        zeros = np.zeros(states.shape)
        data = Episodes.from_arrays(
            states, zeros.astype(int), zeros, units=units, horizon=1, num_states=2, num_actions=1
        )
        return np.bincount(next(data.blocks()).states, minlength=2)

    assert np.linalg.norm(kept(0) - kept(1)) == np.sqrt(2)
