"""Keys: who may call what, kept as hashes in a file next to the study file.

Keys are not in the store, because the store is permanent and records what was declared and spent, while a key can be
revoked at any moment, also after a purge. If several machines serve one study, each has a copy of the study file and of
the key file. A running service reads the file again within a second after a change. A file that was removed, or that
cannot be read, revokes all keys.

**Formal guarantee.** A key has 256 random bits. The file holds its SHA-256, which does not reveal it. Only the owner
can read the file, and it is replaced as a whole.
"""

import hashlib
import os
import re
import secrets
import tempfile
import tomllib
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
    """What is kept of a key: its name, its role, the day on which it was made, and its hash."""

    name: str
    role: Role
    added: str
    sha256: str


class KeyedStudy(msgspec.Struct, frozen=True):
    """What keys depend on in a study file; `serve check` looks at the rest of it, which takes longer."""

    path: Path
    kind: Literal["central", "local"]
    name: str

    @classmethod
    def read(cls, path: Path) -> "KeyedStudy":
        """The study of a file."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
            return msgspec.convert({"path": str(path.absolute()), **content}, cls, dec_hook=lambda kind, x: kind(x))
        except FileNotFoundError:
            raise ValueError(f"There is no study file `{path}`.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
            raise ValueError(f"`{path}` declares no study: {error}. Look at it with `privrl serve check`.") from error

    @property
    def keys_place(self) -> Path:
        """The file of keys."""
        return self.path.with_suffix(".keys")


class KeyFile:
    """The keys of one study."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, AccessKey]:
        """Read all keys, by name. A missing file has none.

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
            raise ValueError(f"`{self.path}` is not a key file. Restore it, or remove it and make new keys.") from error
        return {key.name: key for key in kept}

    def add(self, role: Role, name: str) -> str:
        """Make a key and return it. It cannot be shown again."""
        return add_key([self], role, name)

    def revoke(self, name: str) -> None:
        """Revoke a key.

        Raises:
            ValueError: if there is no key of this name.
        """
        known = self.read()
        if known.pop(name, None) is None:
            raise ValueError(f"There is no key {name!r}. The keys are: {', '.join(map(repr, known)) or 'none'}.")
        self.write(known)

    def write(self, keys: dict[str, AccessKey]) -> None:
        """Replace all keys."""
        content = msgspec.json.format(msgspec.json.encode(list(keys.values())))
        descriptor, scratch = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, self.path)
        except BaseException:
            os.unlink(scratch)
            raise


def add_key(files: Sequence[KeyFile], role: Role, name: str) -> str:
    """Make one key for several studies and return it. It cannot be shown again.

    Raises:
        ValueError: if the name is not allowed, or a study has a key of this name.
    """
    for file in files:
        if not _NAME.fullmatch(name) or name in file.read():
            raise ValueError(f"`--name` is {name!r}. Give 1 to 60 characters that are not the name of another key.")
    token = _PREFIX + secrets.token_urlsafe(32)
    made = AccessKey(name, role, datetime.now(UTC).date().isoformat(), hash_key(token))
    for file in files:
        file.write({**file.read(), name: made})
    return token


def hash_key(token: str) -> str:
    """Hash a key, as it is kept."""
    return hashlib.sha256(token.encode()).hexdigest()
