"""The studies that a process serves, and what all of them have in common."""

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from privrl.privacy.store.store import ReleaseStore
from privrl.service.access import AccessKey, Role, hash_of
from privrl.service.counters import Counters
from privrl.service.refusals import RefusedError
from privrl.service.study_file import StudyFile

T = TypeVar("T")
Condition = Literal["starting", "ready", "paused", "purged", "failed"]
_BEARER = b"Bearer "


@dataclass(frozen=True)
class PublicView:
    """What is public about a study at one moment; a new one is put in its place, and none is ever changed.

    Attributes:
        plan: the number of the newest plan.
        ends: the public ends of the blocks; those before `plan` are closed.
        arrived: how many tickets were handed out (in ranges, in a local study).
        certificate: what everything released can reveal, as JSON.
        shown: `ReleaseStore.shown()`: declared, spent, released and burnt.
    """

    plan: int = 0
    ends: tuple[int, ...] = ()
    arrived: int = 0
    certificate: Mapping[str, Any] = field(default_factory=dict)
    shown: Mapping[str, Any] = field(default_factory=dict)


class AbstractServed(abc.ABC):
    """One study as the service has it.

    Attributes:
        file: what was declared.
        view: what is public now.
        counters: of this study.
        keys: by their hash.
    """

    def __init__(self, file: StudyFile) -> None:
        self.file = file
        self.view = PublicView()
        self.counters = Counters()
        self.keys: dict[str, AccessKey] = {}
        self.condition: Condition = "starting"

    @property
    def name(self) -> str:
        """Its name in addresses."""
        return self.file.name

    @property
    def kind(self) -> str:
        """`central` or `local`."""
        return self.file.kind

    @abc.abstractmethod
    async def in_writer(self, work: Callable[[ReleaseStore], T]) -> T:
        """Calls `work` with the store in the thread that has it, after what was queued before."""

    @abc.abstractmethod
    def start(self) -> None:
        """Opens the store and compiles, in a thread; `condition` says when that is done."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Ends the thread after what is queued, and closes the store."""

    def pause(self) -> None:
        """From now on nobody new and no record is taken; clocks go on."""
        self.condition = "paused"

    def resume(self) -> None:
        """Takes people again."""
        self.condition = "ready"

    async def purge(self) -> None:
        """Removes what is raw for good."""
        await self.in_writer(lambda store: store.purge())
        self.condition = "purged"


class Studies:
    """All studies of a process, by name."""

    def __init__(self, served: Sequence[AbstractServed]) -> None:
        self._by_name = {one.name: one for one in served}
        self.counters = Counters()
        """Of requests that name no study."""

    def __iter__(self) -> Iterator[AbstractServed]:
        return iter(self._by_name.values())

    def named(self, name: str) -> AbstractServed:
        """The study of a name."""
        served = self._by_name.get(name)
        if served is None:
            raise RefusedError("unknown-study", "This service has no study of this name.")
        return served

    def authorise(
        self, header: bytes | None, roles: Sequence[Role], served: AbstractServed | None = None
    ) -> list[AbstractServed]:
        """The studies for which the key of a request has one of these roles; refused if there is none.

        Arguments:
            header: `Authorization: Bearer KEY`.
            served: the study that the request is about, if it is about one.
        """
        if header is None or not header.startswith(_BEARER):
            raise RefusedError("no-key", "Send `Authorization: Bearer KEY`; `privrl serve key add` makes one.")
        sha256 = hash_of(header[len(_BEARER) :].decode("latin-1"))
        found = [
            one
            for one in ([served] if served is not None else self)
            if sha256 in one.keys and one.keys[sha256].role in roles
        ]
        if not found:
            raise RefusedError("wrong-key", "This key is unknown here, was revoked, or has another role.")
        return found
