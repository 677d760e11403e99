"""Sums of what people contribute: each key counts once, and a sealed one takes nothing more.

Arrays are kept as two columns, their shape and their content (`columns`, `integers`); releases keep theirs likewise.
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
    """The part of a store that adds up."""

    _engine: AbstractEngine

    def contribute(
        self,
        name: str,
        keys: Sequence[str],
        units: Int64[np.ndarray, "B *shape"],
        *,
        scope: str | None = None,
        at_most: int | None = None,
        marks: Sequence[bytes] | None = None,
        closed: Callable[[], bool] | None = None,
    ) -> Bool[np.ndarray, " B"]:
        """Adds rows to a running sum, each key at most once; says which were new, after the commit.

        A sum that leaves int64, one that would get more than `at_most` contributions (`SumFullError`), or one that
        is sealed, or for which `closed()` is true inside the transaction (`SumSealedError`), is refused and nothing
        changes. A key counts once in all sums that share a `scope`, by default once in each. With `marks`, a key that
        comes again must come with the same mark (`ConflictError`); without, what a known key brings is not looked at.
        Keys and marks are kept as digests under a random key of this file, so the file does not name people. The sum is
        rewritten with every batch. Which keys were new is sensitive, unless contributions are private by themselves.
        """
        check_integers("units", units)
        if units.ndim == 0 or len(units) != len(keys):
            raise ValueError(f"`units` has shape {units.shape} for {len(keys)} keys; pass one row for each key.")

        def attempt() -> Bool[np.ndarray, " B"]:
            return self._contributed(name, keys, units, scope, at_most, marks, closed)

        return self._engine.retried(attempt)

    def _contributed(
        self,
        name: str,
        keys: Sequence[str],
        units: Int64[np.ndarray, "B *shape"],
        scope: str | None,
        at_most: int | None,
        marks: Sequence[bytes] | None,
        closed: Callable[[], bool] | None,
    ) -> Bool[np.ndarray, " B"]:
        where = f"sum {name}" if scope is None else f"scope {scope}"
        with self._engine.transaction("contribute", f"sum {name}"):
            if self.sealed(name) or (closed is not None and closed()):
                raise SumSealedError(f"The sum `{name}` is sealed and takes no contributions any more.")
            digest_key = self._engine.digest_key()
            kept_marks = [None] * len(keys) if marks is None else digests(digest_key, f"mark of {where}", marks)
            count, total = 0, np.zeros(units.shape[1:], np.int64)
            held = self._engine.execute("SELECT number, shape, total FROM sums WHERE name = ?", name).fetchone()
            if held is not None:
                count, total = held[0], integers(held[1], held[2])
            if total.shape != units.shape[1:]:
                raise ValueError(
                    f"Rows of `units` have shape {units.shape[1:]} and the sum `{name}` has {total.shape}."
                )
            new = self._inserted(digests(digest_key, where, keys), kept_marks)
            if at_most is not None and count + int(new.sum()) > at_most:
                raise SumFullError(f"The sum `{name}` takes {at_most} contributions and would get more.")
            if new.any():
                total = exact_sum(np.concatenate([total[None], units[new]]))
            if held is not None and marks is None and not new.any():
                # Without marks it is secret who is new: there is something to commit either way, which takes its time.
                # (Written back below: what ends as it was is written all the same.)
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

    def _inserted(self, keys: Sequence[bytes], marks: Sequence[bytes | None]) -> Bool[np.ndarray, " B"]:
        """Which keys are new; they are kept now. Of a key that comes twice the first one is.

        In the order of their digests: transactions that wait for each other's keys never wait in a circle.
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
                raise ConflictError("Something else was already contributed under this key. Nothing was added.")
        return new

    def contributed(self, key: str, *, scope: str, mark: bytes) -> bool:
        """Whether a key was contributed in a scope, with this mark (`ConflictError` if with another). Sensitive."""
        digest_key = self._engine.digest_key()
        (digest,) = digests(digest_key, f"scope {scope}", [key])
        found = self._engine.execute("SELECT mark FROM contributions WHERE digest = ?", digest).fetchone()
        if found is not None and found != tuple(digests(digest_key, f"mark of scope {scope}", [mark])):
            raise ConflictError("Something else was already contributed under this key.")
        return found is not None

    def total(self, name: str) -> Int64[np.ndarray, "..."] | None:
        """The raw sum, or None before its first contribution. Sensitive."""
        self._engine.digest_key()
        found = self._engine.execute("SELECT shape, total FROM sums WHERE name = ?", name).fetchone()
        return None if found is None else integers(*found)

    def count(self, name: str) -> int:
        """How many contributions a sum has. Sensitive, unless contributions are private by themselves."""
        self._engine.digest_key()
        found = self._engine.execute("SELECT number FROM sums WHERE name = ?", name).fetchone()
        return 0 if found is None else found[0]

    def seal(self, name: str) -> None:
        """Ends a sum, which may be empty: nothing is added to it from now on, by any process."""
        with self._engine.transaction("seal", f"sum {name}"):
            if not self.sealed(name):
                self._engine.digest_key()
                self._engine.execute("INSERT INTO seals VALUES (?, ?)", name, now())
                self._engine.chain("seal", name)

    def sealed(self, name: str) -> bool:
        """Whether a sum takes no contributions any more."""
        return self._engine.execute("SELECT 1 FROM seals WHERE name = ?", name).fetchone() is not None


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
