"""Contributions that count once and noise that is drawn once, across crashes, under a budget that is never exceeded.

A `ReleaseStore` is one SQLite file. People's contributions are integers; they are added to a running sum together with
a digest of their idempotency key, in one transaction, and acknowledged after it. A release has a name and goes through

    reserve the budget -> draw the noisy integers -> persist them -> return them

so nobody ever sees a value that is not on disk, and whoever asks again gets the same one. A process that dies between
the first step and the third leaves a reservation that stays charged: *burnt*, or drawn again on request.

**Formal guarantee.** At every moment, whatever process was killed wherever: each name has at most one value; the
charges of a pool, burnt ones included, add up to at most its limit (up to 1e-12 of it, for rounding); every
acknowledged contribution is in its sum exactly once. Triggers inside the file hold the first two against any program
that writes to it, short of one that removes the triggers, and such a file is refused. That a commit also survives power
loss is SQLite's promise (write-ahead log, `synchronous=FULL`) and the disk's; we rely on it and do not test it. Nobody
can promise anything for an old copy that is put back: it has forgotten what was spent since.

Raw sums are sensitive: all files are owner-only, and `purge` removes what is raw once a study has ended.
"""

import contextlib
import functools
import hashlib
import json
import math
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int64

_APPLICATION = 0x70726C73  # "prls" in the header of the file
_FORMAT = 2
_WAIT = 60.0  # seconds for another process to finish its transaction
_LARGEST = 1.7976931348623157e308

_TABLES = f"""
CREATE TABLE study (one INTEGER PRIMARY KEY CHECK (one = 1), content TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE pools (
    pool TEXT PRIMARY KEY,
    allowed REAL NOT NULL CHECK (typeof(allowed) = 'real' AND allowed BETWEEN 0 AND {_LARGEST!r})
) WITHOUT ROWID;
CREATE TABLE releases (
    name TEXT PRIMARY KEY,
    pool TEXT NOT NULL,
    charge REAL NOT NULL CHECK (typeof(charge) = 'real' AND charge BETWEEN 0 AND {_LARGEST!r}),
    reserved TEXT NOT NULL,
    law BLOB NOT NULL,
    redrawn INTEGER NOT NULL DEFAULT 0,
    released TEXT,
    shape TEXT,
    value BLOB,
    CHECK ((value IS NULL) = (shape IS NULL) AND (value IS NULL) = (released IS NULL))
) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE streams (
    name TEXT PRIMARY KEY, number INTEGER NOT NULL, shape TEXT NOT NULL, total BLOB
) WITHOUT ROWID;
CREATE TABLE seals (stream TEXT PRIMARY KEY, sealed TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE places (
    queue TEXT, number INTEGER CHECK (number >= 0), content BLOB NOT NULL, PRIMARY KEY (queue, number)
) WITHOUT ROWID;
CREATE TABLE arrivals (digest BLOB PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE contributions (digest BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE digest_key (one INTEGER PRIMARY KEY CHECK (one = 1), content BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE logs (
    log TEXT, number INTEGER, key TEXT NOT NULL, content BLOB NOT NULL, PRIMARY KEY (log, number), UNIQUE (log, key)
) WITHOUT ROWID;
CREATE TABLE purges (one INTEGER PRIMARY KEY CHECK (one = 1), ended TEXT) WITHOUT ROWID;
"""
# Before what, on which table, when, it is refused and with which words. Inserts are guarded one by one because
# `INSERT OR REPLACE` deletes rows without asking the guards of deletion.
_GUARDS = (
    ("DELETE", "study", "1", "a study is not deleted"),
    ("UPDATE", "study", "1", "a study is not changed"),
    ("INSERT", "study", "EXISTS (SELECT 1 FROM study)", "a study is declared once"),
    ("DELETE", "pools", "1", "a limit is not deleted"),
    ("UPDATE", "pools", "1", "a limit is not changed"),
    ("INSERT", "pools", "EXISTS (SELECT 1 FROM study)", "limits are declared with the study"),
    ("DELETE", "releases", "1", "a release is not deleted"),
    ("UPDATE", "releases", "OLD.value IS NOT NULL", "a value is written once"),
    (
        "UPDATE",
        "releases",
        "(NEW.name, NEW.pool, NEW.charge, NEW.law, NEW.reserved)"
        " IS NOT (OLD.name, OLD.pool, OLD.charge, OLD.law, OLD.reserved)",
        "a reservation is not changed",
    ),
    ("UPDATE", "releases", "NEW.redrawn < OLD.redrawn", "a redraw is not forgotten"),
    ("INSERT", "releases", "NEW.value IS NOT NULL OR NEW.redrawn <> 0", "a release is reserved before it is drawn"),
    ("INSERT", "releases", "EXISTS (SELECT 1 FROM releases WHERE name = NEW.name)", "a name is reserved once"),
    ("INSERT", "releases", "NOT EXISTS (SELECT 1 FROM pools WHERE pool = NEW.pool)", "there is no such pool"),
    (
        "INSERT",
        "releases",
        "(SELECT TOTAL(charge) FROM releases WHERE pool = NEW.pool) + NEW.charge"
        " > (SELECT allowed FROM pools WHERE pool = NEW.pool) * (1 + 1e-12)",
        "over the limit",
    ),
    ("DELETE", "facts", "1", "a fact is not deleted"),
    ("UPDATE", "facts", "1", "a fact is not changed"),
    ("INSERT", "facts", "EXISTS (SELECT 1 FROM facts WHERE name = NEW.name)", "a fact is written once"),
    ("DELETE", "seals", "1", "a stream is not opened again"),
    ("UPDATE", "seals", "1", "a seal is not changed"),
    ("INSERT", "seals", "EXISTS (SELECT 1 FROM seals WHERE stream = NEW.stream)", "a stream is sealed once"),
    ("INSERT", "streams", "EXISTS (SELECT 1 FROM seals WHERE stream = NEW.name)", "the stream is sealed"),
    (
        "UPDATE",
        "streams",
        "NEW.total IS NOT NULL AND EXISTS (SELECT 1 FROM seals WHERE stream = OLD.name)",
        "the stream is sealed",
    ),
    ("DELETE", "places", "1", "a place is not deleted"),
    ("UPDATE", "places", "1", "a place is not changed"),
    (
        "INSERT",
        "places",
        "NEW.number IS NOT (SELECT COALESCE(MAX(number) + 1, 0) FROM places WHERE queue = NEW.queue)",
        "places are taken one after the other",
    ),
)
_SCHEMA = _TABLES + "".join(
    f"CREATE TRIGGER guard_{i} BEFORE {event} ON {table} WHEN {when} BEGIN SELECT RAISE(ABORT, '{words}'); END;\n"
    for i, (event, table, when, words) in enumerate(_GUARDS)
)


class StoreError(ValueError):
    """A store that cannot be opened, or that refuses what was asked."""


class StudyMismatchError(StoreError):
    """The file was opened for another study, or with other limits."""


class StoreBudgetError(StoreError):
    """A release that its pool cannot pay for. Nothing was reserved."""


class StreamFullError(StoreError):
    """A stream that would get more contributions than it takes. Nothing was added."""


class StreamSealedError(StoreError):
    """A stream that takes no contributions any more. Nothing was added."""


class QueueFullError(StoreError):
    """A queue whose places are all taken. Nothing was written."""


class BurntError(StoreError):
    """A release whose owner died before its value was kept. Its charge stays and it has no value."""


class ReleaseStore:
    """Durable contributions and releases with a hard budget, in one SQLite file on a local disk.

    Several processes may open the same file; within a process, each thread opens its own, and a forked child opens its
    own too. `after_crash` says what to do with a release that was reserved by a process that died: `"burn"` refuses
    it for good, `"redraw"` draws again under the same charge, which is sound because values are returned only after
    they are persisted, so nobody saw the first draw.

    Example: a sum of two people, released with noise once.
    ```python
    with ReleaseStore("study.db") as store:
        store.open_study({"title": "stays"}, limits={"rho": 0.5})
        store.contribute("visits", ["anna", "ben"], np.array([[1, 0], [1, 1]]))
        noisy = store.release("visits, January", "rho", 0.1, lambda: store.total("visits") + noise())
    ```
    """

    def __init__(self, path: str | os.PathLike[str], *, after_crash: Literal["burn", "redraw"] = "burn") -> None:
        if after_crash not in ("burn", "redraw"):
            raise ValueError(f"`after_crash` is {after_crash!r}; use 'burn' or 'redraw'.")
        self.path = os.path.realpath(path)  # one file, one lock, whatever links lead to it
        self.after_crash = after_crash
        self._lock_path = self.path + ".lock"
        self._owning = False
        self._process = os.getpid()
        self._create_file()
        self._connection = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise StoreError(f"`{self.path}` cannot be opened as a store of releases: {error}.") from error
        except BaseException:
            self._connection.close()
            raise

    # ----------------------------------------------------------------------------------------------------- the study

    def open_study(self, study: Mapping[str, Any], limits: Mapping[str, float]) -> None:
        """Declares what is studied and the largest sum of charges per pool; later calls must say the same."""
        for pool, limit in limits.items():
            _check_amount(f"limits[{pool!r}]", limit)
        try:
            content = json.dumps(dict(study), sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"`study` is not JSON: {error}. Use text, finite numbers, lists and mappings.") from error
        with self._transaction("study"):
            written = self._one("SELECT content FROM study")
            if written is None:
                rows = [(pool, float(limit)) for pool, limit in limits.items()]
                self._db.executemany("INSERT INTO pools VALUES (?, ?)", rows)
                self._db.execute("INSERT INTO study VALUES (1, ?)", (content,))
                return
            differing = _differing(json.loads(written[0]), json.loads(content))
            differing += [f"limits[{pool!r}]" for pool in _differing(self._limits(), dict(limits))]
            if differing:
                raise StudyMismatchError(
                    f"`{self.path}` belongs to a study that differs in {', '.join(f'`{key}`' for key in differing)}. "
                    "Declare the study as it was, or use a new file for a new study."
                )

    # ------------------------------------------------------------------------------------------------- contributions

    def contribute(
        self,
        stream: str,
        keys: Sequence[str],
        units: Int64[np.ndarray, "B *shape"],
        *,
        scope: str | None = None,
        at_most: int | None = None,
        closed: Callable[[], bool] | None = None,
    ) -> Bool[np.ndarray, " B"]:
        """Adds rows to the running sum of a stream, each key at most once; says which were new, after the commit.

        A sum that leaves int64, a stream that would get more than `at_most` contributions (`StreamFullError`), or one
        that is sealed (`StreamSealedError`), or for which `closed()` is true when it is asked inside the transaction,
        is refused and nothing changes.
        A key counts once in all streams that share a `scope`, by default once in
        each stream. Keys are kept as digests under a random key of this file, so the file does not name people. The sum
        is rewritten with every batch.
        """
        _check_integers("units", units)
        if units.ndim == 0 or len(units) != len(keys):
            raise ValueError(f"`units` has shape {units.shape} for {len(keys)} keys; pass one row for each key.")
        with self._transaction("contribute"):
            if self.sealed(stream) or (closed is not None and closed()):
                raise StreamSealedError(f"The stream `{stream}` is sealed and takes no contributions any more.")
            digests = _digests(self._digest_key(), f"stream {stream}" if scope is None else f"scope {scope}", keys)
            count, total = 0, np.zeros(units.shape[1:], np.int64)
            held = self._one("SELECT number, shape, total FROM streams WHERE name = ?", stream)
            if held is not None:
                count, total = held[0], _integers(held[1], held[2])
            if total.shape != units.shape[1:]:
                raise ValueError(
                    f"Rows of `units` have shape {units.shape[1:]} and the stream `{stream}` has {total.shape}."
                )
            insert = "INSERT INTO contributions VALUES (?) ON CONFLICT DO NOTHING"
            inserted = (self._db.execute(insert, (digest,)).rowcount == 1 for digest in digests)
            new = np.fromiter(inserted, np.bool_, len(digests))
            if at_most is not None and count + int(new.sum()) > at_most:
                raise StreamFullError(f"The stream `{stream}` takes {at_most} contributions and would get more.")
            total = _exact_sum(np.concatenate([total[None], units[new]]))
            self._db.execute(
                "INSERT INTO streams VALUES (?, ?, ?, ?)"
                " ON CONFLICT (name) DO UPDATE SET number = excluded.number, total = excluded.total",
                (stream, count + int(new.sum()), *_columns(total)),
            )
        return new

    def total(self, stream: str) -> Int64[np.ndarray, "..."] | None:
        """The raw sum of a stream, or None before its first contribution. Sensitive."""
        self._digest_key()
        found = self._one("SELECT shape, total FROM streams WHERE name = ?", stream)
        return None if found is None else _integers(*found)

    def count(self, stream: str) -> int:
        """How many contributions a stream has."""
        found = self._one("SELECT number FROM streams WHERE name = ?", stream)
        return 0 if found is None else found[0]

    def seal(self, stream: str) -> None:
        """Ends a stream, which may be empty: nothing is added to it from now on, by any process."""
        with self._transaction("seal"):
            if not self.sealed(stream):
                self._digest_key()
                self._db.execute("INSERT INTO seals VALUES (?, ?)", (stream, _now()))

    def sealed(self, stream: str) -> bool:
        """Whether a stream takes no contributions any more."""
        return self._one("SELECT 1 FROM seals WHERE stream = ?", stream) is not None

    # -------------------------------------------------------------------------------------------------------- queues

    def arrive(self, queue: str, key: str, *, at_most: int, content: Callable[[int], bytes]) -> tuple[int, bytes]:
        """The place of a key in a queue: its number (0, 1, ... in order of arrival) and the bytes kept with it.

        The same key always has the same place. A new place is written, with `content(number)` evaluated inside the
        transaction, and committed before it is returned; the key is kept as a digest. An unknown key is refused when
        `at_most` places are taken (`QueueFullError`), and nothing is written.
        """
        with self._transaction("arrive"):
            (digest,) = _digests(self._digest_key(), f"queue {queue}", [key])
            known = self._one("SELECT number FROM arrivals WHERE digest = ?", digest)
            number = self.arrived(queue) if known is None else known[0]
            if known is None:
                if number >= at_most:
                    raise QueueFullError(f"All {at_most} places of the queue `{queue}` are taken. Nothing was written.")
                self._db.execute("INSERT INTO places VALUES (?, ?, ?)", (queue, number, content(number)))
                self._db.execute("INSERT INTO arrivals VALUES (?, ?)", (digest, number))
            kept = self.place(queue, number)
        assert kept is not None
        return number, kept

    def arrived(self, queue: str) -> int:
        """How many places of a queue are taken."""
        return self._one("SELECT COALESCE(MAX(number) + 1, 0) FROM places WHERE queue = ?", queue)[0]

    def place(self, queue: str, number: int) -> bytes | None:
        """What is kept with a place, or None if it is free."""
        found = self._one("SELECT content FROM places WHERE queue = ? AND number = ?", queue, number)
        return None if found is None else found[0]

    # ------------------------------------------------------------------------------------------------------ releases

    def release(
        self, name: str, pool: str, charge: float, draw: Callable[[], Int64[np.ndarray, "..."]], *, law: bytes = b""
    ) -> Int64[np.ndarray, "..."]:
        """The value of the release `name`: drawn once, charged once, the same for ever.

        `law` describes the noise that `draw` adds. It is written with the reservation, before anything is drawn, and
        never changes; a later call that offers another pool, charge or law under this name is refused. While another
        process draws it, this one waits. If `draw` raises, the charge stays and the release is burnt.
        """
        _check_amount("charge", charge)
        stored = self._stored(name, pool, charge, law)
        if stored is not None and stored[1] is not None:
            return _integers(*stored)
        with self._owner(name):
            stored = self._stored(name, pool, charge, law)
            if stored is None:
                self._reserve(name, pool, charge, law)
            elif stored[1] is not None:
                return _integers(*stored)
            elif self.after_crash == "burn":
                raise BurntError(
                    f"The release `{name}` was reserved and its owner stopped before keeping a value; its charge of "
                    f"{charge:g} stays spent. Release under a new name, or open the store with after_crash='redraw'."
                )
            else:
                with self._transaction("redraw"):
                    self._digest_key()
                    self._db.execute("UPDATE releases SET redrawn = redrawn + 1 WHERE name = ?", (name,))
            value = draw()
            self._reached("drawn")
            _check_integers("the value of `draw()`", value)
            with self._transaction("persist"):
                # Safety does not rest on the lock: had anybody else persisted a value, a trigger refuses this one.
                self._db.execute(
                    "UPDATE releases SET shape = ?, value = ?, released = ? WHERE name = ?",
                    (*_columns(value), _now(), name),
                )
        return value.copy()

    def value(self, name: str) -> Int64[np.ndarray, "..."] | None:
        """The kept value of a release, or `None`."""
        found = self._one("SELECT shape, value FROM releases WHERE name = ? AND value IS NOT NULL", name)
        return None if found is None else _integers(*found)

    def law(self, name: str) -> bytes | None:
        """The law that a release was reserved with, whether or not it has a value; None if it is not reserved."""
        found = self._one("SELECT law FROM releases WHERE name = ?", name)
        return None if found is None else found[0]

    def burnt(self, name: str) -> bool:
        """Whether a release is reserved, has no value and nobody is drawing it. Waits while somebody is."""
        query = "SELECT value IS NULL FROM releases WHERE name = ?"
        if self._one(query, name) != (1,):
            return False
        with self._owner(""):
            return self._one(query, name) == (1,)

    # ------------------------------------------------------------------------------------------------ facts and logs

    def fact(self, name: str, make: Callable[[], bytes]) -> bytes:
        """A small value that is written once: the first writer wins and everybody reads the same. Survives `purge`."""
        query = "SELECT content FROM facts WHERE name = ?"
        found = self._one(query, name)
        if found is None:
            content = make()
            with self._transaction("fact"):
                found = self._one(query, name)
                if found is None:
                    self._digest_key()
                    self._db.execute("INSERT INTO facts VALUES (?, ?)", (name, content))
                    found = (content,)
        return found[0]

    def append(self, log: str, key: str, content: bytes) -> bool:
        """Adds a small message to a log, once per key; True if it was new, after the commit."""
        return self.append_many(log, [(key, content)])[0]

    def append_many(self, log: str, messages: Sequence[tuple[str, bytes]]) -> list[bool]:
        """Adds messages in one transaction; another content under a known key is refused and changes nothing."""
        new: list[bool] = []
        with self._transaction("append"):
            self._digest_key()
            number = self._one("SELECT COALESCE(MAX(number), 0) FROM logs WHERE log = ?", log)[0]
            for key, content in messages:
                known = self._one("SELECT content FROM logs WHERE log = ? AND key = ?", log, key)
                if known is not None and known[0] != content:
                    raise StoreError(
                        f"The log `{log}` already has another message under the key of the message at position "
                        f"{len(new)}. Send the same bytes again, or use a new key for a new message."
                    )
                new.append(known is None)
                if known is None:
                    number += 1
                    self._db.execute("INSERT INTO logs VALUES (?, ?, ?, ?)", (log, number, key, content))
        return new

    def read(self, log: str, after: int = 0) -> list[tuple[int, str, bytes]]:
        """Messages (number, key, content) with numbers above `after`, in order of arrival; numbers start at 1."""
        query = "SELECT number, key, content FROM logs WHERE log = ? AND number > ? ORDER BY number"
        return self._db.execute(query, (log, after)).fetchall()

    # ------------------------------------------------------------------------------------------- looking and purging

    def shown(self) -> dict[str, Any]:
        """What was declared, spent, released and burnt; nothing raw. Fit for JSON."""
        at_work = self._at_work()
        self._db.execute("BEGIN")
        try:
            study = self._one("SELECT content FROM study")
            limits = self._limits()
            purge = self._one("SELECT ended FROM purges")
            rows = self._db.execute(
                "SELECT name, pool, charge, reserved, redrawn, released, shape FROM releases ORDER BY reserved, name"
            ).fetchall()
            streams = dict(self._db.execute("SELECT name, number FROM streams ORDER BY name"))
            logs = dict(self._db.execute("SELECT log, COUNT(*) FROM logs GROUP BY log ORDER BY log"))
            facts = [name for (name,) in self._db.execute("SELECT name FROM facts ORDER BY name")]
        finally:
            self._db.execute("COMMIT")
        releases = []
        for name, pool, charge, reserved, redrawn, released, shape in rows:
            if released is not None:
                status = "redrawn" if redrawn else "released"
            else:
                status = "reserved" if name == at_work else "burnt"
            shape = None if shape is None else json.loads(shape)
            release = {"name": name, "pool": pool, "charge": charge, "status": status, "shape": shape}
            releases.append(release | {"time": released or reserved})
        return {
            "study": None if study is None else json.loads(study[0]),
            "limits": limits,
            "spent": {pool: math.fsum(row[2] for row in rows if row[1] == pool) for pool in limits},
            "streams": streams,
            "releases": releases,
            "logs": logs,
            "facts": facts,
            "purged": purge is not None and purge[0] is not None,
            "purge_unfinished": purge is not None and purge[0] is None,
        }

    def notes(self) -> tuple[str, ...]:
        """What crashes have done to the releases, in words, for a certificate."""
        releases = self.shown()["releases"]
        lost = [release["name"] for release in releases if release["status"] == "burnt"]
        drawn = [release["name"] for release in releases if release["status"] == "redrawn"]
        notes = [f"burnt by a crash and charged all the same: {', '.join(lost)}"] if lost else []
        notes += [f"interrupted by a crash before anybody saw it, and drawn again: {', '.join(drawn)}"] if drawn else []
        return tuple(notes)

    def purge(self) -> None:
        """Removes raw sums, digests and their key, and logs; keeps what was declared, spent, released and counted.

        Afterwards nothing new is accepted. The bytes are gone from the files, not from backups, snapshots or the
        spare cells of a flash disk. Interrupted, it is finished by calling it again.
        """
        with self._owner(""):
            with self._transaction("purge"):
                self._db.execute("UPDATE streams SET total = NULL")
                for table in ("contributions", "arrivals", "digest_key", "logs"):
                    self._db.execute(f"DELETE FROM {table}")
                self._db.execute("INSERT INTO purges VALUES (1, NULL) ON CONFLICT DO NOTHING")
            self._db.execute("VACUUM")
            self._reached("purge:rewritten")
            busy, *_ = self._one("PRAGMA wal_checkpoint(TRUNCATE)")
            if busy:
                raise StoreError(
                    f"Somebody is reading `{self.path}`, so raw bytes are still in its write-ahead log. Close other "
                    "programs that have it open and purge again."
                )
            self._reached("purge:truncated")
            with self._transaction("purge-end"):
                self._db.execute("UPDATE purges SET ended = COALESCE(ended, ?)", (_now(),))

    def close(self) -> None:
        """Closes the file; the store cannot be used afterwards."""
        self._connection.close()

    def __enter__(self) -> "ReleaseStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------------- opening

    def _create_file(self) -> None:
        """Makes the file owner-only before SQLite sees it; SQLite gives its side files the same permissions.

        An existing file is looked at by name only: closing any descriptor of it would drop this process's locks.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            os.close(os.open(self.path, flags, 0o600))
        except FileExistsError:
            if not os.path.isfile(self.path):
                raise StoreError(f"`{self.path}` is not a file, so it is not a store of releases.") from None
            for path in (self.path, self._lock_path, self.path + "-wal", self.path + "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(path).st_mode & 0o077:
                        raise StoreError(
                            f"`{path}` can be read or written by others and holds people's raw sums. "
                            f"Close it first: chmod 600 {path}"
                        ) from None
        else:
            directory = os.open(os.path.dirname(self.path), os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
            self._reached("create:file")

    def _open(self) -> None:
        for setting in ("synchronous=FULL", "fullfsync=ON", "secure_delete=ON", "temp_store=MEMORY"):
            self._db.execute(f"PRAGMA {setting}")
        if self._is_empty():
            with self._owner(""):  # two processes may create it at once
                if self._is_empty():
                    if self._one("PRAGMA journal_mode=WAL") != ("wal",):
                        raise StoreError(f"`{self.path}` cannot have a write-ahead log there; use a local disk.")
                    self._reached("create:log")
                    with self._transaction("create"):
                        for statement in _SCHEMA.split(";\n"):
                            self._db.execute(statement)
                        self._db.execute("INSERT INTO digest_key VALUES (1, ?)", (os.urandom(32),))
                        self._db.execute(f"PRAGMA application_id={_APPLICATION}")
                        self._db.execute(f"PRAGMA user_version={_FORMAT}")
        written = self._one("PRAGMA user_version")[0]
        if self._one("PRAGMA application_id")[0] != _APPLICATION:
            raise StoreError(f"`{self.path}` is an SQLite file but not a store of releases. Choose another file.")
        if written != _FORMAT:
            raise StoreError(
                f"`{self.path}` has format {written} and this version of privrl reads format {_FORMAT}. "
                + (
                    "Update privrl."
                    if written > _FORMAT
                    else "Finish that study with the version that began it; a new study needs a new file."
                )
            )
        if _schema_of(self._db) != _expected_schema():
            raise StoreError(f"The tables or guards of `{self.path}` were changed; it cannot be trusted any more.")

    def _is_empty(self) -> bool:
        return self._one("PRAGMA application_id") == (0,) and not _schema_of(self._db)

    # ---------------------------------------------------------------------------------------------------- the pieces

    def _reached(self, point: str) -> None:
        """Called at every point of the protocol where a crash makes a difference; tests stop the process here."""

    @property
    def _db(self) -> sqlite3.Connection:
        if os.getpid() != self._process:
            raise StoreError("This store was opened before the process was forked; open it again in the child.")
        return self._connection

    def _one(self, query: str, *values: Any) -> Any:
        return self._db.execute(query, values).fetchone()

    @contextlib.contextmanager
    def _transaction(self, what: str) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._reached(f"{what}:begun")
            yield
            self._reached(f"{what}:written")
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._reached(f"{what}:committed")

    @contextlib.contextmanager
    def _owner(self, name: str) -> Iterator[None]:
        """Waits for the one lock of this file; the operating system frees it when its owner dies, however it dies.

        Whoever holds it knows that a release without a value has no living owner other than itself.
        """
        if self._owning:
            raise StoreError("`draw` asked the store for something that waits for this very draw. Ask before drawing.")
        descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor, wait=True)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, name.encode(), 0)
            self._owning = True
            self._reached("locked")
            yield
        finally:
            self._owning = False
            _unlock(descriptor)

    def _at_work(self) -> str | None:
        """The name that a living owner is drawing at this moment."""
        try:
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return None if _lock(descriptor, wait=False) else os.pread(descriptor, 1 << 16, 0).decode()
        finally:
            _unlock(descriptor)

    def _digest_key(self) -> bytes:
        found = self._one("SELECT content FROM digest_key")
        if found is None:
            raise StoreError(
                f"`{self.path}` was purged: its raw sums are gone and it accepts nothing new. Stored releases can "
                "still be read; use a new file for a new study."
            )
        return found[0]

    def _limits(self) -> dict[str, float]:
        return dict(self._db.execute("SELECT pool, allowed FROM pools ORDER BY pool"))

    def _stored(self, name: str, pool: str, charge: float, law: bytes) -> tuple[str, bytes] | tuple[None, None] | None:
        """Shape and value of a release, both None if it is only reserved."""
        found = self._one("SELECT pool, charge, law, shape, value FROM releases WHERE name = ?", name)
        if found is not None and found[:2] != (pool, charge):
            raise ValueError(
                f"The release `{name}` was charged {found[1]:g} to `{found[0]}`, and now {charge:g} from `{pool}` is "
                "offered. Ask as it was charged, or use a new name for a new release."
            )
        if found is not None and found[2] != law:
            raise ValueError(
                f"The release `{name}` was reserved with another law of noise. Draw by the law that is kept, "
                "`store.law(name)`, or use a new name for a new release."
            )
        return None if found is None else found[3:]

    def _reserve(self, name: str, pool: str, charge: float, law: bytes) -> None:
        with self._transaction("reserve"):
            self._digest_key()
            limits = self._limits()
            if pool not in limits:
                raise StoreError(
                    f"There is no pool `{pool}` to charge; `open_study` declared {sorted(limits) or 'none yet'}."
                )
            try:
                insert = "INSERT INTO releases (name, pool, charge, law, reserved) VALUES (?, ?, ?, ?, ?)"
                self._db.execute(insert, (name, pool, float(charge), law, _now()))
            except sqlite3.IntegrityError as error:
                spent = self._one("SELECT TOTAL(charge) FROM releases WHERE pool = ?", pool)[0]
                raise StoreBudgetError(
                    f"The release `{name}` costs {charge:g} and the pool `{pool}` has spent {spent:g} of "
                    f"{limits[pool]:g} ({error}). Nothing was reserved; stop here, or release less."
                ) from error


def _exact_sum(rows: Int64[np.ndarray, "B *shape"]) -> Int64[np.ndarray, "*shape"]:
    """The sum over rows, refused if it leaves int64: high and low halves are summed apart, where nothing overflows."""
    low = (rows & 0xFFFFFFFF).sum(axis=0)
    high = (rows >> 32).sum(axis=0) + (low >> 32)
    if np.any((high < -(2**31)) | (high >= 2**31)):
        raise OverflowError("The sum leaves int64; nothing was added. Use a coarser grid or fewer people per stream.")
    return np.asarray((high << 32) | (low & 0xFFFFFFFF))


def _digests(digest_key: bytes, stream: str, keys: Sequence[str]) -> list[bytes]:
    """Keyed BLAKE2b of stream and key; without the digest key nobody can test whether a person is in the file."""
    name = stream.encode()
    start = hashlib.blake2b(len(name).to_bytes(8, "little") + name, key=digest_key, digest_size=16)
    digests = []
    for key in keys:
        digest = start.copy()
        digest.update(key.encode())
        digests.append(digest.digest())
    return digests


def _integers(shape: str, content: bytes) -> Int64[np.ndarray, "..."]:
    return np.frombuffer(content, "<i8").astype(np.int64).reshape(json.loads(shape))


def _columns(value: Int64[np.ndarray, "..."]) -> tuple[str, bytes]:
    return json.dumps(value.shape), value.astype("<i8").tobytes()


def _check_integers(what: str, value: object) -> None:
    if not isinstance(value, np.ndarray) or value.dtype != np.int64:
        kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        raise TypeError(f"{what} is {kind}; a store keeps NumPy arrays of int64.")


def _check_amount(what: str, amount: float) -> None:
    if not (0 <= amount < math.inf):
        raise ValueError(f"`{what}` is {amount}; use a finite number that is not negative.")


def _differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Keys that are missing on one side or have another value."""
    missing = object()
    return [key for key in sorted(one.keys() | other.keys()) if one.get(key, missing) != other.get(key, missing)]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


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


def _schema_of(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()


@functools.cache
def _expected_schema() -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_SCHEMA)
        return _schema_of(connection)
