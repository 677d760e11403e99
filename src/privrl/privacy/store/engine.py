"""What a store needs from a database: transactions with a chain and a log, locks, and who draws at this moment.

The protocol of a store (`sums.py`, `queues.py`, `releases.py`) is written once, in SQL that SQLite (`file.py`) and
PostgreSQL (`postgres.py`) read alike; an engine runs it. Engines differ in how they lock: SQLite lets one transaction
write at a time, and in PostgreSQL each names what it is about (`transaction`).
"""

import abc
import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from privrl.privacy.store import chain as _chain
from privrl.privacy.store.errors import AuditLogError, BehindLogError, StoreError
from privrl.privacy.store.log import NEW_LOG, AuditLog

T = TypeVar("T")


class AbstractEngine(abc.ABC):
    """A database that holds one store, verified when it is opened.

    Arguments:
        log: the file outside the store that is told of its events.
        reached: is called at every point of the protocol where a crash makes a difference.
    """

    refusals: tuple[type[Exception], ...]
    """What the database raises when one of its guards refuses."""
    one_machine: bool
    """Whether everybody who writes is on this machine, with this log."""

    def __init__(self, log: AuditLog | None, reached: Callable[[str], None]) -> None:
        self._log, self._reached = log, reached
        self._owning: str | None = None
        self._depth = 0
        self._moved = False
        self._process = os.getpid()

    # ------------------------------------------------------------------------------------------- what engines provide

    @property
    @abc.abstractmethod
    def title(self) -> str:
        """The file or address, without a password, for messages."""

    @abc.abstractmethod
    def execute(self, query: str, *values: Any) -> Any:
        """Runs a statement, with `?` for values; a cursor over its rows."""

    @abc.abstractmethod
    def insert_contributions(self, rows: Sequence[tuple[bytes, bytes | None]]) -> set[bytes]:
        """Keeps digests, all different, with their marks; those that are new."""

    @abc.abstractmethod
    def at_work(self) -> set[str]:
        """The names that living owners are drawing at this moment."""

    @abc.abstractmethod
    def erase(self) -> None:
        """Rewrites the tables of raw rows that were deleted, so that their bytes are gone."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the connection."""

    @abc.abstractmethod
    def retried(self, attempt: Callable[[], T]) -> T:
        """The result of an attempt that is a transaction; made again where the database gave it up for another's."""

    @abc.abstractmethod
    def _begin(self, about: str | None) -> None:
        """Begins to write. Nobody else writes what this one is `about` until it ends; `None`: nobody writes at all."""

    @abc.abstractmethod
    def _lock_chain(self) -> None:
        """Waits until nobody else is adding to the chain; for the rest of the transaction."""

    @abc.abstractmethod
    def _rollback(self) -> None:
        """Gives up the transaction, if there is one."""

    @abc.abstractmethod
    def _begin_reading(self) -> None:
        """Begins a transaction whose reads see one state."""

    @abc.abstractmethod
    def _owner_lock(self, name: str, drawing: bool) -> contextlib.AbstractContextManager[None]:
        """Waits for the lock of who draws a release; it is freed when its owner dies, however it dies."""

    # -------------------------------------------------------------------------------------------------- transactions

    def check_process(self) -> None:
        """Refuses a process that was forked after the store was opened."""
        if os.getpid() != self._process:
            raise StoreError("This store was opened before the process was forked; open it again in the child.")

    @contextlib.contextmanager
    def transaction(self, what: str, about: str | None) -> Iterator[None]:
        """Everything or nothing; left after the commit, and after the log was told if an event was chained.

        Inside another one it is a part of it, which can fail alone, and is committed with it. Several parts of one
        transaction must be about names in sorted order.
        """
        if self._depth:
            with self._part(what, about):
                yield
            return
        self._moved = False
        self._begin(about)
        self._depth = 1
        try:
            self._reached(f"{what}:begun")
            yield
            self._reached(f"{what}:written")
            self.execute("COMMIT")
        except BaseException:
            self._rollback()
            raise
        finally:
            self._depth = 0
        self._reached(f"{what}:committed")
        if self._moved and self._log is not None:
            self.tell_log()
            self._reached(f"{what}:told")

    @contextlib.contextmanager
    def _part(self, what: str, about: str | None) -> Iterator[None]:
        point = f"part_{self._depth}"
        self.execute(f"SAVEPOINT {point}")
        self._depth += 1
        try:
            self._lock(about)
            self._reached(f"{what}:begun")
            yield
            self._reached(f"{what}:written")
        except BaseException:
            with contextlib.suppress(StoreError):
                self.execute(f"ROLLBACK TO {point}")
            raise
        finally:
            self._depth -= 1
        self.execute(f"RELEASE {point}")

    @abc.abstractmethod
    def _lock(self, about: str | None) -> None:
        """Locks what a part of a transaction is about."""

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Reads that see one state of the store."""
        self._begin_reading()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._rollback()

    # --------------------------------------------------------------------------------------------- --- chain and log

    def chain(self, kind: str, subject: str = "") -> None:
        """Chains the event whose rows were just written, in the transaction that wrote them."""
        self._lock_chain()
        if self._log is not None and kind != "file":
            self._lock("the log")
            self._tell()
        link = _chain.following(self.execute, _chain.last_link(self.execute), kind, subject)
        self.execute("INSERT INTO chain VALUES (?, ?, ?, ?)", link.number, kind, subject, link.hash)
        self._moved = True

    def tell_log(self, accept_missing: bool = False) -> None:
        """Tells the log of all events that it does not know; all that it knows must be in the chain.

        Before somebody else's event is handed on too: its owner may have died before it. One process at a time, so
        that a log never goes back.
        """
        if self._log is None:
            return
        self._begin("the log")
        self._depth += 1
        try:
            self._tell(accept_missing)
        finally:
            self._depth -= 1
            self._rollback()

    def _tell(self, accept_missing: bool = False) -> None:
        """The same under the lock of the log."""
        log = self._log
        assert log is not None
        known = log.known(lambda number: _chain.event(self.execute, number), self.title)
        untold = _chain.events_after(self.execute, -1 if known is None else known)
        if not untold:
            return
        if known is None and untold[-1].number > 0 and not accept_missing:
            raise StoreError(
                f"The {log.title} is missing and `{self.title}` has {untold[-1].number + 1} events, so nobody can "
                f"tell whether it is an older copy. Bring the log back. If you know that this store is the "
                f"newest one, accept it once: `{NEW_LOG}`, or `accept_missing_log=True`."
            )
        if known is not None and len(untold) > 1 and self.one_machine:
            raise AuditLogError(
                f"The {log.title} lacks {len(untold)} events of `{self.title}`, and a crash leaves out at most "
                "one: its end was cut off, or a program worked on the store without it. Bring it back. If you know "
                f"that the store is the newest one, put this log aside and begin another: `{NEW_LOG}`."
            )
        log.tell(untold, self._reached)

    def _refuse_lost_store(self) -> None:
        """Where there is no store yet: refuses if its log says that there was one."""
        if self._log is not None and os.path.exists(self._log.path):
            raise BehindLogError(
                f"There is no store at `{self.title}`, and its {self._log.title} says that there was one. Bring "
                f"it back, or name a new log for a new store."
            )

    def _first_rows(self) -> None:
        """What a new store begins with, in the transaction that makes its tables."""
        key = os.urandom(32)
        self.execute("INSERT INTO digest_key VALUES (1, ?, ?)", key, _chain.fingerprint_of(key))
        self.chain("file")
        self._moved = False  # the log is told when the store is open

    # ------------------------------------------------------------------------------------------------------ small reads

    def digest_key(self) -> bytes:
        """The secret key of all digests; refused once it was purged."""
        (content,) = self.execute("SELECT content FROM digest_key").fetchone()
        if content is None:
            raise StoreError(
                f"`{self.title}` was purged: its raw sums are gone and it accepts nothing new. Stored releases can "
                "still be read; use a new store for a new study."
            )
        return content

    def limits(self) -> dict[str, float]:
        """The largest sum of charges of each pool."""
        return dict(self.execute("SELECT pool, allowed FROM pools ORDER BY pool").fetchall())

    @contextlib.contextmanager
    def owner(self, name: str, *, drawing: bool = True) -> Iterator[None]:
        """Waits until nobody else draws the release, and keeps others waiting.

        Whoever holds it knows that this release, if it has no value, has no living owner other than itself.
        """
        if self._owning is not None:
            raise StoreError("`draw` asked the store for something that waits for this very draw. Ask before drawing.")
        with self._owner_lock(name, drawing):
            self._owning = name
            try:
                self._reached("locked")
                yield
            finally:
                self._owning = None


def check_amount(what: str, amount: float) -> None:
    """Refuses what cannot be a charge or a limit."""
    if not (0 <= amount < math.inf):
        raise ValueError(f"`{what}` is {amount}; use a finite number that is not negative.")


def now() -> str:
    """The time in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
