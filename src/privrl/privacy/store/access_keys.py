"""Keys of programs that use a store through a service: kept as hashes, revoked and never deleted.

They are in the store so that all machines that serve a study agree on them. They are outside the hash chain and the
audit log, because they neither declare nor spend anything: an older copy of a store that lacks no release may bring a
revoked key back. They outlive a purge, because an operator still reads what remains.
"""

import abc
from typing import NamedTuple

from privrl.privacy.store.engine import AbstractEngine, now

_LOCK = "access keys"


class StoredKey(NamedTuple):
    """What is kept of a key.

    Attributes:
        sha256: the hash of the key.
        name: unique among the keys that are not revoked.
        role: what the key allows, in the words of the service.
        added: the day on which it was added (UTC).
        expires: the time from which it is refused, in seconds since 1970; `None` if it does not expire.
        revoked: the day on which it was revoked; `None` if it was not.
    """

    sha256: str
    name: str
    role: str
    added: str
    expires: int | None
    revoked: str | None


class AbstractAccessKeys(abc.ABC):
    """The part of a store that keeps keys."""

    _engine: AbstractEngine

    def access_keys(self) -> list[StoredKey]:
        """All keys, in the order of their days and names, revoked ones included."""
        columns = ", ".join(StoredKey._fields)
        found = self._engine.execute(f"SELECT {columns} FROM access_keys ORDER BY added, name").fetchall()
        return [StoredKey(*row) for row in found]

    def add_access_key(self, sha256: str, name: str, role: str, expires: int | None = None) -> None:
        """Adds a key.

        Raises:
            ValueError: if a key of this name is in use.
        """
        with self._engine.transaction("key", _LOCK):
            query = "SELECT 1 FROM access_keys WHERE name = ? AND revoked IS NULL"
            if self._engine.execute(query, name).fetchone() is not None:
                raise ValueError(f"There is a key {name!r} already. Choose another name, or revoke that key first.")
            row = StoredKey(sha256, name, role, now()[:10], expires, None)
            self._engine.execute("INSERT INTO access_keys VALUES (?, ?, ?, ?, ?, ?)", *row)

    def revoke_access_key(self, name: str) -> None:
        """Revokes a key.

        Raises:
            ValueError: if no key of this name is in use.
        """
        with self._engine.transaction("key", _LOCK):
            used = [key.name for key in self.access_keys() if key.revoked is None]
            if name not in used:
                raise ValueError(f"There is no key {name!r}. The keys are: {', '.join(map(repr, used)) or 'none'}.")
            revoke = "UPDATE access_keys SET revoked = ? WHERE name = ? AND revoked IS NULL"
            self._engine.execute(revoke, now()[:10], name)
