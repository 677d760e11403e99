"""Keys: who may call what. Their hashes are in the study's store, so all machines that serve the study agree on them.

`privrl serve key` adds, lists and revokes keys in the store. A running service reads them once a second, in a thread of
its own for each study: neither a busy writer nor the unreachable database of another study keeps a revoked key alive.

**Formal guarantee.** A key has 256 random bits. The store holds its SHA-256, which does not reveal it. A key that was
revoked, or has expired, is refused by every machine within seconds if that machine reaches the store. If a machine has
not read the keys for `MAX_AGE_SECONDS`, it refuses all requests that need a key, except for requests of the operator
that only read.
"""

import hashlib
import logging
import re
import secrets
import threading
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from privrl.privacy.store.release_store import ADDRESSES, ReleaseStore, place_of, store_exists
from privrl.service.event_log import log_event
from privrl.service.refusals import RefusedError, refuse_not_open

Role = Literal["app", "device", "operator"]
ROLES: tuple[Role, ...] = get_args(Role)
MAX_AGE_SECONDS = 60.0
"""How long a machine that cannot reach the store uses the keys that it last read."""
_POLL_SECONDS = 1.0
_STOP_SECONDS = 5.0  # that the end of a process waits for a database
_NAME = re.compile(r"[^\x00-\x1f]{1,60}")
_PREFIX, _BEARER = "prk_", "bearer "


class AccessKey(msgspec.Struct, frozen=True):
    """A key that was not revoked: its name, its role, the day on which it was added, its hash, and when it expires
    (seconds since 1970).
    """

    name: str
    role: Role
    added: str
    sha256: str
    expires: int | None = None


class KeyedStudy(msgspec.Struct, frozen=True):
    """What keys depend on in a study file; `serve check` looks at the rest of it, which takes longer."""

    path: Path
    kind: Literal["central", "local", "pilot"]
    name: str
    store: str

    @classmethod
    def read(cls, path: Path) -> "KeyedStudy":
        """The study of a file."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
            if is_protocol(content):
                content = {"kind": "pilot", "store": pilot_store(path), **content, **content.get("serve", {})}
            return msgspec.convert({"path": str(path.absolute()), **content}, cls, dec_hook=lambda kind, x: kind(x))
        except FileNotFoundError:
            raise ValueError(f"There is no study file `{path}`.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
            raise ValueError(f"`{path}` declares no study: {error}. Look at it with `privrl serve check`.") from error

    @property
    def keys(self) -> "StoredKeys":
        """The keys of the study."""
        return StoredKeys(place_of_store(self.path, self.store))


def is_protocol(content: Mapping[str, object]) -> bool:
    """Whether the content of a study file is the protocol of a pilot."""
    return "kind" not in content and "arms" in content


def pilot_store(protocol_file: Path) -> str:
    """The default store of a pilot, next to its protocol."""
    return f"{protocol_file.stem}.db"


def place_of_store(study_file: Path, store: str) -> str:
    """The path or address of the store of a study file."""
    return store if store.startswith(ADDRESSES) else str(study_file.parent / store)


class StoredKeys:
    """The keys of one study, in its store.

    Arguments:
        place: the path or address of the store.
    """

    def __init__(self, place: str) -> None:
        self.place = place

    def read(self) -> dict[str, AccessKey]:
        """Read the keys that are not revoked, by name."""
        with self.open() as store:
            return read_keys(store)

    def add(self, role: Role, name: str, seconds: float | None = None) -> str:
        """Make a key and return it. It cannot be shown again."""
        return add_key([self], role, name, seconds)

    def revoke(self, name: str) -> None:
        """Revoke a key.

        Raises:
            ValueError: if there is no key of this name.
        """
        with self.open() as store:
            store.revoke_access_key(name)

    def open(self) -> ReleaseStore:
        """Open the store, without its audit log: keys are not in the log.

        Raises:
            ValueError: if there is no store.
        """
        if not store_exists(self.place):
            raise ValueError(f"There is no store `{place_of(self.place)}` yet. Begin the study: `privrl serve init`.")
        return ReleaseStore(self.place)


def read_keys(store: ReleaseStore) -> dict[str, AccessKey]:
    """Read the keys of a store that are not revoked, by name."""
    kept = [key for key in store.access_keys() if key.revoked is None]
    return {key.name: AccessKey(key.name, _role(key.role), key.added, key.sha256, key.expires) for key in kept}


def _role(text: str) -> Role:
    return msgspec.convert(text, Role)


def add_key(studies: Sequence[StoredKeys], role: Role, name: str, seconds: float | None = None) -> str:
    """Make one key for several studies and return it. It cannot be shown again.

    Arguments:
        seconds: the time until the key expires; `None` if it does not.

    Raises:
        ValueError: if the name is not allowed, or a study has a key of this name.
    """
    for study in studies:
        if not _NAME.fullmatch(name) or name in study.read():
            raise ValueError(f"`--name` is {name!r}. Give 1 to 60 characters that are not the name of another key.")
    token = _PREFIX + secrets.token_urlsafe(32)
    expires = None if seconds is None else int(time.time() + seconds)
    for study in studies:
        with study.open() as store:
            store.add_access_key(hash_key(token), name, role, expires)
    return token


def hash_key(token: str) -> str:
    """Hash a key, as it is kept."""
    return hashlib.sha256(token.encode()).hexdigest()


class WatchedKeys:
    """The keys of one study in a running service, read from the store once a second.

    Arguments:
        study: the name of the study, for the log.
        clock: seconds since 1970, for keys that expire.

    Attributes:
        by_hash: the keys that are not revoked.
    """

    def __init__(self, study: str, kept: StoredKeys, clock: Callable[[], float]) -> None:
        self._study, self._kept, self._clock = study, kept, clock
        self.by_hash: dict[str, AccessKey] = {}
        self._read_at = -float("inf")
        self._failed = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"keys of {study}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, which closes its store. If the database does not answer, do not wait for it."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    @property
    def known(self) -> bool:
        """Whether the keys were read at least once."""
        return self._read_at > 0

    @property
    def current(self) -> bool:
        """Whether the keys were read recently enough to rely on them."""
        return time.monotonic() - self._read_at < MAX_AGE_SECONDS

    def find(self, header: str | None, roles: Sequence[Role], *, reading: bool = False) -> AccessKey:
        """Find the key of a request.

        Arguments:
            header: `Authorization: Bearer KEY`.
            roles: those that may do this.
            reading: the request shows the operator what is wrong, so keys are used that may have been revoked since
                the store became unreachable.

        Raises:
            RefusedError: if the key is unknown, was revoked, has expired or has another role; or if it is not known
                whether it was revoked.
        """
        sha256 = hash_header(header)
        if not self.known:
            raise refuse_not_open(self._failed)
        if not (reading or self.current):
            raise RefusedError(
                "unavailable",
                f"The keys of this study could not be read for {MAX_AGE_SECONDS:.0f} seconds, because its store cannot "
                "be reached. Nothing was kept; try again later.",
            )
        found = self.by_hash.get(sha256)
        if found is None or found.role not in roles or (found.expires is not None and self._clock() >= found.expires):
            detail = "This key is unknown here, was revoked, has expired, or has another role; see `privrl serve key`."
            raise RefusedError("wrong-key", detail)
        return found

    def read(self, store: ReleaseStore) -> None:
        """Read the keys from the open store."""
        began = time.monotonic()  # a change that is committed after this may be missed
        found = {key.sha256: key for key in read_keys(store).values()}
        if self.known:
            for sha256 in found.keys() - self.by_hash.keys():
                log_event("key", "A key was added.", study=self._study, key=found[sha256].name)
            for sha256 in self.by_hash.keys() - found.keys():
                log_event("key", "A key was revoked.", study=self._study, key=self.by_hash[sha256].name)
        self.by_hash, self._read_at = found, began

    def _watch(self) -> None:
        store: ReleaseStore | None = None
        while not self._ended.is_set():
            try:
                store = self._kept.open() if store is None else store
                self.read(store)
                if self._failed:
                    log_event("reconnect", "The keys can be read again.", study=self._study)
                self._failed = False
            except Exception as error:
                if store is not None:
                    store.close()
                    store = None
                if not self._failed and not self._ended.is_set():
                    remedy = "Those read before are used for a minute." if self.known else "No key is accepted yet."
                    message = f"The keys cannot be read ({type(error).__name__}). {remedy}"
                    log_event("failure", message, study=self._study, level=logging.WARNING)
                self._failed = True
            self._ended.wait(_POLL_SECONDS)
        if store is not None:
            store.close()


def hash_header(header: str | None) -> str:
    """Hash the key in `Authorization: Bearer KEY`."""
    if header is None or header[: len(_BEARER)].lower() != _BEARER:
        raise RefusedError("no-key", "Send `Authorization: Bearer KEY`; `privrl serve key add` makes a key.")
    return hash_key(header[len(_BEARER) :])
