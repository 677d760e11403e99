"""The hash chain of a store: every event carries the hash of the event before.

Events are: the file, the study with its limits, each reservation with its charge and distribution, each redraw, each
value, each fact, each seal, and the purge. Link n is

    hash(n) = SHA-256(hash(n - 1), number, kind, subject, the rows of the tables that the event wrote)

and is written in the transaction of these rows. Opening a store recomputes the chain from its tables, in time linear in
the number of events and the bytes of their values, independent of the number of contributions.

**What is detected.** The chain alone detects a row of those tables that was changed, added, removed or given another
date without rewriting the chain, even if the guards were dropped for it and restored. An audit log (`log.py`) also
detects a rewritten chain and an older copy of the whole file, as long as the log holds one event that the file lacks
or in which it differs.

**What is not detected.** The hash has no key: a program that writes to the file can recompute the whole chain, and only
the log detects that. If the log is replaced too, or both are deleted, nothing is detected. Events that are not yet in
the log are protected by the chain alone. The chain is checked when a store is opened, so a process that has the store
open does not detect a change; the next process that opens it does. Rows about people (sums, digests, places and ranges)
are not in the chain.
"""

import hashlib
import json
from collections import defaultdict
from typing import NamedTuple

from privrl.privacy.store.errors import TamperedError
from privrl.privacy.store.statements import Execute

# The rows that an event of each kind wrote.
_WRITTEN = {
    "file": "SELECT fingerprint FROM digest_key WHERE '' = ?",
    "study": "SELECT content, NULL FROM study WHERE '' = ? UNION ALL SELECT pool, allowed FROM pools ORDER BY 2, 1",
    "reserve": "SELECT pool, charge, distribution, reserved FROM releases WHERE name = ?",
    "redraw": "SELECT name FROM releases WHERE name = ?",
    "value": "SELECT shape, value, released FROM releases WHERE name = ? AND value IS NOT NULL",
    "fact": "SELECT content FROM facts WHERE name = ?",
    "seal": "SELECT sealed FROM seals WHERE name = ?",
    "purge": "SELECT begun FROM purges WHERE '' = ?",
}
# The subjects that must have exactly one event of each kind.
_SUBJECTS = {
    "file": "SELECT ''",
    "study": "SELECT '' FROM study UNION SELECT '' FROM pools",
    "reserve": "SELECT name FROM releases",
    "value": "SELECT name FROM releases WHERE value IS NOT NULL",
    "fact": "SELECT name FROM facts",
    "seal": "SELECT name FROM seals",
    "purge": "SELECT '' FROM purges UNION SELECT '' FROM digest_key WHERE content IS NULL",
}


class Link(NamedTuple):
    """The number of an event and its hash."""

    number: int
    hash: bytes


class ChainedEvent(NamedTuple):
    """A row of the chain: the kind and the subject of an event, and the hash of it and of all events before."""

    number: int
    kind: str
    subject: str
    hash: bytes


START = Link(-1, b"")


def last_link(select: Execute) -> Link:
    """The end of the chain, without verifying it."""
    found = select("SELECT number, hash FROM chain ORDER BY number DESC LIMIT 1").fetchall()
    return Link(*found[0]) if found else START


def event(select: Execute, number: int) -> ChainedEvent | None:
    """Event number `number`, or `None` if the chain is shorter."""
    found = select("SELECT number, kind, subject, hash FROM chain WHERE number = ?", number).fetchone()
    return None if found is None else ChainedEvent(*found)


def events_after(select: Execute, number: int) -> list[ChainedEvent]:
    """All events after one, in order."""
    rows = select("SELECT number, kind, subject, hash FROM chain WHERE number > ? ORDER BY number", number).fetchall()
    return [ChainedEvent(*row) for row in rows]


def next_link(select: Execute, last: Link, kind: str, subject: str) -> Link:
    """Computes the link of an event from the rows that it wrote."""
    rows = [[_plain(entry) for entry in row] for row in select(_WRITTEN[kind], subject).fetchall()]
    content = json.dumps([last.number + 1, kind, subject, rows], separators=(",", ":")).encode()
    return Link(last.number + 1, hashlib.sha256(last.hash + content).digest())


def verify_chain(select: Execute, path: str) -> None:
    """Recomputes the chain from the tables. Refuses a store whose chain and tables disagree."""
    last, seen = START, defaultdict[str, list[str]](list)
    for number, kind, subject, written in events_after(select, START.number):
        if kind not in _WRITTEN or next_link(select, last, kind, subject) != (number, written):
            raise _tampered(path, f"event {last.number + 1} is not what was written")
        last = Link(number, written)
        seen[kind].append(subject)
    for kind, query in _SUBJECTS.items():
        if sorted(seen[kind]) != sorted(subject for (subject,) in select(query).fetchall()):
            raise _tampered(path, f"its tables and its chain differ in events of kind `{kind}`")
    ((content, fingerprint),) = select("SELECT content, fingerprint FROM digest_key").fetchall()
    if content is not None and (seen["purge"] or fingerprint_of(content) != fingerprint):
        raise _tampered(path, "its digest key was replaced")


def fingerprint_of(digest_key: bytes) -> bytes:
    """What remains of the digest key after a purge. Because of it, outsiders cannot predict any hash of the chain."""
    return hashlib.sha256(digest_key).digest()


def _tampered(path: str, what: str) -> TamperedError:
    return TamperedError(
        f"Rows of `{path}` were changed by another program: {what}. It can no longer be trusted, and what it has "
        "spent is unknown. Restore the newest copy."
    )


def _plain(entry: object) -> object:
    """An entry of a row as JSON: exact, and different for different types."""
    if isinstance(entry, bytes):
        return ["sha256", hashlib.sha256(entry).hexdigest()]
    return ["float", entry.hex()] if isinstance(entry, float) else entry
