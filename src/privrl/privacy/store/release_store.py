"""Contributions that count once and noise that is drawn once, across crashes, under a budget that is never exceeded.

A `ReleaseStore` is one SQLite file, or the tables of one schema of a PostgreSQL server. People's contributions are
integers; they are added to a running sum together with a digest of their idempotency key, in one transaction, and
acknowledged after it. A release has a name and goes through

    reserve the budget and write the noise distribution -> draw the noisy integers -> persist them -> return them

so nobody ever sees a value that is not on disk, and whoever reads again gets the same one. A process that dies between
the first step and the third leaves a reservation that stays charged: *burnt*, or drawn again on request.

**Formal guarantee.** At every moment, whatever process was killed wherever: each name has at most one value, drawn by
the distribution that is kept with it; the charges of a pool, burnt ones included, add up to at most its limit (up to
1e-12 of it, for rounding); every acknowledged contribution is in its sum exactly once; nothing is added to a sealed
sum; a place in a queue belongs to one key for ever. Triggers inside the file hold this against any program that writes
to it, short of one that removes the triggers; such a file is refused, also when they were put back, if a row of what
was declared, spent, released or sealed is not what the chain says (`chain.py`, which states what chain and log
detect and what they do not). That a commit also survives power loss is SQLite's promise (write-ahead log,
`synchronous=FULL`) or PostgreSQL's (`fsync`, `synchronous_commit`), and the disk's; we rely on it and do not test it.
An old copy that is put back has forgotten what was spent since: it is refused only with a `log` outside.

Raw sums, and how many people are in them, are sensitive: all files are owner-only, and `purge` removes what is raw once
a study has ended.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from privrl.privacy.canonical_ids import keyed_hash
from privrl.privacy.store import view as _store_view
from privrl.privacy.store.engine import AbstractEngine, T, check_amount, now
from privrl.privacy.store.errors import StudyMismatchError
from privrl.privacy.store.file import FileEngine
from privrl.privacy.store.log import AuditLog
from privrl.privacy.store.queues import AbstractQueues
from privrl.privacy.store.releases import AbstractReleases, AfterCrash
from privrl.privacy.store.sums import AbstractSums

ADDRESSES = ("postgresql://", "postgres://")  # how a store that is not a file is named


class ReleaseStore(AbstractSums, AbstractQueues, AbstractReleases):
    """Durable contributions and releases with a hard budget, in one SQLite file on a local disk, or in PostgreSQL.

    Several processes may open the same store; within a process, each thread opens its own, and a forked child opens its
    own too. One file is for one busy writer (SQLite is unfair among several); where several machines write, use
    PostgreSQL.

    Arguments:
        path: the file, made if there is none; or an address such as `"postgresql:///river"` (the extra
            `privrl[postgres]`, see `postgres.py`), whose tables are made if there are none.
        after_crash: what to do with a release that was reserved by a process that died: `"burn"` refuses it for good,
            `"redraw"` draws again under the same charge, which is sound because values are returned only after they
            are persisted, so nobody saw the first draw.
        log: the audit log (`log.py`), a file outside the store, best on another disk. It gets a line for every event
            before the effect of the event is returned. A store that lacks one of these events (an older copy was put
            back, rows were removed) is refused.
        accept_missing_log: begins the log of a store that was used before and has none now. Use it only if you know
            that the store is the newest copy.

    Example: a sum of two people, released with noise once.
    ```python
    with ReleaseStore("study.db", log="study.log") as store:
        store.open_study({"title": "stays"}, limits={"rho": 0.5})
        store.contribute("visits", ["anna", "ben"], np.array([[1, 0], [1, 1]]))
        noisy = store.release("visits, January", "rho", 0.1, lambda: store.total("visits") + noise(),
        distribution=b"...")
    ```
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
        """A store of this object alone, which ends with it: for simulations."""
        return cls(None)

    @property
    def path(self) -> str:
        """Where the store is."""
        return self._engine.title

    def together(self, work: Callable[[], T]) -> T:
        """Calls `work`; what it contributes is committed at once, before this returns, or not at all.

        A contribution that is refused leaves the others as they are. `work` may be called again if the database gave
        the transaction up, and contributes to several sums in the sorted order of their names.
        """

        def attempt() -> T:
            with self._engine.transaction("together", ""):
                return work()

        return self._engine.retried(attempt)

    # ----------------------------------------------------------------------------------------------------- the study

    def open_study(self, study: Mapping[str, Any], limits: Mapping[str, float]) -> None:
        """Declares what is studied and the largest sum of charges per pool; later calls must say the same."""
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
        """32 secret bytes of this store for one purpose, the same for every process; gone with `purge`."""
        return keyed_hash(self._engine.digest_key(), "secret of a store")(purpose.encode())

    # ------------------------------------------------------------------------------------------- looking and purging

    def shown(self) -> dict[str, Any]:
        """What was declared, spent, released, burnt, sealed and handed out; nothing raw. Fit for JSON."""
        return _store_view.shown(self._engine)

    def notes(self) -> tuple[str, ...]:
        """What crashes have done to the releases, in words, for a certificate."""
        return _store_view.notes(self._engine)

    def purge(self) -> None:
        """Removes raw sums, counts, digests and their key; keeps what was declared, spent and released.

        Waits for draws under way; afterwards nothing new is accepted. The bytes are gone from the files, not from
        backups, snapshots or the spare cells of a flash disk. Interrupted, it is finished by calling it again.
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

    def close(self) -> None:
        """Closes the file; the store cannot be used afterwards."""
        self._engine.close()

    def __enter__(self) -> "ReleaseStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------------- the pieces

    def _reached(self, point: str) -> None:
        """Called at every point of the protocol where a crash makes a difference; tests stop the process here."""


def place_of(path: str | os.PathLike[str]) -> str:
    """The path or address of a store as it may be shown: without user and password."""
    if isinstance(path, str) and path.startswith(ADDRESSES):
        from privrl.privacy.store.postgres import title_of  # an extra, which most people do not have

        return title_of(path)
    return str(path)


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether there is something at the path or address of a store already; nothing is made."""
    if isinstance(path, str) and path.startswith(ADDRESSES):
        from privrl.privacy.store.postgres import has_tables  # an extra, which most people do not have

        return has_tables(path)
    return os.path.exists(path)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuses the address of a server that can only be read; a file is opened for writing anyway."""
    if isinstance(path, str) and path.startswith(ADDRESSES):
        from privrl.privacy.store.postgres import check_writable  # an extra, which most people do not have

        check_writable(path)


def _engine(
    path: str | os.PathLike[str] | None,
    log: AuditLog | None,
    accept_missing_log: bool,
    reached: Callable[[str], None],
) -> AbstractEngine:
    """What runs the store: a file, or a database server for an address."""
    if isinstance(path, str) and path.startswith(ADDRESSES):
        from privrl.privacy.store.postgres import PostgresEngine  # an extra, which most people do not have

        return PostgresEngine(path, log, accept_missing_log=accept_missing_log, reached=reached)
    path = None if path is None else os.path.realpath(path)  # one file, one lock, whatever links lead to it
    return FileEngine(path, log, accept_missing_log=accept_missing_log, reached=reached)


def _differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Keys that are missing on one side or have another value."""
    missing = object()
    return [key for key in sorted(one.keys() | other.keys()) if one.get(key, missing) != other.get(key, missing)]
