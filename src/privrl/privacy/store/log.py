"""The audit log of a store: one line for every event, in a file outside the store to which lines are only added.

Line n is a JSON object with the number, kind, subject and hash of event n of the store's chain (for a release, its name
and a hash of its value and distribution) and

    line(n) = SHA-256(line(n - 1), number, kind, subject, hash)

so the log can be checked without the store. An event is committed in the store, then appended here and synced, and
only then is its effect returned; the next event is not written before. A process that dies in between leaves a store
that is one event ahead, or a part of a line. The next process completes the log, because an event determines its line.

**Formal guarantee.** No process that uses this log has returned a release that the log lacks. A store that lacks an
event of the log, or has another one in its place, is refused: an older copy, or a replica that lags. So is a log in
which a byte was changed or a line is missing, and one that lacks more than the last event.

The last rule does not hold if several machines write (PostgreSQL). Each machine then has a log of its own, which learns
of the others' events with its own next event. So a log that lost whole lines at its end is completed again, and an
older copy that lacks only what another machine has released since is refused by that machine's log alone: after a
restore, check the store against all logs before any machine continues.

An attacker who can replace the store and all its logs by older copies is not detected. Keep the log where backups of
the store are not restored, best on storage that is append-only.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence

from privrl.privacy.store.chain import ChainedEvent
from privrl.privacy.store.errors import AuditLogError, BehindLogError

NEW_LOG = "privrl store new-log STORE LOG"
"""The command that begins a new log for a store that was used before."""


class AuditLog:
    """A file that holds every event of a store. The object remembers what it has read, so reading again is cheap.

    Arguments:
        path: the file, created with the store.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(path)
        self._last: ChainedEvent | None = None  # the event of the last whole line that was read
        self._line = ""  # the hash of that line
        self._end = 0  # where that line ends
        self._torn = b""  # the part of a line that a crash left after it

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"audit log `{self.path}`"

    def read_known(self, event: Callable[[int], ChainedEvent | None], store: str) -> int | None:
        """The number of the last event in the log; `None` if there is none. All of its events must be in the store."""
        try:
            added = self._added()
        except FileNotFoundError:
            if self._end:
                raise self._damaged("it is missing") from None
            return None
        if self._last is not None and event(self._last.number) != self._last:  # the store was replaced meanwhile
            raise self._behind(store, self._last.number)
        *lines, self._torn = added.split(b"\n")
        for line in lines:
            found = self._read(line)
            if event(found.number) != found:
                raise self._behind(store, found.number)
            self._last, self._line = found, json.loads(line)["line"]
            self._end += len(line) + 1
        if self._torn:  # an event is committed before anything of its line is written
            following = event(self._next)
            if following is None:
                raise self._behind(store, self._next)
            if not _text(following, self._line).startswith(self._torn):
                raise self._damaged(f"line {self._next + 1} is not what was written")
        return None if self._last is None else self._last.number

    def append(self, events: Sequence[ChainedEvent], reached: Callable[[str], None]) -> None:
        """Appends the lines of events, of which the first may be there in part. They are on disk when it returns."""
        text, line = b"", self._line
        for event in events:
            added = _text(event, line)
            text, line = text + added, json.loads(added)["line"]
        new = not os.path.exists(self.path)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            rest = text[len(self._torn) :]
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            reached("log:written")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if new:
            sync_folder(self.path)

    @property
    def _next(self) -> int:
        """The number of the event whose line comes next."""
        return 0 if self._last is None else self._last.number + 1

    def _added(self) -> bytes:
        """The bytes that were added since this object last read the file."""
        with open(self.path, "rb") as file:
            if file.seek(0, os.SEEK_END) < self._end:
                raise self._damaged("lines were removed while it was in use")
            file.seek(self._end)
            return file.read()

    def _read(self, line: bytes) -> ChainedEvent:
        """Reads the event of a whole line, which must follow the last one."""
        try:
            content = json.loads(line)
            event = ChainedEvent(content["number"], content["kind"], content["subject"], bytes.fromhex(content["hash"]))
            fine = event.number == self._next and _text(event, self._line) == line + b"\n"
        except (ValueError, KeyError, TypeError):
            fine = False
        if not fine:
            raise self._damaged(f"line {self._next + 1} is not what was written")
        return event

    def _behind(self, store: str, number: int) -> BehindLogError:
        return BehindLogError(
            f"`{store}` is behind its {self.title}: event {number} of the log is not in the store. An older copy was "
            "restored, a replica lags, rows were removed or rewritten, or the log belongs to another store. Use the "
            "newest copy; what this one has spent is unknown."
        )

    def _damaged(self, what: str) -> AuditLogError:
        return AuditLogError(
            f"The {self.title} was changed: {what}. Restore it. If you know that the store is the newest copy, put "
            f"this log aside and begin another: `{NEW_LOG}`."
        )


def _text(event: ChainedEvent, before: str) -> bytes:
    """The line of an event, after a line with the given hash."""
    content = {"number": event.number, "kind": event.kind, "subject": event.subject, "hash": event.hash.hex()}
    line = hashlib.sha256((before + json.dumps(content, separators=(",", ":"))).encode()).hexdigest()
    return json.dumps(content | {"line": line}, separators=(",", ":")).encode() + b"\n"


def sync_folder(path: str) -> None:
    """Makes the name of a file durable."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
