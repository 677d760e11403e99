"""Whole numbers of every width, sign and encoding are read alike, with nulls where these are allowed."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import BOUNDS, COLUMNS, good_rows

from privrl.data.schema.table_schema import TableError
from privrl.data.tables.parquet import read_parquet

UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
SIGNED = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float16(), pa.float32(), pa.float64()]
FULL: dict[str, Any] = {**COLUMNS, "next_state": "after", "terminated": "end", **BOUNDS, "max_episodes_per_unit": 2}
ROUTES = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


def column(values: list[Any], dtype: pa.DataType, encoded: bool) -> pa.Array:
    if dtype == pa.float16():
        values = [None if value is None else np.float16(value) for value in values]
    array = pa.array(values, dtype)
    return array.dictionary_encode() if encoded else array


def read(save: Any, columns: dict[str, Any], **options: Any) -> Any:
    data = read_parquet(save(columns), **{**FULL, **options})
    names = [name for name, values in vars(next(data.blocks())).items() if values is not None]
    return [np.concatenate([getattr(block, name) for block in data.blocks()]) for name in names]


@ROUTES
@given(
    after=st.lists(st.one_of(st.none(), st.integers(0, 4)), min_size=7, max_size=7),
    unknown=st.booleans(),
    index=st.integers(0, len(UNSIGNED + SIGNED) - 1),
    encoded=st.booleans(),
    batch_rows=st.sampled_from([1, 2, 1000]),
    sort=st.booleans(),
)
def test_next_states_of_every_type_may_be_null(
    save: Any, after: list[int | None], unknown: bool, index: int, encoded: bool, batch_rows: int, sort: bool
) -> None:
    dtype = (UNSIGNED + SIGNED)[index]
    if unknown and dtype not in UNSIGNED:
        after = [-1 if value is None and i % 2 else value for i, value in enumerate(after)]
    rows = good_rows() | {"after": column(after, dtype, encoded), "end": [0] * 7}
    *_, found = read(save, rows, batch_rows=batch_rows, sort=sort)
    assert found.tolist() == [-1 if value is None else value for value in after]


@ROUTES
@given(data=st.data(), batch_rows=st.sampled_from([1, 2, 1000]), sort=st.booleans())
def test_every_column_may_have_every_number_type(save: Any, data: Any, batch_rows: int, sort: bool) -> None:
    plain: dict[str, Any] = good_rows() | {"hour": [0, 1, 5, 6, 0, 1, 2], "gain": [0, 1, 1, 0, 0, 0, 1]}
    plain |= {"after": [1, None, 3, None, 0, 1, 2], "end": [0, 1, 0, 0, 0, 0, 1]}
    expected = read(save, plain)
    typed = dict(plain)
    for name in ("stay", "hour", "ward", "drug", "gain", "after", "end"):
        kinds = UNSIGNED + SIGNED[:4] if name == "stay" else UNSIGNED + SIGNED
        typed[name] = column(plain[name], data.draw(st.sampled_from(kinds), label=name), data.draw(st.booleans()))
    for mine, theirs in zip(read(save, typed, batch_rows=batch_rows, sort=sort), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for name in ("stay", "hour", "ward", "drug", "gain", "end")
        for dtype in UNSIGNED + SIGNED
        if name != "stay" or pa.types.is_integer(dtype)
    ],
    ids=str,
)
def test_nulls_elsewhere_are_refused_in_every_type(save: Any, name: str, dtype: pa.DataType) -> None:
    rows: dict[str, Any] = good_rows() | {
        "hour": [0, 1, 5, 6, 0, 1, 2],
        "gain": [0] * 7,
        "after": [0] * 7,
        "end": [0] * 7,
    }
    for encoded in (False, True):
        values = [None if i == 5 else value for i, value in enumerate(rows[name])]
        with pytest.raises(TableError, match=f"`{name}` is null at row 5"):
            read(save, rows | {name: column(values, dtype, encoded)})


@pytest.mark.parametrize("value", [2**63, 2**64 - 1])
@pytest.mark.parametrize("name", ["hour", "ward", "drug", "after", "end"])
def test_numbers_that_do_not_fit_are_refused(save: Any, name: str, value: int) -> None:
    rows: dict[str, Any] = good_rows() | {"hour": [0, 1, 5, 6, 0, 1, 2], "after": [0] * 7, "end": [0] * 7}
    values = [value if i == 5 else cell for i, cell in enumerate(rows[name])]
    with pytest.raises(TableError, match=f"`{name}` has a number too large to be exact at row 5"):
        read(save, rows | {name: pa.array(values, pa.uint64())})


@pytest.mark.parametrize("steps", [[2**63 - 1, -(2**63)], [-(2**63), 2**63 - 1], [2**62 + 1, 2**62 + 2]])
def test_steps_whose_difference_would_overflow_are_refused(save: Any, steps: list[int]) -> None:
    rows: dict[str, Any] = good_rows() | {"after": [0] * 7, "end": [0] * 7, "hour": [0, 1, *steps, 0, 1, 2]}
    with pytest.raises(TableError, match="`hour` is too large at row 2"):
        read(save, rows)
