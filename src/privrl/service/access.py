"""Keys: who may call what, kept as hashes in a file beside the study file.

Not in the store: what the store keeps is for ever and part of what was declared and spent, while a key must be
revocable at any moment, also after a purge; and the store is opened by the writer's thread alone.
Where several machines serve one study, each has a copy of the study file and of this one. A running service reads it
again within a second after a change. A file that was removed, or that cannot be read, revokes all keys.

**Formal guarantee.** A key has 256 random bits; the file holds their SHA-256, from which nobody can find it. It is
owner-only, and replaced as a whole.
"""

import hashlib
import os
import re
import secrets
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

import msgspec

Role = Literal["app", "device", "operator"]
ROLES: tuple[Role, ...] = get_args(Role)
_NAME = re.compile(r"[^\x00-\x1f]{1,60}")
_PREFIX = "prk_"


class AccessKey(msgspec.Struct, frozen=True):
    """What is known of a key: its name, who has it, when it was made, and its hash."""

    name: str
    role: Role
    added: str
    sha256: str


class KeyFile:
    """The keys of one study."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, AccessKey]:
        """All keys, by name. A missing file has none.

        Raises:
            ValueError: if the file is not a list of keys.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            kept = msgspec.json.decode(content, type=list[AccessKey])
        except ValueError as error:  # msgspec's errors, and bytes that are not UTF-8
            raise ValueError(f"`{self.path}` is not a file of keys. Restore it, or make new keys.") from error
        return {key.name: key for key in kept}

    def add(self, role: Role, name: str) -> str:
        """A new key, in words that are shown once."""
        return add_key([self], role, name)

    def revoke(self, name: str) -> None:
        """Ends a key."""
        known = self.read()
        if known.pop(name, None) is None:
            raise ValueError(f"There is no key {name!r}. There are: {', '.join(map(repr, known)) or 'none'}.")
        self.write(known)

    def write(self, keys: dict[str, AccessKey]) -> None:
        """Replaces all keys."""
        whole = msgspec.json.format(msgspec.json.encode(list(keys.values())))
        descriptor, scratch = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(whole + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, self.path)
        except BaseException:
            os.unlink(scratch)
            raise


def add_key(files: Sequence[KeyFile], role: Role, name: str) -> str:
    """A new key for several studies at once, in words that are shown once."""
    for file in files:
        if not _NAME.fullmatch(name) or name in file.read():
            raise ValueError(f"`--name` is {name!r}; it must be 1 to 60 characters that no other key of the study has.")
    token = _PREFIX + secrets.token_urlsafe(32)
    made = AccessKey(name, role, datetime.now(UTC).date().isoformat(), hash_of(token))
    for file in files:
        file.write({**file.read(), name: made})
    return token


def hash_of(token: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(token.encode()).hexdigest()
