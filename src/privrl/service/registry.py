"""The studies that a process serves, and what all of them have in common."""

import abc
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from privrl.privacy.store.release_store import ReleaseStore
from privrl.service.access import AccessKey, KeyFile, Role, hash_of
from privrl.service.counters import Counters
from privrl.service.opening import open_store
from privrl.service.refusals import RefusedError, not_open
from privrl.service.study_file import StudyFile
from privrl.service.writer import Job, Writer

T = TypeVar("T")
ServedState = Literal["starting", "ready", "paused", "purged", "failed"]
_BEARER = b"bearer "
_WORK = "work"
_KEY_POLL = 0.5  # seconds between looks at the key files
_LOG = logging.getLogger("privrl.service")


@dataclass(frozen=True)
class PublicView:
    """What is public about a study at one moment; a new one is put in its place, and none is ever changed.

    Attributes:
        plan: the number of the newest plan.
        ends: the public ends of the blocks; the first `plan` of them are closed.
        certificate: what everything released can reveal, as JSON.
        shown: `ReleaseStore.shown()`: declared, spent, released, burnt, and the tickets that were handed out.
    """

    plan: int = 0
    ends: tuple[int, ...] = ()
    certificate: Mapping[str, Any] = field(default_factory=dict)
    shown: Mapping[str, Any] = field(default_factory=dict)


class AbstractServed(abc.ABC):
    """One study as the service has it: what the event loop may look at, and the writer that has its store.

    Attributes:
        file: what was declared.
        view: what is public; replaced by the writer.
        counters: of this study.
        keys: by their hash; replaced when the file of keys was changed.
        paused: nobody new and no record is taken; clocks go on.
    """

    def __init__(self, file: StudyFile, clock: Callable[[], float]) -> None:
        self.file, self._clock = file, clock
        self.view = PublicView(ends=tuple(int(end) for end in file.ends()))
        self.counters = Counters()
        self.keys: dict[str, AccessKey] = {}
        self.paused = False
        self._time = self._public_time()
        self.writer = Writer(self, file.name, file.queue, self._public_time)
        self._store: ReleaseStore | None = None
        self._key_version: tuple[int, int, int] | None = None
        self._key_problem = ""

    def _public_time(self) -> float:
        """The time in whole seconds: a commit takes less, so that how long one takes decides about nothing."""
        return float(math.floor(self._clock()))

    @property
    def name(self) -> str:
        """Its name in addresses."""
        return self.file.name

    @property
    def kind(self) -> str:
        """`central` or `local`."""
        return self.file.kind

    @property
    def state(self) -> ServedState:
        """Whether people are taken, and why not."""
        if self.writer.state != "ready":
            return "starting" if self.writer.state == "starting" else "failed"
        if self.view.shown.get("purged"):
            return "purged"
        return "paused" if self.paused else "ready"

    def check_open(self) -> None:
        """Refuses what needs a study that takes people."""
        state = self.state
        if state == "purged":
            raise RefusedError("purged", "This study has ended; what was raw is gone, and nothing new is accepted.")
        if state == "paused":
            raise RefusedError("paused", "The operator has paused this study. Nothing was kept; send this again later.")
        if state != "ready":
            raise not_open(state == "failed")

    def pause(self) -> None:
        """Takes nobody new and no record from now on; clocks go on."""
        self.paused = True

    def resume(self) -> None:
        """Takes people again."""
        self.paused = False

    async def in_writer(self, work: Callable[[ReleaseStore], T]) -> T:
        """Calls `work` with the store in the thread that has it, after what was queued before."""
        (answer,) = await self.writer.submit(_WORK, [work])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def purge(self) -> None:
        """Removes what is raw for good."""
        await self.in_writer(lambda store: store.purge())
        await self.refresh()

    async def refresh(self) -> PublicView:
        """The view with what the store shows now; otherwise that is as old as the newest plan."""

        def shown(store: ReleaseStore) -> None:
            self._publish(shown=store.shown())

        await self.in_writer(shown)
        return self.view

    # ------------------------------------------------------------------------------------------ in the writer's thread

    @abc.abstractmethod
    def _begun(self, store: ReleaseStore) -> None:
        """Makes what learns, compiles what it needs, and publishes the first view."""

    @abc.abstractmethod
    def _answered(self, kind: str, people: Sequence[Any]) -> list[Any]:
        """The answers to people of one kind, committed."""

    @abc.abstractmethod
    def _plan_again(self) -> float | None:
        """Closes blocks and publishes; seconds until the next one closes, if that is known."""

    def opened(self) -> None:
        self._store = open_store(self.file)
        self._begun(self._store)

    def closed(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def committed(self, jobs: Sequence[Job]) -> list[list[Any]]:
        groups: dict[tuple[float, str], list[Job]] = {}
        for job in jobs:
            groups.setdefault((job.time, job.kind), []).append(job)
        answers: dict[int, list[Any]] = {}
        for (now, kind), some in groups.items():
            self._time = now
            people = [person for job in some for person in job.people]
            found = iter(self._worked(people) if kind == _WORK else self._answered(kind, people))
            answers |= {id(job): list(itertools.islice(found, len(job.people))) for job in some}
        return [answers[id(job)] for job in jobs]

    def caught_up(self, now: float) -> float | None:
        self._time = now
        return None if self.view.shown.get("purged") else self._plan_again()

    def _worked(self, people: Sequence[Callable[[ReleaseStore], Any]]) -> list[Any]:
        assert self._store is not None
        answers: list[Any] = []
        for work in people:
            try:
                answers.append(work(self._store))
            except Exception as error:
                answers.append(error)
        return answers

    def _publish(self, **changed: Any) -> None:
        self.view = PublicView(**{**vars(self.view), **changed})

    def read_keys(self) -> None:
        """Read the key file if it has changed. A file that is missing or cannot be read revokes all keys."""
        path = self.file.keys_place
        try:
            found = path.stat()  # before the content: a change in between is seen next time
            version = (found.st_ino, found.st_ctime_ns, found.st_size)
            if version == self._key_version:
                return
            self.keys = {key.sha256: key for key in KeyFile(path).read().values()}
            self._key_version, problem = version, ""
        except (OSError, ValueError) as error:
            self.keys, self._key_version = {}, None
            problem = f"it cannot be read ({error.strerror})" if isinstance(error, OSError) else "it is damaged"
        if problem and problem != self._key_problem:
            _LOG.warning("No key of `%s` is valid any more: `%s` is the key file, and %s.", self.name, path, problem)
        self._key_problem = problem


class Studies:
    """All studies of a process, by name."""

    def __init__(self, served: Sequence[AbstractServed]) -> None:
        self._by_name = {one.name: one for one in served}
        places = {one.file.place for one in served}
        if len(self._by_name) < len(served) or len(places) < len(served):
            raise ValueError("Two study files have the same name or the same store. Each study has its own.")
        self.counters = Counters()
        """Of requests that name no study."""
        self.operator_hosts = frozenset(("127.0.0.1", "localhost", "[::1]"))
        """The names under which the operator's listener answers."""
        self._ended = threading.Event()

    def __iter__(self) -> Iterator[AbstractServed]:
        return iter(self._by_name.values())

    def start(self) -> None:
        """Reads the keys, so that nobody's is taken for a wrong one, and opens all stores, each in its writer."""
        for one in self:
            one.read_keys()
            one.writer.start()
        threading.Thread(target=self._watch_keys, name="keys", daemon=True).start()

    def stop(self) -> None:
        """Ends all writers after what is queued."""
        self._ended.set()
        for one in self:
            one.writer.stop()

    def _watch_keys(self) -> None:
        # In a thread of its own: a writer that is busy, or whose store is down, must not keep a revoked key alive.
        while not self._ended.wait(_KEY_POLL):
            for one in self:
                one.read_keys()

    def wait(self, seconds: float) -> None:
        """Waits until everything is ready; raises what the first opening of a store has raised."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.failure is not None:
                raise self.failure
            if self.ready:
                return
            time.sleep(0.02)
        raise TimeoutError("The studies were not ready in time.")

    @property
    def failure(self) -> Exception | None:
        """Why a store could not be opened for the first time."""
        return next((one.writer.failure for one in self if one.writer.failure is not None), None)

    @property
    def ready(self) -> bool:
        """Whether every store is open and every program compiled."""
        return all(one.writer.state == "ready" for one in self)

    def named(self, name: str) -> AbstractServed:
        """The study of a name."""
        served = self._by_name.get(name)
        if served is None:
            raise RefusedError("unknown-study", "This service has no study of this name.")
        return served

    def key(self, header: bytes | None, roles: Sequence[Role], served: AbstractServed) -> AccessKey:
        """The key of a request about a study, if it has one of these roles there; refused otherwise."""
        found = served.keys.get(_hash_of(header))
        if found is None or found.role not in roles:
            raise _wrong_key()
        return found

    def authorised(self, header: bytes | None, roles: Sequence[Role]) -> list[AbstractServed]:
        """All studies for which the key of a request has one of these roles; refused if there is none."""
        sha256 = _hash_of(header)
        found = [one for one in self if sha256 in one.keys and one.keys[sha256].role in roles]
        if not found:
            raise _wrong_key()
        return found


def _hash_of(header: bytes | None) -> str:
    """The hash of the key in `Authorization: Bearer KEY`; the first word may be written in lower case."""
    if header is None or header[: len(_BEARER)].lower() != _BEARER:
        raise RefusedError("no-key", "Send `Authorization: Bearer KEY`; `privrl serve key add` makes one.")
    return hash_of(header[len(_BEARER) :].decode("latin-1"))


def _wrong_key() -> RefusedError:
    words = "This key is unknown here, was revoked, or has another role; `privrl serve key list` shows what there is."
    return RefusedError("wrong-key", words)
