"""Every event of a store carries the hash of the one before, and a log outside the store says how far it got.

Events are: the file, the study with its limits, each reservation with its charge and distribution, each redraw, each
value, each fact, each seal, and the purge. Link n is

    hash(n) = SHA-256(hash(n - 1), number, kind, subject, the rows of the tables that the event wrote)

and is written in the transaction of these rows. Opening a store recomputes the chain from its tables, in time linear in
the number of events and the bytes of their values, whatever the number of contributions.

**What is detected.** The chain alone: a row of those tables that was changed, added, removed or dated otherwise without
writing the chain anew, also when the guards were dropped for it and put back. With an audit log (`log.py`): in addition
a chain that was written anew and an older copy of the whole file, as long as the log holds one event that the file
lacks or has otherwise.

**What is not.** The hash has no key: a program that writes to the file can recompute the whole chain, and only the log
notices. If the log is replaced too, or both are deleted, nothing is noticed. Events that are not in the log yet are
protected by the chain alone. The chain is checked when a store is opened, so a process that has it open does not notice
a change before the next one opens it. Rows about people (sums, digests, places and ranges) are not in the chain.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from privrl.privacy.store.errors import TamperedError

Select = Callable[..., Any]  # a query and its values, to rows

# What an event of each kind wrote.
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
# The subjects of which there must be exactly one event of each kind.
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
    """A row of the chain: what happened to what, and the hash of it and of everything before."""

    number: int
    kind: str
    subject: str
    hash: bytes


START = Link(-1, b"")


def last_link(select: Select) -> Link:
    """The end of the chain, unverified."""
    found = select("SELECT number, hash FROM chain ORDER BY number DESC LIMIT 1").fetchall()
    return Link(*found[0]) if found else START


def event(select: Select, number: int) -> ChainedEvent | None:
    """One event; None if there are not so many."""
    found = select("SELECT number, kind, subject, hash FROM chain WHERE number = ?", number).fetchone()
    return None if found is None else ChainedEvent(*found)


def events_after(select: Select, number: int) -> list[ChainedEvent]:
    """All events after one, in order."""
    rows = select("SELECT number, kind, subject, hash FROM chain WHERE number > ? ORDER BY number", number).fetchall()
    return [ChainedEvent(*row) for row in rows]


def following(select: Select, last: Link, kind: str, subject: str) -> Link:
    """The link of an event, from the rows that it wrote."""
    rows = [[_plain(entry) for entry in row] for row in select(_WRITTEN[kind], subject).fetchall()]
    content = json.dumps([last.number + 1, kind, subject, rows], separators=(",", ":")).encode()
    return Link(last.number + 1, hashlib.sha256(last.hash + content).digest())


def verified(select: Select, path: str) -> None:
    """Recomputes the chain from the tables; refuses a store in which they disagree."""
    last, seen = START, defaultdict[str, list[str]](list)
    for number, kind, subject, written in events_after(select, START.number):
        if kind not in _WRITTEN or following(select, last, kind, subject) != (number, written):
            raise _tampered(path, f"event {last.number + 1} is not what was written")
        last = Link(number, written)
        seen[kind].append(subject)
    for kind, query in _SUBJECTS.items():
        if sorted(seen[kind]) != sorted(subject for (subject,) in select(query).fetchall()):
            raise _tampered(path, f"its tables and its chain differ in events of kind `{kind}`")
    ((content, fingerprint),) = select("SELECT content, fingerprint FROM digest_key").fetchall()
    if content is not None and (seen["purge"] or fingerprint_of(content) != fingerprint):
        raise _tampered(path, "its digest key was exchanged")


def fingerprint_of(digest_key: bytes) -> bytes:
    """What is left of the digest key after a purge. It makes every hash of the chain unpredictable from outside."""
    return hashlib.sha256(digest_key).digest()


def _tampered(path: str, what: str) -> TamperedError:
    return TamperedError(
        f"Rows of `{path}` were changed by another program: {what}. It cannot be trusted any more; what it has spent "
        "is unknown."
    )


def _plain(entry: Any) -> Any:
    """An entry of a row as JSON, exactly and without mixing up types."""
    if isinstance(entry, bytes):
        return ["sha256", hashlib.sha256(entry).hexdigest()]
    return ["float", entry.hex()] if isinstance(entry, float) else entry
