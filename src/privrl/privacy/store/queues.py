"""Places in queues, one for each key, and ranges of numbers that nobody else gets."""

import abc
from collections.abc import Callable, Sequence

from privrl.privacy.store.engine import AbstractEngine, T
from privrl.privacy.store.errors import QueueFullError
from privrl.privacy.store.statements import insert_rows, select_in
from privrl.privacy.store.sums import digests


class AbstractQueues(abc.ABC):
    """The part of a store that hands out numbers."""

    _engine: AbstractEngine

    def arrive_all(
        self,
        queue: str,
        keys: Sequence[str],
        *,
        at_most: int,
        contents: Callable[[Sequence[int], int], Sequence[bytes]],
    ) -> list[tuple[int, bytes]]:
        """The places of several keys in a queue: their numbers (0, 1, ... in order of arrival) and the bytes kept with
        each, all committed at once or none.

        The same key always has the same place. New places are written, in this order, and committed before they are
        returned; keys are kept as digests. Where there would be more than `at_most` places, all are refused
        (`QueueFullError`), and nothing is written.

        Arguments:
            contents: what is kept with new places, given the positions of their keys and the first number; evaluated
                inside the transaction, and again where the database gave that up.
        """

        def attempt() -> list[tuple[int, bytes]]:
            with self._engine.transaction("arrive", f"queue {queue}"):
                return self._arrived(queue, keys, at_most, contents)

        return self._engine.retried(attempt)

    def _arrived(
        self,
        queue: str,
        keys: Sequence[str],
        at_most: int,
        contents: Callable[[Sequence[int], int], Sequence[bytes]],
    ) -> list[tuple[int, bytes]]:
        digest_of = digests(self._engine.digest_key(), f"queue {queue}", keys)
        position: dict[bytes, int] = {}
        for at, digest in enumerate(digest_of):
            position.setdefault(digest, at)
        find = "SELECT digest, number FROM arrivals WHERE digest IN"
        numbers: dict[bytes, int] = dict(select_in(self._engine.execute, find, list(position)))
        written = self.places(queue, list(numbers.values())) if numbers else {}
        new = [digest for digest in position if digest not in numbers]
        if new:
            first = self.arrived(queue)
            if first + len(new) > at_most:
                raise QueueFullError(f"All {at_most} places of the queue `{queue}` are taken. Nothing was written.")
            added = dict(enumerate(contents([position[digest] for digest in new], first), first))
            rows = [(queue, number, content) for number, content in added.items()]
            insert_rows(self._engine.execute, "places", rows)
            keyed = list(zip(new, added, strict=True))
            insert_rows(self._engine.execute, "arrivals", keyed)
            numbers |= keyed
            written |= added
        return [(numbers[digest], written[numbers[digest]]) for digest in digest_of]

    def in_queue(self, queue: str, work: Callable[[], T]) -> T:
        """Calls `work` while nobody else arrives in this queue; what it writes is committed before this returns, or
        not at all."""
        with self._engine.transaction("arrive", f"queue {queue}"):
            return work()

    def remember(self, what: str, key: str, number: int) -> None:
        """Keeps a whole number of 64 bits under a key, once. Like the digest of the key, a purge removes it."""
        (digest,) = digests(self._engine.digest_key(), f"number of {what}", [key])
        self._engine.execute("INSERT INTO arrivals VALUES (?, ?)", digest, number)

    def remembered(self, what: str, key: str) -> int | None:
        """The number that `remember` has kept under a key. Sensitive."""
        (digest,) = digests(self._engine.digest_key(), f"number of {what}", [key])
        found = self._engine.execute("SELECT number FROM arrivals WHERE digest = ?", digest).fetchone()
        return None if found is None else found[0]

    def arrived(self, queue: str) -> int:
        """How many places of a queue are taken."""
        query = "SELECT COALESCE(MAX(number) + 1, 0) FROM places WHERE queue = ?"
        return self._engine.execute(query, queue).fetchone()[0]

    def places(self, queue: str, numbers: Sequence[int]) -> dict[int, bytes]:
        """What is kept with those of the places that are taken, by their numbers."""
        query = "SELECT number, content FROM places WHERE queue = ? AND number IN"
        return dict(select_in(self._engine.execute, query, numbers, queue))

    def reserve_range(self, name: str, size: int) -> range:
        """The next `size` numbers of a sequence that starts at 0: nobody else ever gets one of them."""
        if size < 1:
            raise ValueError(f"`size` is {size}; a range has at least one number.")
        with self._engine.transaction("range", f"range {name}"):
            self._engine.digest_key()
            found = self._engine.execute("SELECT next FROM ranges WHERE name = ?", name).fetchone()
            first = 0 if found is None else found[0]
            if found is None:
                self._engine.execute("INSERT INTO ranges VALUES (?, ?)", name, size)
            else:
                self._engine.execute("UPDATE ranges SET next = ? WHERE name = ?", first + size, name)
        return range(first, first + size)
