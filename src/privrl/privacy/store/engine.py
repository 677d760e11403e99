"""The interface of a store to its database: transactions with a chain and a log, and locks.

The protocol of a store (`sums.py`, `queues.py`, `releases.py`) is written once, in SQL that both SQLite (`file.py`) and
PostgreSQL (`postgres.py`) understand. Engines differ in how they lock: SQLite lets one transaction write at a time, and
in PostgreSQL each transaction locks what it is about (`transaction`).
"""

import abc
import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from privrl.privacy.store import chain as _chain
from privrl.privacy.store.errors import AuditLogError, BehindLogError, StoreError
from privrl.privacy.store.log import NEW_LOG, AuditLog
from privrl.privacy.store.statements import QueryRows, SqlValue

T = TypeVar("T")


class AbstractEngine(abc.ABC):
    """A database that holds one store, verified when it is opened.

    Arguments:
        log: the audit log, a file outside the store that receives its events.
        reached: called at every point of the protocol where a crash makes a difference.
    """

    refusals: tuple[type[Exception], ...]
    """The errors that the database raises if one of its guards refuses."""
    one_machine: bool
    """Whether all processes that write are on this machine and use this log."""

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

    @property
    def connections(self) -> int:
        """How often a lost connection was replaced; one that is known to be lost is replaced first."""
        return 0

    @abc.abstractmethod
    def execute(self, query: str, *values: SqlValue) -> QueryRows:
        """Runs a statement, with `?` for each value."""

    @abc.abstractmethod
    def insert_contributions(self, rows: Sequence[tuple[bytes, bytes | None]]) -> set[bytes]:
        """Inserts digests, all different, with their marks; returns the new ones."""

    @abc.abstractmethod
    def at_work(self) -> set[str]:
        """The names of the releases that are being drawn at this moment."""

    @abc.abstractmethod
    def erase(self) -> None:
        """Rewrites the tables from which raw rows were deleted, so that no bytes remain."""

    @abc.abstractmethod
    def backup(self, path: str) -> None:
        """Writes one state of the store to a new file, while other processes may write to the store."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the connection."""

    @abc.abstractmethod
    def retry(self, attempt: Callable[[], T]) -> T:
        """Calls `attempt`, which is a transaction, and again if the database aborts it in favour of another one."""

    @abc.abstractmethod
    def _begin(self, about: str | None) -> None:
        """Begins to write. No other transaction writes what this one is `about` until it ends; `None` means all."""

    @abc.abstractmethod
    def _lock_chain(self) -> None:
        """Locks the chain for the rest of the transaction, so that no other transaction adds to it."""

    @abc.abstractmethod
    def _rollback(self) -> None:
        """Rolls back the transaction, if there is one."""

    @abc.abstractmethod
    def _begin_reading(self) -> None:
        """Begins a transaction whose reads see one state."""

    @abc.abstractmethod
    def _owner_lock(self, name: str, drawing: bool) -> contextlib.AbstractContextManager[None]:
        """Takes the lock for drawing a release. The system frees it if the process dies for any reason."""

    # -------------------------------------------------------------------------------------------------- transactions

    def check_process(self) -> None:
        """Refuses a process that was forked after the store was opened."""
        if os.getpid() != self._process:
            raise StoreError("This store was opened before the process was forked. Open it again in the child.")

    @contextlib.contextmanager
    def transaction(self, what: str, about: str | None) -> Iterator[None]:
        """A transaction, which writes everything or nothing.

        The block is left after the commit and, if an event was chained, after the log has received it. Inside another
        transaction it is a part of it, which can fail alone and is committed with it. Several parts of one transaction
        must be about names in sorted order, so that transactions never wait for each other in a circle.

        Arguments:
            what: the name of the point in the protocol.
            about: what no other transaction may write meanwhile; `None` for the whole store.
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
        """Inside this block, all reads see one state of the store."""
        self._begin_reading()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._rollback()

    # ------------------------------------------------------------------------------------------------- chain and log

    def chain(self, kind: str, subject: str = "") -> None:
        """Chains the event whose rows were just written, in the transaction that wrote them."""
        self._lock_chain()
        if self._log is not None and kind != "file":
            self._lock("the log")
            self._tell()
        link = _chain.next_link(self.execute, _chain.last_link(self.execute), kind, subject)
        self.execute("INSERT INTO chain VALUES (?, ?, ?, ?)", link.number, kind, subject, link.hash)
        self._moved = True

    def tell_log(self, accept_missing: bool = False) -> None:
        """Appends to the log all events that it lacks. All events of the log must be in the chain.

        This is also done before the effect of another process's event is returned, because that process may have died
        before it wrote the log. One process writes at a time, so that the lines stay in order.
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
        """Does the work of `tell_log`, under the lock of the log."""
        log = self._log
        assert log is not None
        known = log.read_known(lambda number: _chain.event(self.execute, number), self.title)
        untold = _chain.events_after(self.execute, -1 if known is None else known)
        if not untold:
            return
        if known is None and untold[-1].number > 0 and not accept_missing:
            raise StoreError(
                f"The {log.title} is missing, and `{self.title}` has {untold[-1].number + 1} events, so privrl cannot "
                f"tell whether it is an older copy. Restore the log. If you know that this store is the newest copy, "
                f"accept it once: `{NEW_LOG}`, or `accept_missing_log=True`."
            )
        if known is not None and len(untold) > 1 and self.one_machine:
            raise AuditLogError(
                f"The {log.title} lacks {len(untold)} events of `{self.title}`. A crash loses at most one, so the end "
                "of the log was cut off, or a program used the store without it. Restore it. If you know that the "
                f"store is the newest copy, put this log aside and begin another: `{NEW_LOG}`."
            )
        log.append(untold, self._reached)

    def _refuse_lost_store(self) -> None:
        """Refuses to create a store if its log shows that there was one."""
        if self._log is not None and os.path.exists(self._log.path):
            raise BehindLogError(
                f"There is no store at `{self.title}`, but its {self._log.title} exists, so there was one. Restore "
                "the store, or name a new log for a new store."
            )

    def _first_rows(self) -> None:
        """Writes the first rows of a new store, in the transaction that creates its tables."""
        key = os.urandom(32)
        self.execute("INSERT INTO digest_key VALUES (1, ?, ?)", key, _chain.fingerprint_of(key))
        self.chain("file")
        self._moved = False  # the log receives this event once the store is open

    # ------------------------------------------------------------------------------------------------------ small reads

    def digest_key(self) -> bytes:
        """The secret key of all digests. Refused after a purge."""
        (content,) = self.execute("SELECT content FROM digest_key").fetchone()
        if content is None:
            raise StoreError(
                f"`{self.title}` was purged: it has no raw sums and accepts nothing new. Stored releases can still be "
                "read. Use a new store for a new study."
            )
        return content

    def limits(self) -> dict[str, float]:
        """The largest sum of charges of each pool."""
        return dict(self.execute("SELECT pool, allowed FROM pools ORDER BY pool").fetchall())

    @contextlib.contextmanager
    def owner(self, name: str, *, drawing: bool = True) -> Iterator[None]:
        """Inside this block, no other process draws the release.

        So if the release is reserved and has no value, the process that reserved it is dead, or it is this one.
        """
        if self._owning is not None:
            raise StoreError(
                "`draw` called a method of the store that waits for this draw to end. Call it before drawing."
            )
        with self._owner_lock(name, drawing):
            self._owning = name
            try:
                self._reached("locked")
                yield
            finally:
                self._owning = None


def check_amount(what: str, amount: float) -> None:
    """Refuses a charge or a limit that is not a finite number of at least 0."""
    if not (0 <= amount < math.inf):
        raise ValueError(f"`{what}` is {amount}; use a finite number that is not negative.")


def now() -> str:
    """The time in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
