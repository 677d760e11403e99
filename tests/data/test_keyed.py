"""Group coins follow ids, not rows; the digest of a table sees every cell, and nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import BOUNDS, COLUMNS, good_rows

from privrl.data.episodes import Episodes
from privrl.data.tables.parquet import ParquetEpisodes, read_parquet
from privrl.data.tables.part import Part
from privrl.privacy.canonical_ids import canonical_id, keyed_hash

KEY, OTHER = bytes(range(32)), bytes(32)
FULL = {**COLUMNS, "next_state": "after", "terminated": "end"}
OPTIONS: dict[str, Any] = {**FULL, **BOUNDS, "max_episodes_per_unit": 2}


def full_rows() -> dict[str, list[Any]]:
    ends = {"after": [1, None, 3, -1, 0, 1, 2], "end": [False, True, False, False, False, False, True]}
    return good_rows() | ends


def opened(path: Path, **options: Any) -> ParquetEpisodes:
    return read_parquet(path, **{**OPTIONS, **options})


def coin(value: Any, purpose: str = "halves") -> float:
    digest = keyed_hash(KEY, f"coin/{purpose}")(canonical_id(value))
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 1000])
def test_coins_are_the_hashes_of_ids_in_the_order_of_blocks(save: Any, batch_rows: int) -> None:
    data = opened(save(full_rows()), batch_rows=batch_rows)
    np.testing.assert_array_equal(data.unit_draws(KEY, "halves"), [coin("ann"), coin("bob")])
    assert not np.isin(data.unit_draws(KEY, "thirds"), data.unit_draws(KEY, "halves")).any()
    assert not np.isin(data.unit_draws(OTHER, "halves"), data.unit_draws(KEY, "halves")).any()
    numbers = np.concatenate([block.unit for block in data.blocks()])
    assert numbers.tolist() == [0, 0, 1]


def test_a_person_inserted_on_top_moves_nobody(save: Any) -> None:
    """Killed, one person inserted, started again: with coins by position people changed their group."""
    people = [f"person {k}" for k in range(60)]

    def coins(names: list[str]) -> dict[str, float]:
        ones = [0] * len(names)
        columns = (names, ones, ones, ones, ones, [0.0] * len(names))
        data = read_parquet(save(dict(zip(COLUMNS.values(), columns, strict=True))), **COLUMNS, **BOUNDS)
        return dict(zip(names, data.unit_draws(KEY, "halves").tolist(), strict=True))

    before = coins(people[1:])
    for names in (people, people[::-1], people[5:] + people[:5]):
        after = coins(names)
        assert all(after[name] == value for name, value in before.items())
    grids = np.zeros((60, 1), int), np.zeros((60, 1), int), np.zeros((60, 1))
    in_memory = Episodes.from_arrays(*grids, units=people, **BOUNDS).unit_draws(KEY, "halves")
    assert in_memory[1:].tolist() == list(before.values())


def test_coins_are_uniform_and_fit_every_group() -> None:
    count = 20_000
    grids = np.zeros((count, 1), int), np.zeros((count, 1), int), np.zeros((count, 1))
    coins = Episodes.from_arrays(*grids, **BOUNDS).unit_draws(KEY, "halves")
    assert coins.min() >= 0.0 and coins.max() < 1.0
    # Kolmogorov-Smirnov: sqrt(n) D > 2.2 has probability 1.3e-4 for a fixed key, and this key is fixed
    steps = np.arange(count + 1) / count
    assert max(np.abs(np.sort(coins) - steps[:-1]).max(), np.abs(np.sort(coins) - steps[1:]).max()) < 2.2 / count**0.5
    assert coins[7] == coin(7) == coin("7")  # without `units` an episode's number is its owner's id


@pytest.mark.parametrize("ids", [[12, "12", 12.0, "x"], [np.int8(12), np.float32(12), b"12", "x"]])
def test_ways_to_write_an_id_are_one_person_in_memory(ids: list[Any]) -> None:
    grids = np.zeros((4, 1), int), np.zeros((4, 1), int), np.zeros((4, 1))
    data = Episodes.from_arrays(*grids, units=ids, max_episodes_per_unit=3, **BOUNDS)
    assert (data.num_units, data.num_episodes) == (2, 4)
    np.testing.assert_array_equal(data.unit_draws(KEY, "halves"), [coin(12), coin("x")])
    one = Episodes.from_arrays(*grids, units=ids, max_episodes_per_unit=1, **BOUNDS)
    assert one.num_episodes == 2  # a person under two spellings would have two


COLUMN_TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-3, 12, 100]),
    (pa.uint16(), [3, 12, 2**16 - 1]),
    (pa.int64(), [-(2**63), 12, 2**63 - 1]),
    (pa.uint64(), [0, 12, 2**64 - 1]),
    (pa.string(), ["", "12", "\u00e9 012"]),
    (pa.large_string(), ["-0", "12", "012"]),
]


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize(
    ("dtype", "ids"), COLUMN_TYPES, ids=lambda value: str(value) if isinstance(value, pa.DataType) else ""
)
def test_columns_of_every_type_have_the_coins_of_their_canonical_ids(
    save: Any, dtype: pa.DataType, ids: list[Any], encoded: bool
) -> None:
    names = pa.array(ids, dtype)
    columns = dict(zip(COLUMNS.values(), ([0] * 3, [0] * 3, [0] * 3, [0] * 3, [0] * 3, [0.0] * 3), strict=True))
    columns["patient"] = columns["stay"] = names.dictionary_encode() if encoded else names
    data = read_parquet(save(columns), **COLUMNS, **BOUNDS, batch_rows=2)
    np.testing.assert_array_equal(data.unit_draws(KEY, "halves"), [coin(value) for value in ids])
    assert len(data.digest(KEY)) == 32


def test_parts_have_the_coins_of_their_people_and_add_up(save: Any) -> None:
    data = opened(save(full_rows()), batch_rows=2)
    first, second = Part(data, np.array([True, False])), Part(data, np.array([False, True]))
    assert first.unit_draws(KEY, "halves").tolist() == [coin("ann")]
    assert second.unit_draws(KEY, "halves").tolist() == [coin("bob")]
    total = sum(int.from_bytes(part.digest(KEY), "big") for part in (first, second)) % 2**256
    assert total == int.from_bytes(data.digest(KEY), "big")
    (block,) = (block for block in second.blocks() if len(block.unit))
    assert block.unit.tolist() == [0]
    again = Part(second, np.array([True]))
    assert again.check() == second.check() and again.digest(KEY) == second.digest(KEY)


def rewritten(rows: dict[str, list[Any]], seed: int) -> pa.Table:
    """The same table: units, and episodes within units, in another order; other widths and encodings."""
    rng = np.random.default_rng(seed)
    order: list[int] = []
    for unit in rng.permutation(sorted(set(rows["patient"]))):
        mine = [i for i, name in enumerate(rows["patient"]) if name == unit]
        for stay in rng.permutation(sorted({rows["stay"][i] for i in mine})):
            order += [i for i in mine if rows["stay"][i] == stay]
    whole = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
    columns: dict[str, Any] = {}
    for name, values in rows.items():
        kinds: tuple[pa.DataType, ...] = whole
        if name == "patient":
            kinds = (pa.string(), pa.large_string())
        elif name == "stay":
            kinds = (pa.uint8(), pa.int64(), pa.string())
        elif name == "gain":
            kinds = (pa.float32(), pa.float64())  # the rewards of this table are exact in both
        elif name == "end":
            kinds = (pa.bool_(), pa.uint8())
        kind = kinds[rng.integers(len(kinds))]
        listed = [values[i] for i in order]
        if kind == pa.string():
            listed = [str(value) for value in listed]
        elif name == "end" and kind != pa.bool_():
            listed = [int(value) for value in listed]
        column = pa.array(listed, kind)
        columns[name] = column.dictionary_encode() if rng.random() < 0.5 else column
    return pa.table(columns)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    cut=st.integers(0, 7),
    batch_rows=st.sampled_from([1, 2, 3, 1000]),
    most=st.integers(1, 2),
    sort=st.booleans(),
)
def test_the_digest_does_not_see_how_a_table_is_written(
    tmp_path: Path, seed: int, cut: int, batch_rows: int, most: int, sort: bool
) -> None:
    pq.write_table(pa.table(full_rows()), tmp_path / "whole.parquet")
    folder = tmp_path / "files"
    folder.mkdir(exist_ok=True)
    table = rewritten(full_rows(), seed)
    pq.write_table(table.slice(0, cut), folder / "a.parquet")
    pq.write_table(table.slice(cut), folder / "b.parquet", row_group_size=2)
    expected = opened(tmp_path / "whole.parquet").digest(KEY)
    data = opened(folder, batch_rows=batch_rows, max_episodes_per_unit=most, sort=sort)
    assert data.digest(KEY) == expected != data.digest(OTHER)
    assert data.check().num_rows == 7


def changed_cells() -> list[tuple[str, int, Any]]:
    """For every cell of the table another value that the checks allow."""
    cells: list[tuple[str, int, Any]] = []
    rows = full_rows()
    for i in range(7):
        cells += [("ward", i, (rows["ward"][i] + 1) % 5), ("drug", i, (rows["drug"][i] + 1) % 3)]
        cells += [("gain", i, np.nextafter(rows["gain"][i], 0.4)), ("after", i, 4)]
    cells += [("end", 1, False), ("end", 3, True), ("end", 6, False)]
    return cells


def test_every_single_cell_changes_the_digest(save: Any) -> None:
    seen = {opened(save(full_rows())).digest(KEY)}
    cells = changed_cells()
    for column, row, value in cells:
        rows = full_rows()
        rows[column][row] = value
        seen.add(opened(save(rows)).digest(KEY))
    assert len(seen) == len(cells) + 1


CHANGES: dict[str, Callable[[dict[str, list[Any]]], dict[str, list[Any]]]] = {
    "steps shifted": lambda rows: rows | {"hour": [0, 1, 5, 6, 0, 1, 2]},
    "another name": lambda rows: rows | {"patient": ["anna"] * 4 + ["bob"] * 3},
    "names exchanged": lambda rows: rows | {"patient": ["bob"] * 4 + ["ann"] * 3},
    "another stay": lambda rows: rows | {"stay": [13, 13, 11, 11, 12, 12, 12]},
    "stays exchanged": lambda rows: rows | {"stay": [11, 11, 10, 10, 12, 12, 12]},
    "a stay of somebody else": lambda rows: rows | {"patient": ["ann"] * 2 + ["bob"] * 5},
    "first row gone": lambda rows: {name: values[1:] for name, values in rows.items()},
    "last row gone": lambda rows: {name: values[:-1] for name, values in rows.items()},
    "a person gone": lambda rows: {name: values[:4] for name, values in rows.items()},
    "a person twice": lambda rows: (
        {name: values + values[4:] for name, values in rows.items()} | {"patient": rows["patient"] + ["bobby"] * 3}
    ),
    "a stay twice": lambda rows: (
        {name: values + values[4:] for name, values in rows.items()} | {"stay": rows["stay"] + [14] * 3}
    ),
    "letters across ids": lambda rows: rows | {"patient": ["ann1"] * 4 + ["bob1"] * 3, "stay": [0, 0, 1, 1, 2, 2, 2]},
}


def test_every_change_of_people_and_rows_changes_the_digest(save: Any) -> None:
    tables = [full_rows(), *(change(full_rows()) for change in CHANGES.values())]
    assert len({opened(save(rows)).digest(KEY) for rows in tables}) == len(tables)


def test_the_digest_knows_which_columns_are_read(save: Any) -> None:
    path = save(full_rows() | {"after": [1, -1, 3, -1, 0, 1, -1], "end": [False] * 7})
    digests = {
        read_parquet(path, **{name: value for name, value in OPTIONS.items() if name not in without}).digest(KEY)
        for without in ([], ["next_state"], ["terminated"], ["next_state", "terminated"])
    }
    assert len(digests) == 4


def test_a_digest_checks_the_table_in_the_same_pass(save: Any) -> None:
    data = opened(save(full_rows()))
    passes = []
    batches = type(data.table).batches
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(data.table), "batches", lambda self, parts: passes.append(parts) or batches(self, parts))
        data.digest(KEY)
        assert data.check().num_units == 2 and len(passes) == 1
        data.unit_draws(KEY, "halves")
        assert passes[1:] == [["unit"]]


def in_memory(change: str = "", **options: Any) -> Episodes:
    rng = np.random.default_rng(0)
    arrays = {
        "states": rng.integers(0, 5, (6, 3)),
        "actions": rng.integers(0, 3, (6, 3)),
        "rewards": rng.random((6, 3)),
        "next_states": rng.integers(-1, 5, (6, 3)),
    }
    if change:
        changed = {"states": (0, 5), "actions": (0, 3), "next_states": (-1, 6)}
        cell = arrays[change][4, 1]
        low, size = changed.get(change, (0, 0))
        arrays[change][4, 1] = 1 - cell if change == "rewards" else (cell - low + 1) % size + low
    defaults: dict[str, Any] = {"units": ["a", 12, "a", "c", "12", "d"], "lengths": [3, 2, 1, 3, 2, 3]}
    return Episodes.from_arrays(**arrays, **{**BOUNDS, **defaults, "max_episodes_per_unit": 2, **options})


def test_the_digest_of_episodes_in_memory() -> None:
    expected = in_memory().digest(KEY)
    same = [in_memory(units=["a", "12", "a", "c", 12.0, "d"]), in_memory(max_episodes_per_unit=1)]
    assert all(data.digest(KEY) == expected for data in same)  # those left out count too
    others = [in_memory(name) for name in ("states", "actions", "rewards", "next_states")]
    others += [in_memory(lengths=[3, 2, 1, 3, 1, 3]), in_memory(units=["a", 12, "c", "c", "12", "d"])]
    others += [in_memory(units=None), in_memory(units=["a", 12, "a", "c", "012", "d"])]
    assert len({expected, *(data.digest(KEY) for data in others)}) == len(others) + 1


def test_the_order_of_episodes_in_memory_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    grids = rng.integers(0, 5, (40, 4)), rng.integers(0, 3, (40, 4)), rng.random((40, 4))
    units, lengths = np.arange(40) // 3, rng.integers(1, 5, 40)
    order = rng.permutation(40)
    first = Episodes.from_arrays(*grids, units=units, lengths=lengths, **BOUNDS, max_episodes_per_unit=2)
    second = Episodes.from_arrays(
        *(grid[order] for grid in grids), units=units[order], lengths=lengths[order], **BOUNDS, max_episodes_per_unit=2
    )
    assert first.digest(KEY) == second.digest(KEY)


def test_ids_and_digests_are_not_printed(save: Any) -> None:
    for data in (opened(save(full_rows())), in_memory(units=["zyxwv"] * 6, max_episodes_per_unit=6)):
        text = repr(data) + str(data) + repr(Part(data, np.ones(data.num_units, bool)))
        assert data.digest(KEY).hex() not in text and "zyxwv" not in text and "ann" not in text.replace("annot", "")
    with pytest.raises(ValueError, match="at least 32"):
        in_memory().digest(b"short")


def test_text_that_is_no_unicode_is_refused(save: Any) -> None:
    raw = pa.array([b"zyxwv\xff"] * 4 + [b"bob"] * 3)
    names = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    for batch_rows in (1, 1000):
        with pytest.raises(ValueError, match="not UTF-8") as caught:
            opened(save(full_rows() | {"patient": names}), batch_rows=batch_rows).check()
        assert "zyxwv" not in str(caught.value) and caught.value.__context__ is None
