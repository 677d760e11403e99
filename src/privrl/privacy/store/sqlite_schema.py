"""The tables of a store, and the triggers that guard them against every program that writes to the file."""

import contextlib
import functools
import sqlite3

APPLICATION = 0x70726C73  # "prls" in the header of the file
FORMAT = 4
_LARGEST = 1.7976931348623157e308

TABLES = f"""
CREATE TABLE chain (
    number INTEGER PRIMARY KEY, kind TEXT NOT NULL, subject TEXT NOT NULL, hash BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE digest_key (
    one INTEGER PRIMARY KEY CHECK (one = 1), content BLOB, fingerprint BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE study (one INTEGER PRIMARY KEY CHECK (one = 1), content TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE pools (
    pool TEXT PRIMARY KEY,
    allowed REAL NOT NULL CHECK (typeof(allowed) = 'real' AND allowed BETWEEN 0 AND {_LARGEST!r})
) WITHOUT ROWID;
CREATE TABLE releases (
    name TEXT PRIMARY KEY,
    pool TEXT NOT NULL,
    charge REAL NOT NULL CHECK (typeof(charge) = 'real' AND charge BETWEEN 0 AND {_LARGEST!r}),
    distribution BLOB NOT NULL,
    reserved TEXT NOT NULL,
    released TEXT,
    shape TEXT,
    value BLOB,
    CHECK ((value IS NULL) = (shape IS NULL) AND (value IS NULL) = (released IS NULL))
) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE seals (name TEXT PRIMARY KEY, sealed TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE purges (one INTEGER PRIMARY KEY CHECK (one = 1), begun TEXT NOT NULL, ended TEXT) WITHOUT ROWID;
CREATE TABLE sums (
    name TEXT PRIMARY KEY, number INTEGER NOT NULL, shape TEXT NOT NULL, total BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE contributions (digest BLOB PRIMARY KEY, mark BLOB) WITHOUT ROWID;
CREATE TABLE places (
    queue TEXT, number INTEGER CHECK (number >= 0), content BLOB NOT NULL, PRIMARY KEY (queue, number)
) WITHOUT ROWID;
CREATE TABLE arrivals (digest BLOB PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE ranges (name TEXT PRIMARY KEY, next INTEGER NOT NULL CHECK (next >= 0)) WITHOUT ROWID;
CREATE TABLE access_keys (
    sha256 TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, added TEXT NOT NULL, expires INTEGER, revoked TEXT
) WITHOUT ROWID;
"""
_NO_PURGE = "NOT EXISTS (SELECT 1 FROM purges)"
# For each guard: the event, the table, the condition under which it refuses, and the message. Inserts are guarded one
# by one, because `INSERT OR REPLACE` deletes rows without running the guards of deletion.
GUARDS = (
    ("DELETE", "chain", "1", "the chain is not cut"),
    ("UPDATE", "chain", "1", "the chain is not changed"),
    ("INSERT", "chain", "NEW.number IS NOT (SELECT COALESCE(MAX(number) + 1, 0) FROM chain)", "one link at a time"),
    ("DELETE", "digest_key", "1", "the digest key is not deleted"),
    ("INSERT", "digest_key", "EXISTS (SELECT 1 FROM chain)", "the digest key is made with the file"),
    (
        "UPDATE",
        "digest_key",
        f"NEW.content IS NOT NULL OR NEW.fingerprint IS NOT OLD.fingerprint OR {_NO_PURGE}",
        "the digest key is not changed",
    ),
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
        "(NEW.name, NEW.pool, NEW.charge, NEW.distribution, NEW.reserved)"
        " IS NOT (OLD.name, OLD.pool, OLD.charge, OLD.distribution, OLD.reserved)",
        "a reservation is not changed",
    ),
    ("INSERT", "releases", "NEW.value IS NOT NULL", "a release is reserved before it is drawn"),
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
    ("DELETE", "seals", "1", "a sum is not opened again"),
    ("UPDATE", "seals", "1", "a seal is not changed"),
    ("INSERT", "seals", "EXISTS (SELECT 1 FROM seals WHERE name = NEW.name)", "a sum is sealed once"),
    ("DELETE", "purges", "1", "a purge is not forgotten"),
    ("UPDATE", "purges", "NEW.begun IS NOT OLD.begun OR OLD.ended IS NOT NULL", "a purge is not changed"),
    ("INSERT", "purges", "EXISTS (SELECT 1 FROM purges)", "a store is purged once"),
    ("DELETE", "sums", _NO_PURGE, "only a purge removes sums"),
    ("UPDATE", "sums", "EXISTS (SELECT 1 FROM seals WHERE name = OLD.name)", "the sum is sealed"),
    ("INSERT", "sums", "EXISTS (SELECT 1 FROM seals WHERE name = NEW.name)", "the sum is sealed"),
    ("DELETE", "contributions", _NO_PURGE, "only a purge removes digests"),
    ("UPDATE", "contributions", "1", "a contribution is not changed"),
    ("DELETE", "arrivals", _NO_PURGE, "only a purge removes digests"),
    ("UPDATE", "arrivals", "1", "an arrival is not changed"),
    ("INSERT", "arrivals", "EXISTS (SELECT 1 FROM arrivals WHERE digest = NEW.digest)", "an id has one place"),
    ("DELETE", "places", "1", "a place is not deleted"),
    ("UPDATE", "places", "1", "a place is not changed"),
    (
        "INSERT",
        "places",
        "NEW.number IS NOT (SELECT COALESCE(MAX(number) + 1, 0) FROM places WHERE queue = NEW.queue)",
        "places are taken one after the other",
    ),
    ("DELETE", "ranges", "1", "a range is not given back"),
    ("UPDATE", "ranges", "NEW.name IS NOT OLD.name OR NEW.next <= OLD.next", "a range is not given back"),
    ("INSERT", "ranges", "EXISTS (SELECT 1 FROM ranges WHERE name = NEW.name)", "a range is not given back"),
    ("DELETE", "access_keys", "1", "a key is revoked and not deleted"),
    ("UPDATE", "access_keys", "OLD.revoked IS NOT NULL OR NEW.revoked IS NULL", "a revoked key stays revoked"),
    (
        "UPDATE",
        "access_keys",
        "(NEW.sha256, NEW.name, NEW.role, NEW.added, NEW.expires)"
        " IS NOT (OLD.sha256, OLD.name, OLD.role, OLD.added, OLD.expires)",
        "a key is not changed",
    ),
    (
        "INSERT",
        "access_keys",
        "NEW.revoked IS NOT NULL OR EXISTS (SELECT 1 FROM access_keys WHERE sha256 = NEW.sha256)",
        "a key is added once",
    ),
)
SCHEMA = TABLES + "".join(
    f"CREATE TRIGGER guard_{i} BEFORE {event} ON {table} WHEN {when} BEGIN SELECT RAISE(ABORT, '{words}'); END;\n"
    for i, (event, table, when, words) in enumerate(GUARDS)
)


def schema_of(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """The names and definitions of all tables and triggers in a file."""
    return connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()


@functools.cache
def expected_schema() -> list[tuple[str, str]]:
    """What `schema_of` must find in a store."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        return schema_of(connection)
