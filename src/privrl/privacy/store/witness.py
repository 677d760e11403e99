"""What is kept outside a store about its events, best on another disk, so that an older copy is noticed."""

import abc
import json
import os
from collections.abc import Callable, Sequence
from typing import ClassVar

from privrl.privacy.store.chain import ChainedEvent, Link
from privrl.privacy.store.errors import BehindHeadError, StoreError


class AbstractWitness(abc.ABC):
    """A file outside a store that is told of every event, after its commit and before its effect is returned.

    Arguments:
        path: the file, made with the store.
    """

    kind: ClassVar[str]
    """What it is called in messages."""
    begun_by: ClassVar[str]
    """The command that makes one for a store which was used before, with its arguments."""
    complete: ClassVar[bool]
    """Whether it names every event, and is told of one before the next is written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(path)

    @property
    def title(self) -> str:
        """For messages."""
        return f"{self.kind} `{self.path}`"

    @abc.abstractmethod
    def known(self, event: Callable[[int], ChainedEvent | None], store: str) -> int | None:
        """The number of the last event that it knows, which must all be in the store; None if it was never told one."""

    @abc.abstractmethod
    def tell(self, events: Sequence[ChainedEvent], reached: Callable[[str], None]) -> None:
        """Writes down events that follow those that it knows; on disk when it returns."""

    def behind(self, store: str, number: int) -> BehindHeadError:
        """That a store lacks an event."""
        return BehindHeadError(
            f"`{store}` is behind its {self.title}: event {number} of the {self.kind} is not in the store. An older "
            f"copy was put back, a replica lags, rows were removed or rewritten, or the {self.kind} belongs to another "
            "store. Use the newest copy; what this one has spent is unknown."
        )


class Head(AbstractWitness):
    """A small file with the last link of a store that is known to have been written."""

    kind = "head"
    begun_by = "privrl store new-head STORE HEAD"
    complete = False

    def read(self) -> Link | None:
        """The link, or None if there is no such file."""
        try:
            with open(self.path, encoding="utf-8") as file:
                content = json.load(file)
            return Link(int(content["number"]), bytes.fromhex(content["hash"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"`{self.path}` cannot be read as the head of a store: {error!r}.") from error

    def known(self, event: Callable[[int], ChainedEvent | None], store: str) -> int | None:
        link = self.read()
        if link is None:
            return None
        found = event(link.number)
        if found is None or found.hash != link.hash:
            raise self.behind(store, link.number)
        return link.number

    def tell(self, events: Sequence[ChainedEvent], reached: Callable[[str], None]) -> None:
        """Replaces the file at once: whoever reads finds the old link or the new one, also after a power cut."""
        last = events[-1]
        beside = f"{self.path}.new"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(descriptor, json.dumps({"number": last.number, "hash": last.hash.hex()}).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        reached("head:beside")
        os.replace(beside, self.path)
        sync_folder(self.path)


def sync_folder(path: str) -> None:
    """Makes the name of a file durable."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
