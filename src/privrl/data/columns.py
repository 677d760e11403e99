"""Columns of a record batch: their types in words, their numbers, and their ids."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Int, Shaped, UInt64

from privrl.data.guard import guarded
from privrl.data.identity import hash_integers, hash_strings
from privrl.data.schema import Place, TableError, refuse, whole_numbers

if TYPE_CHECKING:
    import pyarrow as pa

_IDS = {"unit", "episode"}


def kind_of(dtype: "pa.DataType", part: str, column: str, file: str) -> str:
    """What a column holds, in words that differ for different types; an error if it cannot play its part.

    How values are encoded (dictionary or not, short or long offsets of texts) is no difference of type.
    """
    from pyarrow import types

    value = dtype.value_type if types.is_dictionary(dtype) else dtype
    whole, text = types.is_integer(value), types.is_string(value) or types.is_large_string(value)
    number = whole or types.is_floating(value)
    fits, wanted = number, "numbers"
    if part in _IDS:
        fits, wanted = whole or text, "whole numbers or text"
    elif part == "terminated":
        fits, wanted = number or types.is_boolean(value), "true or false, or numbers"
    if not fits:
        raise TableError(
            f"Column `{column}` of `{file}` holds {_words(value)}; the {part.replace('_', ' ')} must be {wanted}. "
            f"Convert the column before reading the table."
        )
    return _words(value)


def _words(dtype: "pa.DataType") -> str:
    # never the name that pyarrow gives, which can hold what a user wrote into an extension type
    from pyarrow import types

    if types.is_integer(dtype):
        return f"{'unsigned ' if types.is_unsigned_integer(dtype) else ''}whole numbers of {dtype.bit_width} bits"
    if types.is_floating(dtype):
        return f"floating-point numbers of {dtype.bit_width} bits"
    for words, tests in (
        ("text", (types.is_string, types.is_large_string)),
        ("true or false", (types.is_boolean,)),
        ("timestamps", (types.is_timestamp,)),
        ("dates or times", (types.is_temporal,)),
        ("decimal numbers", (types.is_decimal,)),
        ("nothing but nulls", (types.is_null,)),
        ("lists or records", (types.is_nested,)),
    ):
        if any(test(dtype) for test in tests):
            return words
    return "bytes or values of another type"


def plain(values: "pa.Array") -> "pa.Array":
    """The values without dictionary encoding, texts with long offsets, half floats (which cannot be sorted) in 32 bits;
    may raise what pyarrow raises."""
    import pyarrow as pa

    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    if pa.types.is_float16(values.type):
        return values.cast(pa.float32())
    return values.cast(pa.large_string()) if pa.types.is_string(values.type) else values


def _read(
    batch: "pa.RecordBatch", column: str, place: Place, convert: Callable[["pa.Array"], Any]
) -> tuple[Any, Bool[np.ndarray, " N"]]:
    """The converted values of a column, and where they are null."""
    import pyarrow.compute as pc

    def read() -> tuple[Any, np.ndarray]:
        values = plain(batch.column(column))
        return convert(values), pc.is_null(values).to_numpy(zero_copy_only=False)

    return guarded(read, f"Column `{column}` cannot be read from {place(0)} on")


def numbers_of(
    batch: "pa.RecordBatch", column: str, place: Place
) -> tuple[Shaped[np.ndarray, " N"], Bool[np.ndarray, " N"]]:
    """The numbers of a column in their own type, zero where they are null, and where that is."""
    import pyarrow as pa

    def filled(values: pa.Array) -> np.ndarray:
        zero = pa.scalar(0, pa.int8()).cast(values.type)  # zero is in every type
        return (values.fill_null(zero) if values.null_count else values).to_numpy(zero_copy_only=False)

    return _read(batch, column, place, filled)


def given_numbers_of(batch: "pa.RecordBatch", column: str, place: Place) -> Shaped[np.ndarray, " N"]:
    """The numbers of a column in which none may be null."""
    values, null = numbers_of(batch, column, place)
    _refuse_null(null, column, place)
    return values


def whole_numbers_of(
    batch: "pa.RecordBatch", column: str, place: Place, missing: int | None = None
) -> Int[np.ndarray, " N"]:
    """A column as int64, whatever its width and sign; nulls become `missing`, or an error."""
    if missing is None:
        return whole_numbers(given_numbers_of(batch, column, place), column, place)
    values, null = numbers_of(batch, column, place)
    return np.where(null, missing, whole_numbers(values, column, place))


def _refuse_null(null: Bool[np.ndarray, " N"], column: str, place: Place) -> None:
    refuse(null, column, place, "is null", "Remove the episode or fill the value in before reading the table.")


def ids_of(batch: "pa.RecordBatch", column: str, place: Place) -> "pa.Array":
    """The ids of a column, none of them null: whole numbers, or texts as bytes."""
    import pyarrow as pa

    def as_bytes(values: pa.Array) -> pa.Array:
        return values.cast(pa.large_binary()) if pa.types.is_large_string(values.type) else values

    ids, null = _read(batch, column, place, as_bytes)
    _refuse_null(null, column, place)
    return ids


def taken(ids: "pa.Array", starts: Int[np.ndarray, " E"], column: str, place: Place) -> "pa.Array":
    """The ids at these rows; texts must be UTF-8."""
    import pyarrow as pa

    def read() -> Any:
        chosen = ids.take(pa.array(starts))
        if pa.types.is_large_binary(chosen.type):
            chosen.cast(pa.large_string())  # raises if a text is none
        return chosen

    return guarded(read, f"Column `{column}` holds text that is not UTF-8 from {place(0)} on")


def canonical(ids: "pa.Array") -> list[bytes]:
    """What `privrl.privacy.canonical_id` says of each id of a checked column, all at once."""
    import pyarrow as pa

    text = ids if pa.types.is_large_binary(ids.type) else ids.cast(pa.large_string()).cast(pa.large_binary())
    return text.to_pylist()


def changes(ids: "pa.Array", previous: Any) -> Bool[np.ndarray, " N"]:
    """Where an id differs from the id one row above; `previous` is the last id of the rows before (`None` at first)."""
    import pyarrow.compute as pc

    changed = np.empty(len(ids), bool)
    changed[0] = ids[0].as_py() != previous
    changed[1:] = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)).to_numpy(zero_copy_only=False)
    return changed


def hashes(ids: "pa.Array", salt: int) -> UInt64[np.ndarray, " N"]:
    """Keyed 64-bit hashes of ids."""
    import pyarrow as pa

    if pa.types.is_integer(ids.type):
        return hash_integers(ids.to_numpy(), salt)
    _, offsets, data = ids.buffers()
    ends: Shaped[np.ndarray, " M"] = np.frombuffer(offsets, np.int64)[ids.offset : ids.offset + len(ids) + 1]
    return hash_strings(ends, np.frombuffer(data or b"", np.uint8), salt)
