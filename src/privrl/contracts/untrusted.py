"""Reads files that anyone may have written: checks sizes before content, and types before values.

Every function that reads a saved file uses this module. A hostile file leads to a `ValueError` of one sentence.
"""

import io
import json
import math
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec
import numpy as np

MAX_FILE_BYTES = 2**28
"""The largest file that is read."""
MAX_ARRAY_BYTES = 2**28
"""The largest total size of the arrays of one file: 32 million numbers. A small file can hold large arrays of zeros."""
_MAX_ARRAYS = 64
_MAX_DEPTH = 64
_KINDS = "biufU"  # of the dtypes that are read: numbers and text, never objects

MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors that building an object from malformed content can raise."""

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_Read = TypeVar("_Read")
_WORDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "text",
}


def read_bytes(path: Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """Returns the content of a regular file; refuses a file of more than `limit` bytes."""
    if not path.is_file():
        raise ValueError(f"`{path}` is not a file.")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ValueError(f"`{path}` has {size:,} bytes, and privrl reads at most {limit:,}.")
        return file.read(size)


def read_json(content: str | bytes, what: str) -> object:
    """Parses JSON text, whose types are unknown until `convert` has checked them.

    `what` is the subject of the error message, for example "The certificate".
    Refuses an object with two entries of one name, because two readers might see two contents, and numbers that are
    not finite.
    """
    try:
        text = content.decode() if isinstance(content, bytes) else content
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is malformed: it is not JSON with unique names and finite numbers.") from error
    _check_depth(found, what)
    return found


def convert(content: object, kind: type[_Read], what: str) -> _Read:
    """Converts parsed JSON to a value of type `kind`, and checks the type of every field before its value."""
    try:
        return msgspec.convert(content, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(f"{what} is malformed: {_explain(str(error))}") from error


def check_names(written: Mapping[str, object], expected: Mapping[str, object], what: str) -> None:
    """Refuses JSON that differs from `expected`, which privrl writes for the same value. Names the first field."""
    if written == expected:
        return
    both = written.keys() & expected.keys()
    differing = sorted(name for name in {*written, *expected} if name not in both or written[name] != expected[name])
    named = f"`{differing[0]}` is missing" if differing[0] not in written else f"`{differing[0]}` is not expected"
    raise ValueError(f"{what} is malformed: {named} in this form.")


class _RefusedError(ValueError):
    """An error in privrl's own words."""


def read_npz(content: bytes, what: str) -> dict[str, np.ndarray]:
    """Returns the arrays of an .npz file by name. Checks their sizes before it reads any of them."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > MAX_ARRAY_BYTES:
                raise _RefusedError(
                    f"{what} holds {size:,} bytes of arrays, and privrl reads at most {MAX_ARRAY_BYTES:,}."
                )
            if len(members) > _MAX_ARRAYS or len({member.filename for member in members}) < len(members):
                raise _RefusedError(f"{what} holds too many arrays, or two of one name.")
            return {member.filename.removesuffix(".npy"): _read_array(archive, member, what) for member in members}
    except _RefusedError:
        raise
    except Exception as error:  # `zipfile` and its decompressors raise exceptions of many kinds
        raise ValueError(f"{what} is not an .npz file of arrays, or is damaged.") from error


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, what: str) -> np.ndarray:
    with archive.open(member) as file:
        shape, fortran, dtype = _HEADERS[np.lib.format.read_magic(file)](file)
        if dtype.kind not in _KINDS:
            raise _RefusedError(f"{what} holds an array of objects, and privrl reads numbers and text.")
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
            raise _RefusedError(f"{what} holds an array whose size differs from the size in its header.")
        array = np.frombuffer(file.read(), dtype).reshape(shape, order="F" if fortran else "C")
    return np.array(array, dtype.newbyteorder("="))


def _check_depth(content: object, what: str) -> None:
    level = [content] if isinstance(content, (dict, list)) else []
    for _ in range(_MAX_DEPTH):
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for some in inner for one in some if isinstance(one, (dict, list))]
        if not level:
            return
    raise ValueError(f"{what} is malformed: it is nested more than {_MAX_DEPTH} levels deep.")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("A name occurs twice.")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number.")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text} is not a finite number.")
    return number


def _explain(message: str) -> str:
    """Rewrites a message of `msgspec`, such as "Expected `float`, got `array` - at `$.epsilon`"."""
    told, _, place = message.partition(" - at `$")
    name = f"`{place.rstrip('`').lstrip('.')}`" if place.strip("`") else "it"
    if missing := re.fullmatch(r"Object missing required field (`.*`)", told):
        return f"{missing[1]} is missing{'' if name == 'it' else f' in {name}'}."
    if (types := re.fullmatch(r"Expected `(.*)`, got `(.*)`", told)) is None:
        return f"{told.rstrip('.')} (in {name})." if name != "it" else f"{told.rstrip('.')}."
    wanted, found = (" or ".join(_WORDS.get(one, one) for one in kind.split(" | ")) for kind in types.groups())
    return f"{name} must be {wanted}, not {found}."
