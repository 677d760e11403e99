"""Read the columns of a record batch and check them: types, numbers and ids.

An error names the column and the row, never the value in the cell.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from privrl.data.schema.fingerprints import hash_integers, hash_strings
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import Bounds, Place, TableError
from privrl.shapes import Bool, Float, Int, Shaped, UInt64

if TYPE_CHECKING:
    import pyarrow as pa

_Values = TypeVar("_Values")
_IDS = {"unit", "episode", "name"}
_SPOKEN = {"next_state": "next state", "by": "group", "outcome": "second outcome"}


def check_type(dtype: "pa.DataType", part: str, column: str, file: str) -> str:
    """Describe the values of a column, with different words for different types.

    Encoding (dictionary or not, short or long offsets of texts) does not make two types different.

    Raises:
        TableError: if values of this type cannot play the part.
    """
    from pyarrow import types

    value = dtype.value_type if types.is_dictionary(dtype) else dtype
    whole, text = types.is_integer(value), types.is_string(value) or types.is_large_string(value)
    number = whole or types.is_floating(value)
    fits, wanted = number, "numbers"
    part = part.split(" ")[0]  # "feature NAME" is a feature
    if part in ("category", "by"):
        fits, wanted = whole or text or types.is_boolean(value), "text, whole numbers, or true or false"
    elif part == "copied":
        fits, wanted = number or text or types.is_boolean(value), "numbers, text, or true or false"
    elif part in _IDS:
        fits, wanted = whole or text, "whole numbers or text"
    elif part == "terminated":
        fits, wanted = number or types.is_boolean(value), "true or false, or numbers"
    if not fits:
        raise TableError(
            f"Column `{column}` of `{file}` holds {describe_type(value)}; the {_SPOKEN.get(part, part)} must be "
            f"{wanted}. Convert the column before reading the table."
        )
    return describe_type(value)


def folder_type(part: str) -> "pa.DataType":
    """The type of a column that is read from folder names, which are text."""
    import pyarrow as pa

    part = part.split(" ")[0]
    if part in _IDS or part in ("category", "by"):
        return pa.string()  # `007` and `7` are different people
    if part == "terminated":
        return pa.bool_()
    return pa.float64() if part in ("feature", "dose", "reward", "propensity", "outcome") else pa.int64()


def describe_type(dtype: "pa.DataType") -> str:
    """Describe a type, with different words for different types."""
    # Not pyarrow's name of the type, because a user can write anything into the name of an extension type.
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


def decoded_type(dtype: "pa.DataType") -> "pa.DataType":
    """The type of `decode`d values: types that differ only in their encoding become the same."""
    import pyarrow as pa

    value = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    return pa.large_string() if pa.types.is_string(value) else value


def decode(values: "pa.Array") -> "pa.Array":
    """Remove dictionary encoding and give texts long offsets. Errors of pyarrow pass through."""
    import pyarrow as pa

    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    return values.cast(pa.large_string()) if pa.types.is_string(values.type) else values


def decode_sortable(values: "pa.Array") -> "pa.Array":
    """Decode values, with half floats, which pyarrow cannot sort, in 32 bits. Errors of pyarrow pass through."""
    import pyarrow as pa

    values = decode(values)
    return values.cast(pa.float32()) if pa.types.is_float16(values.type) else values


def read_column(
    batch: "pa.RecordBatch", column: str, place: Place, convert: Callable[["pa.Array"], _Values]
) -> tuple[_Values, Bool[np.ndarray, " N"]]:
    """The converted values of a column, and a mask of its nulls."""
    import pyarrow.compute as pc

    with redact_errors(f"Column `{column}` cannot be read from {place(0)} on"):
        values = decode_sortable(batch.column(column))
        return convert(values), pc.is_null(values).to_numpy(zero_copy_only=False)


def read_numbers(
    batch: "pa.RecordBatch", column: str, place: Place
) -> tuple[Shaped[np.ndarray, " N"], Bool[np.ndarray, " N"]]:
    """The numbers of a column in their own type, with 0 in place of nulls, and a mask of the nulls."""
    import pyarrow as pa

    def filled(values: pa.Array) -> np.ndarray:
        zero = pa.scalar(0, pa.int8()).cast(values.type)  # every type has a zero
        return (values.fill_null(zero) if values.null_count else values).to_numpy(zero_copy_only=False)

    return read_column(batch, column, place, filled)


def read_required_numbers(batch: "pa.RecordBatch", column: str, place: Place) -> Shaped[np.ndarray, " N"]:
    """The numbers of a column that must not have nulls."""
    values, null = read_numbers(batch, column, place)
    _refuse_null(null, column, place)
    return values


def read_whole_numbers(
    batch: "pa.RecordBatch", column: str, place: Place, missing: int | None = None
) -> Int[np.ndarray, " N"]:
    """A column as int64, whatever its width and sign; nulls become `missing`, or raise an error."""
    if missing is None:
        return to_whole_numbers(read_required_numbers(batch, column, place), column, place)
    values, null = read_numbers(batch, column, place)
    return np.where(null, missing, to_whole_numbers(values, column, place))


def _refuse_null(null: Bool[np.ndarray, " N"], column: str, place: Place) -> None:
    refuse(null, column, place, "is null", "Remove the episode or fill in the value before reading the table.")


def read_ids(batch: "pa.RecordBatch", column: str, place: Place) -> "pa.Array":
    """The ids of a column, without nulls: whole numbers, or texts as bytes."""
    import pyarrow as pa

    def as_bytes(values: pa.Array) -> pa.Array:
        return values.cast(pa.large_binary()) if pa.types.is_large_string(values.type) else values

    ids, null = read_column(batch, column, place, as_bytes)
    _refuse_null(null, column, place)
    return ids


def take_ids(ids: "pa.Array", starts: Int[np.ndarray, " E"], column: str, place: Place) -> "pa.Array":
    """The ids at these rows; texts must be valid UTF-8."""
    import pyarrow as pa

    with redact_errors(f"Column `{column}` holds text that is not UTF-8 from {place(0)} on"):
        chosen = ids.take(pa.array(starts))
        if pa.types.is_large_binary(chosen.type):
            chosen.cast(pa.large_string())  # raises unless every text is valid UTF-8
        return chosen


def canonical_ids(ids: "pa.Array") -> list[bytes]:
    """`privrl.privacy.canonical_id` of each id of a checked column, all at once."""
    import pyarrow as pa

    text = ids if pa.types.is_large_binary(ids.type) else ids.cast(pa.large_string()).cast(pa.large_binary())
    return text.to_pylist()


def find_changes(ids: "pa.Array", previous: object) -> Bool[np.ndarray, " N"]:
    """Mark the ids that differ from the id one row above; `previous` is the last id of the rows before (`None` at
    first)."""
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


NO_PROPENSITY = (
    "A propensity is the probability with which the recorded action was taken: above 0, and at most 1. Correct the "
    "row, or leave out the propensities if no program logged them. Then practice is estimated."
)
"""What to do about a propensity outside (0, 1]."""


def refuse(bad: Bool[np.ndarray, " N"], column: str, place: Place, problem: str, remedy: str) -> None:
    """Raise a `TableError` that names the first bad entry, if there is one."""
    if bad.any():
        message = f"Column `{column}` {problem} at {place(int(bad.argmax()))}. {remedy}"
        raise TableError(message, (column, problem), bad)


def to_whole_numbers(values: Shaped[np.ndarray, " N"], column: str, place: Place) -> Int[np.ndarray, " N"]:
    """The column as int64. A floating-point column passes if every entry is a whole number."""
    if values.dtype.kind in "iu":
        if values.dtype == np.uint64:
            _refuse_too_large(values > np.uint64(2**63 - 1), column, place)
        return values.astype(np.int64, copy=False)
    if values.dtype.kind != "f":
        raise TableError(
            f"Column `{column}` holds {describe_values(values)}; whole numbers are required. "
            f"Number its categories 0, 1, ... before reading the table."
        )
    values = values.astype(np.promote_types(values.dtype, np.float64), copy=False)  # half floats cannot represent 2^53
    refuse_not_finite(values, column, place)
    _refuse_too_large(np.abs(values) > 2.0**53, column, place)
    numbers = values.astype(np.int64)
    problem = "has a number with a fraction"
    refuse(numbers != values, column, place, problem, "Whole numbers are required: number the categories 0, 1, ...")
    return numbers


def describe_values(values: Shaped[np.ndarray, "*shape"]) -> str:
    """Describe the values of an array. The name of its NumPy type would reveal the length of the longest text."""
    words = {"U": "text", "S": "text", "b": "true or false", "O": "values of mixed types"}
    return words.get(values.dtype.kind, "dates or other objects")


def _refuse_too_large(bad: Bool[np.ndarray, " N"], column: str, place: Place) -> None:
    refuse(bad, column, place, "has a number too large to be exact", "Use whole numbers of 64 bits.")


def refuse_not_finite(values: Shaped[np.ndarray, " N"], column: str, place: Place) -> None:
    """Raise if an entry is NaN or infinite."""
    remedy = "Remove the episode or fill in the value before reading the table."
    refuse(np.isnan(values), column, place, "is NaN", remedy)
    refuse(np.isinf(values), column, place, "is infinite", remedy)


def check_indices(
    values: Shaped[np.ndarray, " N"], column: str, place: Place, bounds: Bounds, bound: str, unknown: bool = False
) -> Int[np.ndarray, " N"]:
    """The column as int32, with every entry in 0, ..., `bound` - 1, or -1 if `unknown` entries are allowed."""
    numbers, size = to_whole_numbers(values, column, place), bounds.known(bound)
    allowed = f"from 0 to {size - 1}" + (", or -1 or null if it was not recorded" if unknown else "")
    remedy = f"`{bound}` is {size}, so it must be {allowed}. Recode the column or give the right `{bound}`."
    refuse((numbers < (-1 if unknown else 0)) | (numbers >= size), column, place, "is out of range", remedy)
    return numbers.astype(np.int32)


def check_rewards(
    values: Shaped[np.ndarray, " N"], column: str, place: Place, reward_range: tuple[float, float]
) -> Float[np.ndarray, " N"]:
    """The column as float64, with every entry finite and inside the public range."""
    if values.dtype.kind not in "iuf":
        raise TableError(
            f"Column `{column}` holds {describe_values(values)}; rewards must be numbers. Convert the column first."
        )
    rewards = values.astype(np.float64, copy=False)
    refuse_not_finite(rewards, column, place)
    low, high = reward_range
    remedy = (
        f"Rewards must lie in [{low:g}, {high:g}]. Rescale the column, with a public smallest and largest reward: "
        f"{'' if low == 0.0 else f'{low:g} + '}(reward - smallest) / (largest - smallest)"
        f"{'' if high - low == 1.0 else f' * {high - low:g}'}."
    )
    refuse((rewards < low) | (rewards > high), column, place, "is out of range", remedy)
    return rewards


def check_propensities(
    values: Shaped[np.ndarray, " N"], column: str, place: Place, bounds: Bounds
) -> Float[np.ndarray, " N"]:
    """The column as float64, with every entry in (0, 1]; with a public least probability, none that contradicts it.

    An action with a probability above 1 - (A-1) p_min leaves less than p_min for another one.
    """
    if values.dtype.kind not in "iuf":
        raise TableError(
            f"Column `{column}` holds {describe_values(values)}; propensities must be numbers. Convert it first."
        )
    logged = values.astype(np.float64, copy=False)
    refuse_not_finite(logged, column, place)
    refuse((logged <= 0.0) | (logged > 1.0), column, place, "is outside (0, 1]", NO_PROPENSITY)
    least, largest = bounds.least_propensity, bounds.largest_propensity
    remedy = f"`least_propensity` says that no action had a probability below {least:g}. Correct it, or leave it out."
    refuse(logged < least, column, place, "is below its public bound", remedy)
    remedy = (
        f"`least_propensity` says that no action had a probability below {least:g}, so none had more than {largest:g}. "
        "Correct it, or leave it out."
    )
    refuse(logged > largest + 1e-9, column, place, "is above what its public bound allows", remedy)
    return logged
