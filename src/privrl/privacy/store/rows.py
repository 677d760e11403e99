"""Arrays, keys and times as the rows of a store hold them."""

import hashlib
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from jaxtyping import Int64


def exact_sum(rows: Int64[np.ndarray, "B *shape"]) -> Int64[np.ndarray, "*shape"]:
    """The sum over rows, refused if it leaves int64: high and low halves are summed apart, where nothing overflows."""
    low = (rows & 0xFFFFFFFF).sum(axis=0)
    high = (rows >> 32).sum(axis=0) + (low >> 32)
    if np.any((high < -(2**31)) | (high >= 2**31)):
        raise OverflowError("The sum leaves int64; nothing was added. Use a coarser grid or fewer people per sum.")
    return np.asarray((high << 32) | (low & 0xFFFFFFFF))


def digests(digest_key: bytes, where: str, keys: Sequence[str | bytes]) -> list[bytes]:
    """Keyed BLAKE2b of a place and a key; without the digest key nobody can test whether a person is in the file."""
    name = where.encode()
    start = hashlib.blake2b(len(name).to_bytes(8, "little") + name, key=digest_key, digest_size=16)
    made = []
    for key in keys:
        digest = start.copy()
        digest.update(key.encode() if isinstance(key, str) else key)
        made.append(digest.digest())
    return made


def integers(shape: str, content: bytes) -> Int64[np.ndarray, "..."]:
    """The array of two columns."""
    return np.frombuffer(content, "<i8").astype(np.int64).reshape(json.loads(shape))


def columns(value: Int64[np.ndarray, "..."]) -> tuple[str, bytes]:
    """An array as two columns: shape and little-endian content."""
    return json.dumps(value.shape), value.astype("<i8").tobytes()


def check_integers(what: str, value: object) -> None:
    """Refuses what is not an array of int64."""
    if not isinstance(value, np.ndarray) or value.dtype != np.int64:
        kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        raise TypeError(f"{what} is {kind}; a store keeps NumPy arrays of int64.")


def check_amount(what: str, amount: float) -> None:
    """Refuses what cannot be a charge or a limit."""
    if not (0 <= amount < math.inf):
        raise ValueError(f"`{what}` is {amount}; use a finite number that is not negative.")


def now() -> str:
    """The time in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
