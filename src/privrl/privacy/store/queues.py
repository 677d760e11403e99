"""Places in queues, one for each key, and ranges of numbers that nobody else gets."""

import abc
from collections.abc import Callable, Sequence

from privrl.privacy.store.engine import AbstractEngine, T
from privrl.privacy.store.errors import QueueFullError
from privrl.privacy.store.sums import digests


class AbstractQueues(abc.ABC):
    """The part of a store that hands out numbers."""

    _engine: AbstractEngine

    def arrive(self, queue: str, key: str, *, at_most: int, content: Callable[[int], bytes]) -> tuple[int, bytes]:
        """The place of a key in a queue: its number (0, 1, ... in order of arrival) and the bytes kept with it.

        The same key always has the same place. A new place is written, with `content(number)` evaluated inside the
        transaction, and committed before it is returned; the key is kept as a digest. An unknown key is refused when
        `at_most` places are taken (`QueueFullError`), and nothing is written.
        """
        (place,) = self.arrive_all(queue, [key], at_most=at_most, contents=lambda new, first: [content(first)])
        return place

    def arrive_all(
        self,
        queue: str,
        keys: Sequence[str],
        *,
        at_most: int,
        contents: Callable[[Sequence[int], int], Sequence[bytes]],
    ) -> list[tuple[int, bytes]]:
        """The places of several keys, those that are new in this order, all committed at once or none.

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
        once = list(dict.fromkeys(digest_of))
        find = f"SELECT digest, number FROM arrivals WHERE digest IN ({', '.join('?' * len(once))})"
        numbers = {bytes(digest): number for digest, number in self._engine.execute(find, *once)}
        new = [digest for digest in once if digest not in numbers]
        written: dict[int, bytes] = {}
        if new:
            first = self.arrived(queue)
            if first + len(new) > at_most:
                raise QueueFullError(f"All {at_most} places of the queue `{queue}` are taken. Nothing was written.")
            written = dict(enumerate(contents([digest_of.index(digest) for digest in new], first), first))
            numbers |= dict(zip(new, written, strict=True))
            rows = [(queue, number, content) for number, content in written.items()]
            self._engine.execute_many("INSERT INTO places VALUES (?, ?, ?)", rows)
            rows_of_keys = [(digest, numbers[digest]) for digest in new]
            self._engine.execute_many("INSERT INTO arrivals VALUES (?, ?)", rows_of_keys)
        for number in numbers.values():
            if number not in written:
                kept = self.place(queue, number)
                assert kept is not None
                written[number] = kept
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

    def place(self, queue: str, number: int) -> bytes | None:
        """What is kept with a place, or None if it is free."""
        query = "SELECT content FROM places WHERE queue = ? AND number = ?"
        found = self._engine.execute(query, queue, number).fetchone()
        return None if found is None else found[0]

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
