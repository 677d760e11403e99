"""One SQLite file as several processes use it: opening, transactions with a chain, and the lock of who draws."""

import contextlib
import math
import os
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from privrl.privacy.store import chain as _store_chain
from privrl.privacy.store.chain import Head, Link
from privrl.privacy.store.errors import BehindHeadError, StoreError
from privrl.privacy.store.schema import APPLICATION, FORMAT, SCHEMA, expected_schema, schema_of

_WAIT = 60.0  # seconds for another process to finish its transaction


class StoreFile:
    """A file of one store, verified when it is opened; without a path, a store in memory that nobody else sees.

    `reached` is called at every point of the protocol where a crash makes a difference.
    """

    def __init__(
        self, path: str | None, head: Head | None, *, accept_missing_head: bool, reached: Callable[[str], None]
    ) -> None:
        self.path = path
        self._head, self._reached = head, reached
        self._owning: str | None = None
        self._moved = False
        self._process = os.getpid()
        if path is not None:
            self._create(path)
        self._connection = sqlite3.connect(path or ":memory:", timeout=_WAIT, isolation_level=None)
        try:
            self._open()
            if head is not None:
                self._move_head(accept_missing_head)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise StoreError(f"`{path}` cannot be opened as a store of releases: {error}.") from error
        except BaseException:
            self._connection.close()
            raise

    @property
    def lock_path(self) -> str:
        """The file whose lock says who draws."""
        return f"{self.path}.lock"

    @property
    def db(self) -> sqlite3.Connection:
        """The connection, in the process that opened it."""
        if os.getpid() != self._process:
            raise StoreError("This store was opened before the process was forked; open it again in the child.")
        return self._connection

    def select(self, query: str, *values: Any) -> sqlite3.Cursor:
        """The rows of a query."""
        return self.db.execute(query, values)

    def digest_key(self) -> bytes:
        """The secret key of all digests; refused once it was purged."""
        (content,) = self.select("SELECT content FROM digest_key").fetchone()
        if content is None:
            raise StoreError(
                f"`{self.path}` was purged: its raw sums are gone and it accepts nothing new. Stored releases can "
                "still be read; use a new file for a new study."
            )
        return content

    def move_head(self) -> None:
        """Brings the head up to date before somebody else's event is handed on: its owner may have died before it."""
        if self._head is not None:
            self._move_head()

    def limits(self) -> dict[str, float]:
        """The largest sum of charges of each pool."""
        return dict(self.select("SELECT pool, allowed FROM pools ORDER BY pool").fetchall())

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def __del__(self) -> None:
        # A connection belongs to the process and thread that opened it; elsewhere there is nothing to do.
        if "_connection" in vars(self) and os.getpid() == self._process:
            with contextlib.suppress(sqlite3.ProgrammingError):
                self._connection.close()

    # -------------------------------------------------------------------------------------------------- transactions

    @contextlib.contextmanager
    def transaction(self, what: str) -> Iterator[None]:
        """Everything or nothing; left after the commit, and after the head was moved if an event was chained."""
        self._moved = False
        self.db.execute("BEGIN IMMEDIATE")
        try:
            self._reached(f"{what}:begun")
            yield
            self._reached(f"{what}:written")
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise
        self._reached(f"{what}:committed")
        if self._moved and self._head is not None:
            self._move_head()
            self._reached(f"{what}:headed")

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Reads that see one state of the file."""
        self.db.execute("BEGIN")
        try:
            yield
        finally:
            self.db.execute("COMMIT")

    def chain(self, kind: str, subject: str = "") -> None:
        """Chains the event whose rows were just written, in the transaction that wrote them."""
        link = _store_chain.following(self.select, _store_chain.last_link(self.select), kind, subject)
        self.db.execute("INSERT INTO chain VALUES (?, ?, ?, ?)", (link.number, kind, subject, link.hash))
        self._moved = True

    def _move_head(self, accept_missing: bool = False) -> None:
        """Moves the head to the end of the chain, which must hold what the head says.

        The write lock of the file orders processes, so that a head never goes back.
        """
        assert self._head is not None
        self.db.execute("BEGIN IMMEDIATE")
        try:
            kept, last = self._head.read(), _store_chain.last_link(self.select)
            if kept is None and last.number > 0 and not accept_missing:
                raise StoreError(
                    f"The head `{self._head.path}` is missing and `{self.path}` has {last.number + 1} events, so "
                    "nobody can tell whether it is an older copy. Bring the head back. If you know that this file is "
                    "the newest one, accept it once: `privrl store new-head STORE HEAD`, or `accept_missing_head=True`."
                )
            if kept is not None and kept != self._link(kept.number):
                raise BehindHeadError(
                    f"`{self.path}` is behind its head `{self._head.path}`: event {kept.number} of the head is not in "
                    f"the file, which has {last.number + 1}. An older copy was put back, rows were removed or "
                    "rewritten, or the head belongs to another store. Use the newest copy; what this one has spent is "
                    "unknown."
                )
            if kept != last:
                self._head.write(last, self._reached)
        finally:
            self.db.execute("ROLLBACK")

    def _link(self, number: int) -> Link | None:
        found = self.select("SELECT number, hash FROM chain WHERE number = ?", number).fetchone()
        return None if found is None else Link(*found)

    # ------------------------------------------------------------------------------------------------------- opening

    def _create(self, path: str) -> None:
        """Makes the file owner-only before SQLite sees it; SQLite gives its side files the same permissions.

        An existing file is looked at by name only: closing any descriptor of it would drop this process's locks.
        """
        if self._head is not None and not os.path.exists(path) and self._head.read() is not None:
            raise BehindHeadError(
                f"There is no file `{path}`, and its head `{self._head.path}` says that there was one. Bring it back, "
                "or name a new head for a new store."
            )
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            os.close(os.open(path, flags, 0o600))
        except FileExistsError:
            if not os.path.isfile(path):
                raise StoreError(f"`{path}` is not a file, so it is not a store of releases.") from None
            if os.stat(path).st_nlink != 1:
                raise StoreError(
                    f"`{path}` has a second name (a hard link), under which another process would not see what this "
                    "one spends. Make a copy of the file under one name of its own and remove the link."
                ) from None
            for file in (path, self.lock_path, path + "-wal", path + "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(file).st_mode & 0o077:
                        raise StoreError(
                            f"`{file}` can be read or written by others and holds people's raw sums. "
                            f"Close it first: chmod 600 {file}"
                        ) from None
        else:
            _store_chain.sync_folder(path)
            self._reached("create:file")

    def _open(self) -> None:
        for setting in ("synchronous=FULL", "fullfsync=ON", "secure_delete=ON", "temp_store=MEMORY"):
            self.db.execute(f"PRAGMA {setting}")
        if self._is_empty():
            with self.owner(""):  # two processes may create it at once
                if self._is_empty():
                    if self.path is not None and self.select("PRAGMA journal_mode=WAL").fetchone() != ("wal",):
                        raise StoreError(f"`{self.path}` cannot have a write-ahead log there; use a local disk.")
                    self._reached("create:log")
                    self._write_schema()
        if self.select("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise StoreError(f"`{self.path}` is an SQLite file but not a store of releases. Choose another file.")
        written = self.select("PRAGMA user_version").fetchone()[0]
        if written != FORMAT:
            older = "Finish that study with the version of privrl that began it; a new study needs a new file."
            raise StoreError(
                f"`{self.path}` has format {written} and this version of privrl reads format {FORMAT}. "
                + ("Update privrl." if written > FORMAT else older)
            )
        if schema_of(self.db) != expected_schema():
            raise StoreError(f"The tables or guards of `{self.path}` were changed; it cannot be trusted any more.")
        with self.snapshot():
            _store_chain.verified(self.select, str(self.path))

    def _write_schema(self) -> None:
        with self.transaction("create"):
            for statement in SCHEMA.split(";\n"):
                self.db.execute(statement)
            key = os.urandom(32)
            self.db.execute("INSERT INTO digest_key VALUES (1, ?, ?)", (key, _store_chain.fingerprint_of(key)))
            self.chain("file")
            self._moved = False  # the head is looked at when the file is open
            self.db.execute(f"PRAGMA application_id={APPLICATION}")
            self.db.execute(f"PRAGMA user_version={FORMAT}")

    def _is_empty(self) -> bool:
        return self.select("PRAGMA application_id").fetchone() == (0,) and not schema_of(self.db)

    # ------------------------------------------------------------------------------------------------- the one lock

    @contextlib.contextmanager
    def owner(self, name: str) -> Iterator[None]:
        """Waits for the one lock of this file; the operating system frees it when its owner dies, however it dies.

        Whoever holds it knows that a release without a value has no living owner other than itself.
        """
        if self._owning is not None:
            raise StoreError("`draw` asked the store for something that waits for this very draw. Ask before drawing.")
        with contextlib.ExitStack() as stack:
            if self.path is not None:
                descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                stack.callback(_unlock, descriptor)
                _lock(descriptor, wait=True)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, name.encode(), 0)
            self._owning = name
            stack.callback(setattr, self, "_owning", None)
            self._reached("locked")
            yield

    def at_work(self) -> str | None:
        """The name that a living owner is drawing at this moment."""
        if self.path is None:
            return self._owning
        try:
            descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return None if _lock(descriptor, wait=False) else os.pread(descriptor, 1 << 16, 0).decode()
        finally:
            _unlock(descriptor)


def _lock(descriptor: int, *, wait: bool) -> bool:
    """An advisory lock of the operating system on an open file; False if somebody else has it and we do not wait."""
    import fcntl  # exists on POSIX systems only; the rest of privrl does not need it

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _unlock(descriptor: int) -> None:
    """Frees the lock explicitly, because a child that `draw` forked may still hold a copy of the open file."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def check_amount(what: str, amount: float) -> None:
    """Refuses what cannot be a charge or a limit."""
    if not (0 <= amount < math.inf):
        raise ValueError(f"`{what}` is {amount}; use a finite number that is not negative.")


def now() -> str:
    """The time in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
