"""The default engine of a store: one SQLite file on a local disk, which several processes may use."""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence

from privrl.privacy.store import chain as _chain
from privrl.privacy.store.engine import AbstractEngine, T
from privrl.privacy.store.errors import ReadOnlyError, StoreError
from privrl.privacy.store.log import AuditLog, sync_folder
from privrl.privacy.store.sqlite_schema import APPLICATION, FORMAT, SCHEMA, expected_schema, schema_of
from privrl.privacy.store.statements import SqlValue, insert_rows, select_in

_CHECKPOINTS = "wal_autocheckpoint=4000"  # pages of 4 KB; a page that many commits change is then moved only once
_SMALLEST_PAGE = 512  # bytes, of which a file of SQLite has a whole number
_WAIT_SECONDS = 60.0  # how long to wait for a transaction of another process


class FileEngine(AbstractEngine):
    """A file of one store; without a path, a store in the memory of this object.

    One transaction writes at a time, and one release is drawn at a time. The lock for drawing is a lock of the
    operating system on a second file.
    """

    refusals = (sqlite3.IntegrityError,)
    one_machine = True

    def __init__(
        self,
        path: str | None,
        log: AuditLog | None,
        *,
        accept_missing_log: bool,
        reached: Callable[[str], None],
    ) -> None:
        super().__init__(log, reached)
        self.path = path
        if path is not None:
            self._create(path)
        recovers = path is not None and os.path.exists(path + "-wal")  # SQLite reads it when it opens the file
        self._connection = sqlite3.connect(path or ":memory:", timeout=_WAIT_SECONDS, isolation_level=None)
        try:
            self._open()
            if recovers:
                self._check_one_state()
            self.tell_log(accept_missing_log)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if path is not None and os.statvfs(os.path.dirname(path)).f_flag & os.ST_RDONLY:
                raise ReadOnlyError(
                    f"`{path}` cannot be written, because the file system is read-only. Look at the system's log for "
                    "the reason, mount it for writing, and start again."
                ) from error
            raise StoreError(f"`{path}` cannot be opened as a store of releases: {error}.") from error
        except BaseException:
            self._connection.close()
            raise

    @property
    def title(self) -> str:
        return self.path or "a store in memory"

    @property
    def lock_path(self) -> str:
        """The file whose lock a process holds while it draws."""
        return f"{self.path}.lock"

    @property
    def db(self) -> sqlite3.Connection:
        """The connection, in the process that opened it."""
        self.check_process()
        return self._connection

    def execute(self, query: str, *values: SqlValue) -> sqlite3.Cursor:
        return self.db.execute(query, values)

    def insert_contributions(self, rows: Sequence[tuple[bytes, bytes | None]]) -> set[bytes]:
        digests = [digest for digest, _ in rows]
        known = set(select_in(self.execute, "SELECT digest FROM contributions WHERE digest IN", digests))
        new = [row for row in rows if row[:1] not in known]
        insert_rows(self.execute, "contributions", new)
        return {digest for digest, _ in new}

    def retry(self, attempt: Callable[[], T]) -> T:
        return attempt()

    def erase(self) -> None:
        self.execute("VACUUM")
        self._reached("purge:rewritten")
        busy, *_ = self.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreError(
                f"Another program is reading `{self.path}`, so raw bytes are still in its write-ahead log. Close other "
                "programs that have it open, and purge again."
            )
        self._reached("purge:truncated")

    def backup(self, path: str) -> None:
        with exclusive_copy(path), contextlib.closing(sqlite3.connect(path)) as copy:
            self.db.backup(copy)  # one state of the store, also while other processes write
            copy.execute("PRAGMA journal_mode=DELETE")  # the mark of a whole copy, which has no side files

    def close(self) -> None:
        self._connection.close()

    def __del__(self) -> None:
        # A connection belongs to the process and thread that opened it; others must not close it.
        if "_connection" in vars(self) and os.getpid() == self._process:
            with contextlib.suppress(sqlite3.ProgrammingError):
                self._connection.close()

    def _begin(self, about: str | None) -> None:
        self.execute("BEGIN IMMEDIATE")

    def _lock(self, about: str | None) -> None:
        pass  # `BEGIN IMMEDIATE` already excludes other writers

    def _lock_chain(self) -> None:
        pass

    def _begin_reading(self) -> None:
        self.execute("BEGIN")

    def _rollback(self) -> None:
        if self.db.in_transaction:
            self.execute("ROLLBACK")

    # ------------------------------------------------------------------------------------------------------- opening

    def _create(self, path: str) -> None:
        """Creates the file for its owner only, before SQLite opens it; SQLite gives its side files the same
        permissions.

        An existing file is inspected by name only: closing any descriptor of it would drop this process's locks.
        """
        if not os.path.exists(path):
            self._refuse_lost_store()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            os.close(os.open(path, flags, 0o600))
        except FileNotFoundError:
            raise StoreError(f"There is no folder `{os.path.dirname(path)}`. Make it first.") from None
        except FileExistsError:
            if not os.path.isfile(path):
                raise StoreError(f"`{path}` is not a file, so it is not a store of releases.") from None
            if os.stat(path).st_nlink != 1:
                raise StoreError(
                    f"`{path}` has a second name (a hard link), under which another process would not see what this "
                    "one spends. Copy the file to a name of its own, and remove the link."
                ) from None
            for file in (path, self.lock_path, path + "-wal", path + "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(file).st_mode & 0o077:
                        if os.stat(path).st_size % _SMALLEST_PAGE:
                            raise StoreError(
                                f"`{path}` is not a store of releases or a budget. Choose another file."
                            ) from None
                        raise StoreError(
                            f"`{file}` can hold people's raw sums, and other users can read or write it. Restrict "
                            f"it first: chmod 600 {file}"
                        ) from None
        else:
            sync_folder(path)
            self._reached("create:file")

    def _open(self) -> None:
        for setting in ("synchronous=FULL", "fullfsync=ON", "secure_delete=ON", "temp_store=MEMORY", _CHECKPOINTS):
            self.execute(f"PRAGMA {setting}")
        copied = self._is_store() and self.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        if copied or self._is_empty():
            with self.owner("", drawing=False):  # two processes may create it at once
                if self.path is not None and self.execute("PRAGMA journal_mode=WAL").fetchone() != ("wal",):
                    raise StoreError(
                        f"`{self.path}` is on a disk without support for a write-ahead log. Use a local disk."
                    )
                if self._is_empty():
                    self._reached("create:log")
                    self._write_schema()
        if not self._is_store():
            raise StoreError(f"`{self.path}` is an SQLite file but not a store of releases. Choose another file.")
        written = self.execute("PRAGMA user_version").fetchone()[0]
        if written != FORMAT:
            older = "Finish that study with the version of privrl that began it; a new study needs a new file."
            raise StoreError(
                f"`{self.path}` has format {written} and this version of privrl reads format {FORMAT}. "
                + ("Update privrl." if written > FORMAT else older)
            )
        if schema_of(self.db) != expected_schema():
            raise StoreError(f"The tables or guards of `{self.path}` were changed. It can no longer be trusted.")
        with self.snapshot():
            _chain.verify_chain(self.execute, self.title)

    def _check_one_state(self) -> None:
        """Refuses a file whose sums and digests are of two states. If a copy is put beside the write-ahead log of
        another copy, SQLite writes the pages of that log into it.

        A sum changes with every contribution and the chain does not, so a mixture may have a sum without the digests of
        its contributions, whose people would be counted again. `restore_store` refuses such a log, whatever is in it.
        """
        with self.snapshot():
            (counted,) = self.execute("SELECT COALESCE(SUM(number), 0) FROM sums").fetchone()
            (kept,) = self.execute("SELECT COUNT(*) FROM contributions").fetchone()
        if counted != kept:
            raise StoreError(
                f"`{self.path}` mixes two states: its sums and the list of what was counted in them differ. It was "
                "copied while it was in use, or put beside the write-ahead log of another copy. Move it away with its "
                "side files, and restore a backup: `privrl store restore`."
            )

    def _write_schema(self) -> None:
        with self.transaction("create", None):
            for statement in SCHEMA.split(";\n"):
                self.execute(statement)
            self._first_rows()
            self.execute(f"PRAGMA application_id={APPLICATION}")
            self.execute(f"PRAGMA user_version={FORMAT}")

    def _is_store(self) -> bool:
        return self.execute("PRAGMA application_id").fetchone() == (APPLICATION,)

    def _is_empty(self) -> bool:
        return self.execute("PRAGMA application_id").fetchone() == (0,) and not schema_of(self.db)

    # ------------------------------------------------------------------------------------------------- the one lock

    @contextlib.contextmanager
    def _owner_lock(self, name: str, drawing: bool) -> Iterator[None]:
        """Takes the one lock of this store. The operating system frees it if the process dies for any reason."""
        if self.path is None:
            yield
            return
        descriptor = self._open_lock(os.O_CREAT)
        try:
            _lock(descriptor, wait=True)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, name.encode() if drawing else b"", 0)
            yield
        finally:
            _unlock(descriptor)

    def _open_lock(self, flags: int = 0) -> int:
        """Opens the lock file. Refuses a link in its place, because taking the lock empties the file."""
        try:
            return os.open(self.lock_path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise StoreError(f"`{self.lock_path}` is a symbolic link. Remove it; the store creates its own.") from error

    def at_work(self) -> set[str]:
        if self.path is None:
            return set() if self._owning is None else {self._owning}
        try:
            descriptor = self._open_lock()
        except FileNotFoundError:
            return set()
        try:
            return set() if _lock(descriptor, wait=False) else {os.pread(descriptor, 1 << 16, 0).decode()}
        finally:
            _unlock(descriptor)


@contextlib.contextmanager
def exclusive_copy(path: str) -> Iterator[None]:
    """Creates a file for its owner only, which the block fills. If the block fails, the file is removed.

    Raises:
        StoreError: if there is a file already.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise StoreError(f"There is a file `{path}` already. Choose another name.") from None
    try:
        yield
        sync_folder(os.path.abspath(path))
    except BaseException:
        for end in ("", "-wal", "-shm", ".lock"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(path + end)
        raise


def check_is_backup(path: str) -> None:
    """Refuses a file that `FileEngine.backup` did not write.

    A store in use has a write-ahead log, and its header says so. A program that copies it byte by byte may copy half of
    one state and half of another.
    """
    with open(path, "rb") as file:
        header = file.read(20)
    if header[:15] != b"SQLite format 3" or header[18:20] != b"\x01\x01":
        raise StoreError(
            f"`{path}` was not written by `privrl store backup`. If it is a store that was copied with its side files "
            f"while nothing used it, make a copy of it first: `privrl store backup {path} COPY`."
        )


def refuse_side_files(path: str) -> None:
    """Refuses a place beside which a lost store has left its write-ahead log or its journal.

    SQLite would write the pages in it into the file that is put there. Such a mixture of two states may have a sum
    without the digests of its contributions, whose people would be counted again.
    """
    for end in ("-wal", "-shm", "-journal"):
        if os.path.lexists(path + end):
            raise StoreError(
                f"`{path}{end}` is left of a lost store, and SQLite would write it into the copy. Nothing was "
                "restored. Move all files of the lost store away together."
            )


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Takes a lock of the operating system on an open file. Returns `False` if it is taken and `wait` is not set."""
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
