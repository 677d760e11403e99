"""Sums of contributions: each key counts once, and a sealed sum accepts no more.

Arrays are stored as two columns, their shape and their content (`columns`, `integers`), also those of releases.
"""

import abc
import hashlib
import json
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Int64

from privrl.privacy.store.engine import AbstractEngine, now
from privrl.privacy.store.errors import ConflictError, SumFullError, SumSealedError


class AbstractSums(abc.ABC):
    """The part of a store that sums contributions."""

    _engine: AbstractEngine

    def contribute(
        self,
        name: str,
        keys: Sequence[str],
        rows: Int64[np.ndarray, "B *shape"],
        *,
        scope: str | None = None,
        at_most: int | None = None,
        marks: Sequence[bytes] | None = None,
        closed: Callable[[], bool] | None = None,
    ) -> Bool[np.ndarray, " B"]:
        """Adds rows to a running sum, each key at most once, and commits.

        Keys and marks are stored as digests under a random key of this file, so the file does not name people. The sum
        is rewritten with every batch. If a call is refused, nothing changes.

        Arguments:
            keys: the idempotency key of each row.
            rows: the contributions.
            scope: a key counts once in all sums that share a scope; by default once in each sum.
            at_most: the largest number of contributions to the sum.
            marks: a mark for each row. A key that is used again must have the same mark. Without marks, the row of a
                known key is ignored.
            closed: called inside the transaction; if it returns true, the sum counts as sealed.

        Returns:
            Which keys were new. That is sensitive, unless contributions are private by themselves.

        Raises:
            SumSealedError: if the sum is sealed.
            SumFullError: if it would have more than `at_most` contributions.
            ConflictError: if a key is known with another mark.
            OverflowError: if the sum does not fit in int64.
        """
        check_integers("rows", rows)
        if rows.ndim == 0 or len(rows) != len(keys):
            raise ValueError(f"`rows` has shape {rows.shape} for {len(keys)} keys; pass one row for each key.")

        def attempt() -> Bool[np.ndarray, " B"]:
            return self._contribute(name, keys, rows, scope, at_most, marks, closed)

        return self._engine.retry(attempt)

    def _contribute(
        self,
        name: str,
        keys: Sequence[str],
        rows: Int64[np.ndarray, "B *shape"],
        scope: str | None,
        at_most: int | None,
        marks: Sequence[bytes] | None,
        closed: Callable[[], bool] | None,
    ) -> Bool[np.ndarray, " B"]:
        where = f"sum {name}" if scope is None else f"scope {scope}"
        with self._engine.transaction("contribute", f"sum {name}"):
            if self.is_sealed(name) or (closed is not None and closed()):
                raise SumSealedError(f"The sum `{name}` is sealed and accepts no more contributions.")
            digest_key = self._engine.digest_key()
            kept_marks = [None] * len(keys) if marks is None else digests(digest_key, f"mark of {where}", marks)
            count, total = 0, np.zeros(rows.shape[1:], np.int64)
            held = self._engine.execute("SELECT number, shape, total FROM sums WHERE name = ?", name).fetchone()
            if held is not None:
                count, total = held[0], integers(held[1], held[2])
            if total.shape != rows.shape[1:]:
                raise ValueError(f"`rows` have shape {rows.shape[1:]}, and the sum `{name}` has shape {total.shape}.")
            new = self._insert(digests(digest_key, where, keys), kept_marks)
            if at_most is not None and count + int(new.sum()) > at_most:
                raise SumFullError(f"The sum `{name}` accepts {at_most} contributions and would get more.")
            if new.any():
                total = exact_sum(np.concatenate([total[None], rows[new]]))
            if held is not None and marks is None and not new.any():
                # Without marks it is secret which keys are new, so the time of a commit must not reveal it. This
                # change makes the database write a row even if no key is new. The statement below undoes it; the row
                # is written although it ends as it was.
                self._engine.execute("UPDATE sums SET number = number + 1 WHERE name = ?", name)
            if new.any() or held is None or marks is None:
                self._engine.execute(
                    "INSERT INTO sums VALUES (?, ?, ?, ?)"
                    " ON CONFLICT (name) DO UPDATE SET number = excluded.number, total = excluded.total",
                    name,
                    count + int(new.sum()),
                    *columns(total),
                )
        return new

    def _insert(self, keys: Sequence[bytes], marks: Sequence[bytes | None]) -> Bool[np.ndarray, " B"]:
        """Inserts keys and returns which of them are new. If a key occurs twice, only the first counts as new.

        Keys are inserted in the order of their digests, so that transactions never wait for each other in a circle.
        """
        first: dict[bytes, int] = {}
        for position, key in enumerate(keys):
            first.setdefault(key, position)
        inserted = self._engine.insert_contributions(sorted((key, marks[i]) for key, i in first.items()))
        new = np.zeros(len(keys), np.bool_)
        new[[first[key] for key in inserted]] = True
        for key, mark, is_new in zip(keys, marks, new, strict=True):
            find = "SELECT mark FROM contributions WHERE digest = ?"
            if not is_new and mark is not None and self._engine.execute(find, key).fetchone() != (mark,):
                raise ConflictError("Another contribution was already made under this key. Nothing was added.")
        return new

    def has_contributed(self, key: str, *, scope: str, mark: bytes) -> bool:
        """Whether a key was used in a scope, with this mark (`ConflictError` if with another one). Sensitive."""
        digest_key = self._engine.digest_key()
        (digest,) = digests(digest_key, f"scope {scope}", [key])
        found = self._engine.execute("SELECT mark FROM contributions WHERE digest = ?", digest).fetchone()
        if found is not None and found != tuple(digests(digest_key, f"mark of scope {scope}", [mark])):
            raise ConflictError("Another contribution was already made under this key.")
        return found is not None

    def total(self, name: str) -> Int64[np.ndarray, "..."] | None:
        """The raw sum, or None before its first contribution. Sensitive."""
        self._engine.digest_key()
        found = self._engine.execute("SELECT shape, total FROM sums WHERE name = ?", name).fetchone()
        return None if found is None else integers(*found)

    def count(self, name: str) -> int:
        """The number of contributions to a sum. Sensitive, unless contributions are private by themselves."""
        self._engine.digest_key()
        found = self._engine.execute("SELECT number FROM sums WHERE name = ?", name).fetchone()
        return 0 if found is None else found[0]

    def seal(self, name: str) -> None:
        """Seals a sum, which may be empty: no process can add to it any more."""
        with self._engine.transaction("seal", f"sum {name}"):
            if not self.is_sealed(name):
                self._engine.digest_key()
                self._engine.execute("INSERT INTO seals VALUES (?, ?)", name, now())
                self._engine.chain("seal", name)

    def is_sealed(self, name: str) -> bool:
        """Whether a sum is sealed."""
        return self._engine.execute("SELECT 1 FROM seals WHERE name = ?", name).fetchone() is not None


def exact_sum(rows: Int64[np.ndarray, "B *shape"]) -> Int64[np.ndarray, "*shape"]:
    """The sum over rows; refused if it does not fit in int64.

    High and low halves are summed separately, so that no intermediate sum overflows.
    """
    low = (rows & 0xFFFFFFFF).sum(axis=0)
    high = (rows >> 32).sum(axis=0) + (low >> 32)
    if np.any((high < -(2**31)) | (high >= 2**31)):
        raise OverflowError(
            "The sum does not fit in int64. Nothing was added. Use a coarser lattice or fewer people per sum."
        )
    return np.asarray((high << 32) | (low & 0xFFFFFFFF))


def digests(digest_key: bytes, where: str, keys: Sequence[str | bytes]) -> list[bytes]:
    """Keyed BLAKE2b of a place and a key. Only with the digest key can one test whether a person is in the file."""
    name = where.encode()
    start = hashlib.blake2b(len(name).to_bytes(8, "little") + name, key=digest_key, digest_size=16)
    made = []
    for key in keys:
        digest = start.copy()
        digest.update(key.encode() if isinstance(key, str) else key)
        made.append(digest.digest())
    return made


def integers(shape: str, content: bytes) -> Int64[np.ndarray, "..."]:
    """The array that `columns` stored."""
    return np.frombuffer(content, "<i8").astype(np.int64).reshape(json.loads(shape))


def columns(value: Int64[np.ndarray, "..."]) -> tuple[str, bytes]:
    """An array as two columns: shape and little-endian content."""
    return json.dumps(value.shape), value.astype("<i8").tobytes()


def check_integers(what: str, value: object) -> None:
    """Refuses a value that is not an array of int64."""
    if not isinstance(value, np.ndarray) or value.dtype != np.int64:
        kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        raise TypeError(f"{what} is {kind}; a store needs NumPy arrays of int64.")
