"""Places in queues, one for each key, and ranges of numbers, each assigned once."""

import abc
from collections.abc import Callable, Sequence

from privrl.privacy.store.engine import AbstractEngine, T
from privrl.privacy.store.errors import QueueFullError
from privrl.privacy.store.statements import insert_rows, select_in
from privrl.privacy.store.sums import digests


class AbstractQueues(abc.ABC):
    """The part of a store that assigns numbers."""

    _engine: AbstractEngine

    def arrive_all(
        self,
        queue: str,
        keys: Sequence[str],
        *,
        at_most: int,
        contents: Callable[[Sequence[int], int], Sequence[bytes]],
    ) -> list[tuple[int, bytes]]:
        """Assigns places in a queue to several keys. All new places are committed together, or none.

        The same key always has the same place. New places are written in the order of `keys`, and committed before
        they are returned. Keys are stored as digests.

        Arguments:
            at_most: the largest number of places in the queue.
            contents: the bytes to store with new places, given the positions of their keys and the first new number.
                Called inside the transaction, and again if the database aborts it.

        Returns:
            For each key the number of its place (0, 1, ... in order of arrival) and the bytes stored with it.

        Raises:
            QueueFullError: if there would be more than `at_most` places. Nothing is written.
        """

        def attempt() -> list[tuple[int, bytes]]:
            with self._engine.transaction("arrive", f"queue {queue}"):
                return self._arrive(queue, keys, at_most, contents)

        return self._engine.retry(attempt)

    def _arrive(
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
            first = self.count_places(queue)
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
        """Calls `work` while no other process can add to this queue. What it writes is committed before this returns,
        or not at all."""
        with self._engine.transaction("arrive", f"queue {queue}"):
            return work()

    def remember(self, what: str, key: str, number: int) -> None:
        """Stores a whole number of 64 bits under a key, once. A purge removes it together with the digest of the
        key.
        """
        (digest,) = digests(self._engine.digest_key(), f"number of {what}", [key])
        self._engine.execute("INSERT INTO arrivals VALUES (?, ?)", digest, number)

    def recall(self, what: str, key: str) -> int | None:
        """The number that `remember` stored under a key, or `None`. Sensitive."""
        (digest,) = digests(self._engine.digest_key(), f"number of {what}", [key])
        found = self._engine.execute("SELECT number FROM arrivals WHERE digest = ?", digest).fetchone()
        return None if found is None else found[0]

    def count_places(self, queue: str) -> int:
        """The number of places of a queue that are taken."""
        query = "SELECT COALESCE(MAX(number) + 1, 0) FROM places WHERE queue = ?"
        return self._engine.execute(query, queue).fetchone()[0]

    def places(self, queue: str, numbers: Sequence[int]) -> dict[int, bytes]:
        """The bytes stored with places, by number; places that are not taken are left out."""
        query = "SELECT number, content FROM places WHERE queue = ? AND number IN"
        return dict(select_in(self._engine.execute, query, numbers, queue))

    def reserve_range(self, name: str, size: int) -> range:
        """Reserves the next `size` numbers of a sequence that starts at 0. No other process ever receives one of
        them.
        """
        if size < 1:
            raise ValueError(f"`size` is {size}; it must be at least 1.")
        with self._engine.transaction("range", f"range {name}"):
            self._engine.digest_key()
            found = self._engine.execute("SELECT next FROM ranges WHERE name = ?", name).fetchone()
            first = 0 if found is None else found[0]
            if found is None:
                self._engine.execute("INSERT INTO ranges VALUES (?, ?)", name, size)
            else:
                self._engine.execute("UPDATE ranges SET next = ? WHERE name = ?", first + size, name)
        return range(first, first + size)
