"""The one thread that has a study's store: it takes what has queued up, commits it at once, and then answers.

At most 256 people are taken at a time, everything was checked before it was queued, and a full queue takes nothing.
What is answered is on disk. Answers leave no sooner than a public time after their batch was taken, so that how long
one takes does not tell whether it added anything: a batch in which everybody was counted before has nothing to write.
"""

import asyncio
import collections
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from privrl.privacy.store.errors import StoreError
from privrl.service.refusals import RefusedError, not_open

MOST = 256  # people in one commit
BEAT = 0.025  # seconds from the first of a batch to its answers, at least
_LINGER = 0.010  # of these, until it is taken: others who come at the same time are committed with it
_TICK = 1.0  # seconds after which the writer looks around without being asked,
_BUSY = 0.1  # and so many while batch follows batch, if it knows that there is nothing to do before,
_QUIET = 0.03  # or so many after a batch that none follows
_LONGEST_PAUSE = 30.0
_LOG = logging.getLogger("privrl.service")


class Job(NamedTuple):
    """Something for the writer: `people` of one `kind`, each with an answer of its own, or work with the store.

    `time` is the public time at which it was queued: what becomes of it depends on that, and not on when the writer
    comes to it, which depends on what others have sent.
    """

    kind: str
    people: Sequence[Any]
    answers: "asyncio.Future[list[Any]]"
    time: float


@runtime_checkable
class Desk(Protocol):
    """What a writer does; every method is called in its thread."""

    def opened(self) -> None:
        """Opens the store, compiles, and publishes what is public."""

    def committed(self, jobs: Sequence[Job]) -> list[list[Any]]:
        """The answers to the people of each job, after everything is on disk; an exception among them is for one."""

    def caught_up(self, now: float) -> float | None:
        """Closes blocks whose time has come, plans and publishes; seconds until there is something to do again, or
        `None` where that depends on the next batch."""

    def closed(self) -> None:
        """Closes the store."""


class Writer:
    """The thread, and the queue in front of it.

    Arguments:
        room: how many people may wait.
        clock: the public time. It is read while nothing can be queued, so jobs are in the order of their times, and
            nothing is done at a later time before them.

    Whatever goes wrong beyond what a job may be refused for, the store is closed and opened again: everything that
    was answered is in it.
    """

    def __init__(self, desk: Desk, name: str, room: int, clock: Callable[[], float]) -> None:
        self._desk, self._room, self._clock = desk, room, clock
        self._jobs: collections.deque[Job] = collections.deque()
        self._waiting = 0
        self._ripe = 0.0  # when those that are queued are taken
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=f"writer of {name}", daemon=True)
        self.state: Literal["starting", "ready", "failed", "ended"] = "starting"
        self.failure: Exception | None = None
        """Why the store could not be opened for the first time."""

    def start(self) -> None:
        """Begins to open the store."""
        self._thread.start()

    def stop(self) -> None:
        """Ends after what is queued."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, kind: str, people: Sequence[Any]) -> "asyncio.Future[list[Any]]":
        """Queues people, all or none: the answers come after their commits. Called in the event loop."""
        loop = asyncio.get_running_loop()
        with self._changed:
            if self._ending or self.state in ("starting", "failed", "ended"):
                raise not_open(self.state == "failed")
            if self._waiting + len(people) > self._room:
                raise RefusedError("busy", f"{self._room} people are waiting. Nothing was kept; send this again soon.")
            now = self._clock()
            parts = [people[first : first + MOST] for first in range(0, len(people), MOST)]
            jobs = [Job(kind, part, loop.create_future(), now) for part in parts]
            if not self._jobs:  # the thread is woken when it is time, and not before: meanwhile others are read
                self._ripe = time.monotonic() + _LINGER
                loop.call_later(_LINGER, self._wake)
            self._jobs.extend(jobs)
            self._waiting += len(people)
        return jobs[0].answers if len(jobs) == 1 else asyncio.ensure_future(_together(jobs))

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    # ------------------------------------------------------------------------------------------------- in the thread

    def _run(self) -> None:
        pause = 0.0
        while not self._ending:
            in_hand: list[Job] = []
            try:
                with contextlib.ExitStack() as stack:
                    stack.callback(self._desk.closed)
                    self._desk.opened()
                    self.state, pause = "ready", 0.0
                    self._serve(in_hand)
            except Exception as error:
                if self.state == "starting":
                    self.failure, self.state = error, "failed"
                    return
                self.state = "failed"
                _LOG.error("The writer failed (%s) and opens its store again.", _why(error))
                refused = RefusedError("failed", "The store failed. Send the request again; nothing counts twice.")
                self._answer(in_hand, [refused] * len(in_hand))
                pause = min(_LONGEST_PAUSE, 2 * pause or 0.5)
                self._give_up_waiting()
                self._sleep(pause)
        self.state = "ended"
        self._give_up_waiting()

    def _serve(self, in_hand: list[Job]) -> None:
        """Batch after batch. What is not about a batch is done before the next one, when the event loop is not busy
        with the answers to the last one: two threads that both want to run cost more than one after the other."""
        wake = due = closing = 0.0
        while True:
            waiting = self._waited(wake)
            if not waiting and self._ending:
                return
            with self._changed:
                now = self._jobs[0].time if self._jobs else self._clock()
            if not waiting or time.monotonic() >= due or now >= closing:
                left = self._desk.caught_up(now)
                closing = self._clock() + (left or 0.0)  # in public time, which may be set; at most a second too early
                rest = _TICK if left is None else min(_TICK, max(0.0, left))
                wake = time.monotonic() + rest
                due = 0.0 if left is None else time.monotonic() + min(_BUSY, rest)
            if waiting:
                began = time.monotonic()
                jobs = in_hand[:] = self._taken()
                answers = self._desk.committed(jobs)
                time.sleep(max(0.0, began + BEAT - _LINGER - time.monotonic()))
                self._answer(jobs, answers)
                in_hand.clear()
                wake = min(wake, time.monotonic() + _QUIET)

    def _waited(self, wake: float) -> bool:
        """Waits until what is queued can be taken, or it is time to look around; whether something is queued."""
        with self._changed:
            while not self._ending and (left := (self._ripe if self._jobs else wake) - time.monotonic()) > 0:
                self._changed.wait(left)
            return bool(self._jobs)

    def _taken(self) -> list[Job]:
        """What is queued, up to the most people."""
        with self._changed:
            taken: list[Job] = []
            people = 0
            while self._jobs and people + len(self._jobs[0].people) <= MOST:
                people += len(self._jobs[0].people)
                taken.append(self._jobs.popleft())
            self._waiting -= people
            self._ripe = 0.0
        return taken

    def _give_up_waiting(self) -> None:
        with self._changed:
            jobs = list(self._jobs)
            self._jobs.clear()
            self._waiting = 0
        refused = not_open(self.state == "failed")
        self._answer(jobs, [refused] * len(jobs))

    def _sleep(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ending, seconds)

    @staticmethod
    def _answer(jobs: Sequence[Job], answers: Sequence[list[Any] | Exception]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Job, list[Any] | Exception]]] = {}
        for job, answer in zip(jobs, answers, strict=True):
            by_loop.setdefault(job.answers.get_loop(), []).append((job, answer))
        for loop, some in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it whoever asked
                loop.call_soon_threadsafe(_deliver, some)


def _why(error: Exception) -> str:
    """What the log may say: its kind, and words of a store, of SQLite or of the system, none of which quote a row."""
    kind = type(error).__name__
    if isinstance(error, (StoreError, sqlite3.OperationalError)):
        return f"{kind}: {error}"
    return f"{kind}: {error.strerror}" if isinstance(error, OSError) and error.strerror else kind


def _deliver(answered: Sequence[tuple[Job, list[Any] | Exception]]) -> None:
    for job, answer in answered:
        if job.answers.done():  # whoever asked has gone
            continue
        if isinstance(answer, Exception):
            job.answers.set_exception(answer)
        else:
            job.answers.set_result(answer)


async def _together(jobs: Sequence[Job]) -> list[Any]:
    parts = await asyncio.gather(*(job.answers for job in jobs))
    return [answer for part in parts for answer in part]
