"""A canonical form of people's ids, and keyed hashes of them.

**Canonical form.** Text is taken as it is, in UTF-8. A whole number is its decimal digits, so 12, "12", 12.0 and the
NumPy scalars of them are one id; -0.0 is 0. Nothing else is equal: "012", " 12" and "12.0" are different ids, because
leading zeros and blanks may distinguish people. Bytes are the text that they encode in UTF-8.

Text is *not* normalised (an accented letter may be one code point or two): normal forms change with the version of
Unicode, and a map that changed with the version of Python could move a person from one group to another between two
runs on one store. Nor do databases and Parquet files treat the two spellings as equal. Give every person one spelling.

Refused, without quoting the value: missing ids (`None`, NaN), true and false, fractions, infinities, a floating-point
number so large that neighbouring ids may have been rounded to it, text that is not valid Unicode, and all other types.
"""

import hmac
import operator
from collections.abc import Callable

import numpy as np

_MIN_KEY_BYTES = 32
_MAX_ID_BITS = 4096


def canonical_id(value: object) -> bytes:
    """The canonical form of an id, as bytes. The `ValueError` for other values does not quote the value.

    >>> canonical_id(12), canonical_id("12"), canonical_id(12.0)
    (b'12', b'12', b'12')
    """
    if isinstance(value, str):
        return _encoded(value)
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        raise ValueError("An id is missing. Remove the record, or add its id.")
    if isinstance(value, bytes):
        return _encoded(_decoded(value))
    if isinstance(value, float | np.floating):
        return str(_whole(value)).encode()
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = operator.index(value)
        if number.bit_length() > _MAX_ID_BITS:
            raise ValueError(f"An id is a number of more than {_MAX_ID_BITS} bits. Use shorter numbers, or text.")
        return str(number).encode()
    raise ValueError(f"An id is a `{type(value).__name__}`; it must be a whole number or text. Convert the ids first.")


def keyed_hash(key: bytes, purpose: str) -> Callable[[bytes], bytes]:
    """The function message -> HMAC-SHA256(key, length of purpose || purpose || message), 32 bytes each.

    **Formal guarantee** (assumed of HMAC-SHA256, not proved here). Without the key it cannot be told from a random
    function by any feasible computation. Purposes have their length in front, so different purposes never share an
    input, and their values are those of independent random functions.
    """
    if len(key) < _MIN_KEY_BYTES:
        raise ValueError(f"`key` has {len(key)} bytes; it needs at least {_MIN_KEY_BYTES}. Draw it with `os.urandom`.")
    name = purpose.encode()
    prefix = len(name).to_bytes(8, "big") + name
    return lambda message: hmac.digest(key, prefix + message, "sha256")


def _whole(value: float | np.floating) -> int:
    bits = np.finfo(type(value)).nmant + 1
    if not abs(np.longdouble(value)) < np.longdouble(2.0) ** bits:  # `float` would round 2^64 - 1 up
        raise ValueError("An id is a floating-point number too large to be exact. Use whole numbers, or text.")
    if value != np.floor(value):
        raise ValueError("An id is a number with a fraction. Use whole numbers, or text.")
    return int(value)


def _encoded(text: str) -> bytes:
    try:
        return str.encode(text)
    except UnicodeEncodeError:
        pass  # its message quotes the text
    raise ValueError("An id is text that is not valid Unicode (a lone surrogate). Correct it.")


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        pass  # its message quotes a byte
    raise ValueError("An id is bytes that are not text in UTF-8. Write it as text, for example in hexadecimal digits.")
