"""A store that counts contributions once and draws noise once, across crashes, and never exceeds its budget.

A `ReleaseStore` is one SQLite file, or the tables of one schema of a PostgreSQL server. People's contributions are
integers. They are added to a running sum together with a digest of their idempotency key, in one transaction, and
acknowledged after it. A release has a name and passes these steps:

    reserve the budget and write the noise distribution -> draw the noisy integers -> persist them -> return them

So no value is returned before it is on disk, and reading again returns the same value. A process that dies between the
first step and the third leaves a reservation that stays charged. The release is then *burnt*, or drawn again on
request.

**Formal guarantee.** At every moment, no matter which processes were killed and where: each name has at most one value,
drawn from the distribution that is stored with it; the charges of a pool, burnt ones included, add up to at most its
limit (up to 1e-12 of it, for rounding); every acknowledged contribution is in its sum exactly once; nothing is added to
a sealed sum; a place in a queue belongs to one key for ever. Triggers inside the file enforce this against every
program that writes to it, except one that removes the triggers. A file without them is refused; a file in which they
were removed and restored is refused if a row of what was declared, spent, released or sealed does not match the chain
(`chain.py`, which states what chain and log detect and what they do not). That a commit also survives power loss is
promised by SQLite (write-ahead log, `synchronous=FULL`) or PostgreSQL (`fsync`, `synchronous_commit`) and the disk;
privrl relies on it and does not test it. An older copy lacks what was spent since; it is refused only if there is a
`log` outside.

Raw sums and the numbers of people in them are sensitive: only the owner can read the files, and `purge` removes raw
data once a study has ended.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping

from privrl.privacy.canonical_ids import keyed_hash
from privrl.privacy.store import view as _store_view
from privrl.privacy.store.access_keys import AbstractAccessKeys
from privrl.privacy.store.engine import AbstractEngine, T, check_amount, now
from privrl.privacy.store.errors import StoreError, StudyMismatchError
from privrl.privacy.store.file import FileEngine, check_is_backup, exclusive_copy, refuse_side_files
from privrl.privacy.store.log import AuditLog
from privrl.privacy.store.queues import AbstractQueues
from privrl.privacy.store.releases import AbstractReleases, AfterCrash
from privrl.privacy.store.sums import AbstractSums

ADDRESSES = ("postgresql://", "postgres://")
"""How the address of a store begins that is not a file."""


class ReleaseStore(AbstractSums, AbstractQueues, AbstractReleases, AbstractAccessKeys):
    """Durable contributions and releases with a hard budget, in one SQLite file on a local disk, or in PostgreSQL.

    >>> with privrl.ReleaseStore("study.db") as store:
    ...     opened = store.fact("opened", lambda: b"2026-01-31")
    >>> with privrl.ReleaseStore("study.db") as store:  # after a restart
    ...     store.fact("opened", lambda: b"another day") == opened
    True

    Several processes may open the same store. Within a process, each thread must open its own, and so must a forked
    child. Use a file if one process writes most (SQLite is unfair among several), and PostgreSQL if several machines
    write.

    Arguments:
        path: the file, which is created if there is none; or an address such as `"postgresql:///river"` (the extra
            `privrl[postgres]`, see `postgres.py`), where tables are created if there are none.
        after_crash: what to do with a release that was reserved by a process that died: `"burn"` refuses it for good;
            `"redraw"` draws again under the same charge, which is sound because values are returned only after they
            are stored, so the first draw was never seen.
        log: the audit log (`log.py`), a file outside the store, best on another disk. It receives a line for every
            event before the effect of the event is returned. A store that lacks one of these events (an older copy
            was restored, rows were removed) is refused.
        accept_missing_log: begins the log of a store that was used before and has none now. Use it only if you know
            that the store is the newest copy.

    A sum of two people, released once (without noise, to show the number):

    >>> import numpy as np
    >>> with ReleaseStore.in_memory() as store:
    ...     store.open_study({"title": "visits"}, limits={"rho": 0.5})
    ...     new = store.contribute("visits", ["anna", "ben", "anna"], np.array([[1, 0], [1, 1], [1, 0]]))
    ...     store.release("visits, January", "rho", 0.1, lambda: store.total("visits"), distribution=b"none")
    array([2, 1])

    Raises:
        StoreError: the store cannot be opened, or is older than its audit log.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        after_crash: AfterCrash = "burn",
        log: str | os.PathLike[str] | None = None,
        accept_missing_log: bool = False,
    ) -> None:
        if after_crash not in ("burn", "redraw"):
            raise ValueError(f"`after_crash` is {after_crash!r}; use 'burn' or 'redraw'.")
        self.after_crash = after_crash
        audit = None if log is None else AuditLog(log)
        self._engine = _engine(path, audit, accept_missing_log, lambda point: self._reached(point))

    @classmethod
    def in_memory(cls) -> "ReleaseStore":
        """Creates a store in the memory of this object, for simulations."""
        return cls(None)

    @property
    def path(self) -> str:
        """The file or address of the store, without user and password."""
        return self._engine.title

    @property
    def connections(self) -> int:
        """How often a lost connection to the database was replaced; one that is known to be lost is replaced first. The
        server that answers now may be a replica that lacks the last commits, so forget what was read over an earlier
        connection.
        """
        return self._engine.connections

    def together(self, work: Callable[[], T]) -> T:
        """Calls `work` in one transaction: all that it contributes is committed before this returns, or nothing.

        A contribution that is refused does not affect the others. `work` is called again if the database aborts the
        transaction. It must contribute to several sums in the sorted order of their names.
        """

        def attempt() -> T:
            with self._engine.transaction("together", ""):
                return work()

        return self._engine.retry(attempt)

    # ----------------------------------------------------------------------------------------------------- the study

    def open_study(self, study: Mapping[str, object], limits: Mapping[str, float]) -> None:
        """Declares the study and the largest sum of charges of each pool. Later calls must declare the same.

        Raises:
            StudyMismatchError: if the store belongs to another study, or to one with other limits.
        """
        for pool, limit in limits.items():
            check_amount(f"limits[{pool!r}]", limit)
        try:
            content = json.dumps(dict(study), sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"`study` is not JSON: {error}. Use text, finite numbers, lists and mappings.") from error
        with self._engine.transaction("study", "study"):
            written = self._engine.execute("SELECT content FROM study").fetchone()
            if written is None:
                rows = [(pool, float(limit)) for pool, limit in limits.items()]
                for row in rows:
                    self._engine.execute("INSERT INTO pools VALUES (?, ?)", *row)
                self._engine.execute("INSERT INTO study VALUES (1, ?)", content)
                self._engine.chain("study")
                return
            differing = _differing(json.loads(written[0]), json.loads(content))
            differing += [f"limits[{pool!r}]" for pool in _differing(self._engine.limits(), dict(limits))]
            if differing:
                raise StudyMismatchError(
                    f"`{self.path}` belongs to a study that differs in {', '.join(f'`{key}`' for key in differing)}. "
                    "Declare the study as it was, or use a new file for a new study."
                )

    def secret(self, purpose: str) -> bytes:
        """32 secret bytes of this store for one purpose, the same for every process. `purge` removes them."""
        return keyed_hash(self._engine.digest_key(), "secret of a store")(purpose.encode())

    # ------------------------------------------------------------------------------------------- looking and purging

    def describe(self) -> _store_view.StoreView:
        """What was declared, spent, released, burnt, sealed and assigned, as JSON. Nothing raw is in it."""
        return _store_view.describe(self._engine)

    def notes(self) -> tuple[str, ...]:
        """Sentences about releases that crashes have interrupted, for a certificate."""
        return _store_view.notes(self._engine)

    def purge(self) -> None:
        """Removes raw sums, counts, digests and their key. Keeps what was declared, spent and released.

        Waits for draws under way. Afterwards the store accepts nothing new. The bytes are removed from the files, but
        not from backups, snapshots or the spare cells of a flash disk. If it was interrupted, call it again.
        """
        with self._engine.owner("", drawing=False):
            with self._engine.transaction("purge", None):
                if self._engine.execute("SELECT 1 FROM purges").fetchone() is None:
                    self._engine.execute("INSERT INTO purges VALUES (1, ?, NULL)", now())
                    self._engine.execute("UPDATE digest_key SET content = NULL")
                    for table in ("sums", "contributions", "arrivals"):
                        self._engine.execute(f"DELETE FROM {table}")
                    self._engine.chain("purge")
            self._engine.erase()
            with self._engine.transaction("purge-end", None):
                self._engine.execute("UPDATE purges SET ended = ? WHERE ended IS NULL", now())

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Writes a copy of the store, raw sums included, to a new file. Other processes may go on writing.

        A copy that is used later has forgotten what was released since; only an audit log refuses it
        (`restore_store`).

        Raises:
            StoreError: if there is a file already, or the store is on a PostgreSQL server.
        """
        self._engine.backup(os.fspath(path))

    def close(self) -> None:
        """Closes the store, which cannot be used afterwards."""
        self._engine.close()

    def __enter__(self) -> "ReleaseStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------------- the pieces

    def _reached(self, point: str) -> None:
        """Called at every point of the protocol where a crash makes a difference; tests stop the process here."""


def place_of(path: str | os.PathLike[str]) -> str:
    """The path or address of a store, without user and password."""
    if isinstance(path, str) and path.startswith(ADDRESSES):
        from privrl.privacy.store.postgres import title_of  # imports psycopg, which is an extra

        return title_of(path)
    return str(path)


def store_exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is a file, or there are tables, at the path or address of a store. Creates nothing."""
    if isinstance(path, str) and path.startswith(ADDRESSES):
        from privrl.privacy.store.postgres import has_tables  # imports psycopg, which is an extra

        return has_tables(path)
    return os.path.exists(path)


def restore_store(copy: str | os.PathLike[str], path: str | os.PathLike[str], log: str | os.PathLike[str]) -> None:
    """Puts a copy that `ReleaseStore.backup` made in the place of a store that was lost.

    Arguments:
        path: the file of the store. Neither it nor a side file of it may exist.
        log: the audit log of the store, which decides whether the copy lacks a release.

    **Formal guarantee.** No person is counted in two releases because a copy was restored, although the copy lacks the
    arrivals and the contributions since it was made. The copy is one state of the store and has every release of the
    log. A released sum was sealed before it was released, so the copy has all of its contributions, with the digests
    that refuse them a second time. A contribution that the copy lacks is therefore in no release. If its person
    arrives again, they get a new place, and the new record is their only one: a ticket is accepted only if its random
    token is the one that the store holds for its number, so tickets issued since the copy are refused for good.
    (`docs/proofs/arrivals.md` states it for `Agent`. Reports of devices are private by themselves.)

    Raises:
        StoreError: if the copy is not one that `backup` made, or lacks an event of the log, or if a side file of the
            lost store is left. Nothing is left at `path` then.
    """
    if not os.path.isfile(copy):
        raise StoreError(f"There is no file `{copy}`.")
    if not os.path.isfile(log):
        raise StoreError(f"There is no audit log `{log}`, so privrl cannot tell whether `{copy}` lacks a release.")
    path = os.path.realpath(path)
    check_is_backup(os.fspath(copy))
    refuse_side_files(path)
    with exclusive_copy(path):
        shutil.copyfile(copy, path)
        ReleaseStore(path, log=log).close()


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuses the address of a server that is read-only. A file is checked when it is opened."""
    if isinstance(path, str) and path.startswith(ADDRESSES):
        from privrl.privacy.store.postgres import check_writable  # imports psycopg, which is an extra

        check_writable(path)


def _engine(
    path: str | os.PathLike[str] | None,
    log: AuditLog | None,
    accept_missing_log: bool,
    reached: Callable[[str], None],
) -> AbstractEngine:
    """The engine of the store: a file or, for an address, a database server."""
    if isinstance(path, str) and path.startswith(ADDRESSES):
        from privrl.privacy.store.postgres import PostgresEngine  # imports psycopg, which is an extra

        return PostgresEngine(path, log, accept_missing_log=accept_missing_log, reached=reached)
    path = None if path is None else os.path.realpath(path)  # so that all links to one file use the same lock
    return FileEngine(path, log, accept_missing_log=accept_missing_log, reached=reached)


def _differing(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    """The keys that one side lacks or whose values differ."""
    missing = object()
    return [key for key in sorted(one.keys() | other.keys()) if one.get(key, missing) != other.get(key, missing)]
