"""The studies that a process serves, and what central and local ones have in common."""

import abc
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, cast

from privrl.privacy.store.errors import may_pass
from privrl.privacy.store.release_store import ReleaseStore
from privrl.service.access import Role, WatchedKeys, hash_header
from privrl.service.clock_watch import ClockWatch
from privrl.service.counters import Counters
from privrl.service.opening import open_store
from privrl.service.refusals import RefusedError, refuse_not_open
from privrl.service.study_file import StudyFile
from privrl.service.tls import LiveTls
from privrl.service.writer import Job, Writer

T = TypeVar("T")
StudyState = Literal["starting", "ready", "paused", "purged", "failed"]
_WORK = "work"
_LOG = logging.getLogger("privrl.service")


@dataclass(frozen=True)
class PublicView:
    """What is public about a study at one moment. The writer replaces the view and never changes it.

    Attributes:
        plan: the number of the plan in force.
        closed: the number of blocks that are closed and released.
        ends: the public ends of the blocks.
        last_release, next_release: when the last block closed and the open one will, in seconds since 1970.
        certificate: a bound on what all releases reveal, as JSON.
        shown: `ReleaseStore.describe()`: the declared and spent budget, releases, and issued tickets.
    """

    plan: int = 0
    closed: int = 0
    ends: tuple[int, ...] = ()
    last_release: float | None = None
    next_release: float | None = None
    certificate: Mapping[str, Any] = field(default_factory=dict)
    shown: Mapping[str, Any] = field(default_factory=dict)


class AbstractServedStudy(abc.ABC):
    """One study of a service: what the event loop may read, and the writer that uses the store.

    Attributes:
        file: the declaration.
        view: what is public; replaced by the writer.
        counters: of this study.
        uses_rewards: whether the study learns from the rewards in records.
        keys: of this study, as the store has them.
        clock_watch: compares the clock with the arrivals of a central study.
        paused: neither people nor records are accepted. Deadlines stay as they are.
    """

    def __init__(self, file: StudyFile, clock: Callable[[], float]) -> None:
        self.file, self._clock = file, clock
        self.view = PublicView(ends=tuple(int(end) for end in file.ends()))
        self.counters = Counters()
        self.uses_rewards = file.uses_rewards
        self.keys = WatchedKeys(file.name, file.keys, clock)
        self.clock_watch = ClockWatch(file.name, file.max_clock_jump)
        self.paused = False
        self._time = self._public_time()
        self.writer = Writer(self, file.name, file.queue, self._public_time)
        self._store: ReleaseStore | None = None

    def _public_time(self) -> float:
        """The time in whole seconds. A commit takes less, so its duration decides nothing."""
        return float(math.floor(self._clock()))

    @property
    def name(self) -> str:
        """The name in addresses."""
        return self.file.name

    @property
    def kind(self) -> str:
        """`central` or `local`."""
        return self.file.kind

    @property
    def state(self) -> StudyState:
        """Whether the study accepts people, and why not."""
        if self.writer.state != "ready":
            return "starting" if self.writer.state == "starting" else "failed"
        if self.view.shown.get("purged"):
            return "purged"
        return "paused" if self.paused else "ready"

    @property
    def starting(self) -> bool:
        """Whether it is not known yet if the study can be served."""
        return self.state == "starting" or (self.state != "failed" and not self.keys.known)

    @property
    def missing(self) -> str:
        """What the study is missing to be served; empty if it can be served."""
        if self.state == "failed":
            return "The store cannot be used; the service keeps trying, and its log has the reason."
        if self.starting:
            return "The study is being opened."
        return "" if self.keys.current else "The keys cannot be read from the store; the service keeps trying."

    @property
    def next_release_seconds(self) -> float | None:
        """Seconds until the open block closes, if that is known."""
        closing = self.view.next_release
        return None if closing is None else max(0.0, closing - self._clock())

    def check_open(self) -> None:
        """Refuse a request unless the study accepts people."""
        state = self.state
        if state == "purged":
            raise RefusedError(
                "purged",
                "This study has ended and its raw sums are deleted. Nothing new is accepted; serve people without a "
                "ticket, from the last plan.",
            )
        if state == "paused":
            raise RefusedError("paused", "The operator has paused this study. Nothing was kept; try again later.")
        if state != "ready":
            raise refuse_not_open(state == "failed")

    async def run_in_writer(self, work: Callable[[ReleaseStore], T]) -> T:
        """Call `work` with the store in the writer's thread, after everything that was queued before."""
        (answer,) = await self.writer.submit(_WORK, [work])
        if isinstance(answer, Exception):
            raise answer
        return cast(T, answer)

    async def purge(self) -> None:
        """Delete the raw sums for good."""
        await self.run_in_writer(lambda store: store.purge())
        await self.refresh()

    async def refresh(self) -> PublicView:
        """Read the store into the view, which is otherwise as old as the newest plan."""

        def show(store: ReleaseStore) -> None:
            self.view = replace(self.view, shown=store.describe())

        await self.run_in_writer(show)
        return self.view

    # ------------------------------------------------------------------------------------------- in the writer's thread

    @abc.abstractmethod
    def _begin(self, store: ReleaseStore) -> None:
        """Make the agent or server, compile what it needs, and publish the first view."""

    @abc.abstractmethod
    def _commit_people(self, kind: str, people: Sequence[object]) -> list[object]:
        """Commit requests of one kind, and return the answer to each."""

    @abc.abstractmethod
    def _plan(self) -> float | None:
        """Close blocks and publish their plans; return the seconds until the next block is due, if that is known."""

    def open(self) -> None:
        self._store = open_store(self.file)
        self._begin(self._store)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def commit(self, jobs: Sequence[Job]) -> list[list[object]]:
        # One call for each kind and public second, not one for each job: a call costs about as much for 256 people as
        # for one. The agent's clock stands at the second in which the jobs were queued.
        groups: dict[tuple[float, str], list[Job]] = {}
        for job in jobs:
            groups.setdefault((job.time, job.kind), []).append(job)
        answers: dict[int, list[object]] = {}
        for (now, kind), some in groups.items():
            self._time = now
            people = [person for job in some for person in job.people]
            found = iter(self._work(people) if kind == _WORK else self._commit_people(kind, people))
            answers |= {id(job): list(itertools.islice(found, len(job.people))) for job in some}
        return [answers[id(job)] for job in jobs]

    def catch_up(self, now: float) -> float | None:
        self._time = now
        return None if self.view.shown.get("purged") else self._plan()

    def _work(self, calls: Sequence[object]) -> list[object]:
        assert self._store is not None
        answers: list[object] = []
        for call in calls:
            assert callable(call)
            try:
                answers.append(call(self._store))
            except Exception as error:
                answers.append(error)
        return answers


class ServedStudies:
    """All studies of a process, by name.

    Attributes:
        counters: of requests that name no study.
        tls: the certificate of the process, if it terminates TLS.
        operator_hosts: the host names of the operator's address.
    """

    def __init__(self, studies: Sequence[AbstractServedStudy]) -> None:
        self._by_name = {one.name: one for one in studies}
        places = {one.file.place for one in studies}
        if len(self._by_name) < len(studies) or len(places) < len(studies):
            raise ValueError("Two study files have the same name or the same store. Give each study its own.")
        self.counters = Counters()
        self.tls: LiveTls | None = None
        self.operator_hosts = frozenset(("127.0.0.1", "localhost", "[::1]"))

    def __iter__(self) -> Iterator[AbstractServedStudy]:
        return iter(self._by_name.values())

    def start(self) -> None:
        """Open each store, in its writer and for its keys."""
        for one in self:
            one.keys.start()
            one.writer.start()

    def stop(self) -> None:
        """Finish what is queued, and end all writers."""
        for one in self:
            one.keys.stop()
            one.writer.stop()

    def wait(self, seconds: float) -> None:
        """Wait until every study is ready.

        Raises:
            Exception: the error with which a store could not be opened for the first time.
            TimeoutError: if a study is not ready in time.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.failure is not None:
                raise self.failure
            if self.ready:
                return
            time.sleep(0.02)
        raise TimeoutError("The studies were not ready in time.")

    @property
    def failure(self) -> Exception | None:
        """Why the process must end: a store was refused, or none can be reached. One that is away may come back."""
        failures = [one.writer.failure for one in self]
        refused = next((error for error in failures if error is not None and not may_pass(error)), None)
        return failures[0] if refused is None and failures and all(failures) else refused

    @property
    def ready(self) -> bool:
        """Whether every store is open, every program compiled and all keys known."""
        return all(one.writer.state == "ready" and one.keys.known for one in self)

    @property
    def starting(self) -> bool:
        """Whether a store is being opened for the first time."""
        return any(one.starting for one in self)

    def find(self, name: str) -> AbstractServedStudy:
        """Find a study by its name."""
        study = self._by_name.get(name)
        if study is None:
            raise RefusedError("unknown-study", "This service has no study of this name.")
        return study

    def find_authorised(self, header: str | None, roles: Sequence[Role]) -> list[AbstractServedStudy]:
        """Find the studies in which the key of a request has one of these roles; refuse the request if none."""
        hash_header(header)  # refuses a request without a key, also if there is no study
        found, refused = [], RefusedError("unknown-study", "This service has no studies.")
        for one in self:
            try:
                one.keys.find(header, roles, reading=True)
                found.append(one)
            except RefusedError as error:
                refused = error
        if not found:
            raise refused
        return found
