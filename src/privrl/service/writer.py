"""The writer of a study: one thread, the only one that uses the study's store.

The writer thread drains the queue, commits the batch, and only then sends the responses. Everything is checked before
it is queued, so one request cannot fail the batch of others. A full queue accepts nothing.

**Formal guarantee.** A response is sent after its commit is on disk. The responses of a batch leave at a public time
after the batch was taken, so their delay does not reveal whether the batch had anything to write: one whose people were
all counted before writes nothing.
"""

import asyncio
import collections
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from privrl.privacy.store.errors import StoreError, may_pass
from privrl.service.clock_watch import ClockError
from privrl.service.event_log import log_event
from privrl.service.refusals import RefusedError, refuse_not_open

MAX_BATCH = 256  # people per commit
MIN_RESPONSE_SECONDS = 0.025  # from the first request of a batch; hides whether the batch had anything to write
_BATCH_WINDOW = 0.010  # seconds that a batch stays open, so that requests of the same moment share its commit
_IDLE_POLL = 1.0  # seconds between two looks at the clock while no request comes
_BUSY_POLL = 0.1  # the same while batches follow each other, if the backend has nothing due earlier
_QUIET_POLL = 0.03  # seconds after the last batch, to plan while the event loop is idle
_FIRST_RETRY, _LAST_RETRY = 0.5, 5.0  # seconds before a failed store is opened again; they double in between


class Job(NamedTuple):
    """Work for the writer: people with one kind of request, each with a response of its own.

    Attributes:
        kind: the kind of request, which the backend knows.
        people: one item per person.
        answers: resolved with one answer per person.
        time: the public time at which the job was queued. The outcome depends on it, and not on when the writer takes
            the job, which depends on the requests of others.
    """

    kind: str
    people: Sequence[object]
    answers: "asyncio.Future[list[object]]"
    time: float


@runtime_checkable
class StudyBackend(Protocol):
    """What a writer works on. Every method is called in the writer's thread."""

    def open(self) -> None:
        """Open the store, compile, and publish the first view."""

    def commit(self, jobs: Sequence[Job]) -> list[list[object]]:
        """Commit jobs, and return the answers to the people of each. An exception among them is for one person."""

    def catch_up(self, now: float) -> float | None:
        """Close the blocks that are due, plan and publish.

        Returns:
            Seconds until the next block is due; `None` if that depends on the next batch.
        """

    def close(self) -> None:
        """Close the store."""


class Writer:
    """The thread, and the queue in front of it.

    If anything fails beyond a refusal, the writer closes the store and opens it again. Everything that was answered is
    in it.

    Arguments:
        name: the study's.
        max_queue: largest number of people waiting.
        clock: the public time. It is read under the queue's lock, so jobs are queued in the order of their times.

    Attributes:
        failure: why the first attempt to open the store failed; `None` once it is open.
        failures: how often the store was closed and opened again since.
    """

    def __init__(self, backend: StudyBackend, name: str, max_queue: int, clock: Callable[[], float]) -> None:
        self._backend, self._max_queue, self._clock = backend, max_queue, clock
        self._jobs: collections.deque[Job] = collections.deque()
        self._waiting = 0
        self._window_ends = 0.0
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=f"writer of {name}", daemon=True)
        self.state: Literal["starting", "ready", "failed", "ended"] = "starting"
        self.failure: Exception | None = None
        self.failures = 0
        self._name = name

    def start(self) -> None:
        """Start the thread, which opens the store."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what is queued, and end the thread."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, kind: str, people: Sequence[object]) -> "asyncio.Future[list[object]]":
        """Queue people, all or none. Call it in the event loop.

        Returns:
            The answers, after the commit.

        Raises:
            RefusedError: if the store is not open, or the queue is full.
        """
        loop = asyncio.get_running_loop()
        with self._changed:
            if self._ending or self.state != "ready":
                raise refuse_not_open(self.state == "failed")
            if self._waiting + len(people) > self._max_queue:
                raise RefusedError("busy", f"{self._max_queue} people are waiting. Nothing was kept; try again soon.")
            now = self._clock()
            parts = [people[first : first + MAX_BATCH] for first in range(0, len(people), MAX_BATCH)]
            jobs = [Job(kind, part, loop.create_future(), now) for part in parts]
            if not self._jobs:
                # The first job opens the batch. The thread is woken when the window ends and not now: until then the
                # event loop has the interpreter to itself and reads the requests that join the batch.
                self._window_ends = time.monotonic() + _BATCH_WINDOW
                loop.call_later(_BATCH_WINDOW, self._wake)
            self._jobs.extend(jobs)
            self._waiting += len(people)
        return jobs[0].answers if len(jobs) == 1 else asyncio.ensure_future(_gather(jobs))

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    # ------------------------------------------------------------------------------------------- in the writer's thread

    def _run(self) -> None:
        pause = 0.0
        while not self._ending:
            taken: list[Job] = []  # shared with `_serve`: after a failure these jobs still need an answer
            try:
                with contextlib.ExitStack() as stack:
                    stack.callback(self._backend.close)
                    self._backend.open()
                    if self.state == "failed":
                        log_event("reconnect", "The store was opened again.", study=self._name)
                    else:
                        log_event("start", "The study is open.", study=self._name)
                    self.state, self.failure, pause = "ready", None, 0.0
                    self._serve(taken)
            except Exception as error:
                if self.state == "starting":
                    self.failure = error
                    if not may_pass(error):
                        message = f"The study cannot be opened ({_describe(error)})."
                        log_event("failure", message, study=self._name, level=logging.ERROR)
                        self.state = "failed"
                        return
                if self.state != "failed":  # not for every attempt to open it again
                    message = f"The writer failed ({_describe(error)}) and will open its store again."
                    log_event("failure", message, study=self._name, level=logging.ERROR)
                self.state = "failed"
                self.failures += 1
                refused = RefusedError("failed", "The store failed. Send the request again; nothing counts twice.")
                self._answer(taken, [refused] * len(taken))
                pause = min(_LAST_RETRY, 2 * pause or _FIRST_RETRY)
                self._refuse_waiting()
                self._sleep(pause)
        self.state = "ended"
        self._refuse_waiting()

    def _serve(self, taken: list[Job]) -> None:
        """Commit batch after batch.

        Blocks are closed and plans made before a batch, not after it. Right after a batch the event loop is busy with
        the responses, and two threads that compete for the interpreter cost more than one after the other.
        """
        poll_at = catch_up_at = block_due = 0.0  # the first two in monotonic time, the last in public time
        while True:
            waiting = self._wait(poll_at)
            if not waiting and self._ending:
                return
            with self._changed:
                # The public time of the oldest job: a block that is due at that time must be closed before the job is
                # committed, and a block that is due later must not, however long the job has waited.
                now = self._jobs[0].time if self._jobs else self._clock()
            if not waiting or time.monotonic() >= catch_up_at or now >= block_due:
                left = self._backend.catch_up(now)
                block_due = self._clock() + (left or 0.0)
                rest = _IDLE_POLL if left is None else min(_IDLE_POLL, max(0.0, left))
                poll_at = time.monotonic() + rest
                # `None`: the batch itself may complete a block, so catch up before every batch.
                catch_up_at = 0.0 if left is None else time.monotonic() + min(_BUSY_POLL, rest)
            if waiting:
                began = time.monotonic()
                jobs = taken[:] = self._take()
                answers = self._backend.commit(jobs)
                time.sleep(max(0.0, began + MIN_RESPONSE_SECONDS - _BATCH_WINDOW - time.monotonic()))
                self._answer(jobs, answers)
                taken.clear()
                poll_at = min(poll_at, time.monotonic() + _QUIET_POLL)

    def _wait(self, poll_at: float) -> bool:
        """Wait until the batch is complete, or until `poll_at` if nothing is queued; whether anything is queued."""
        with self._changed:
            while not self._ending and (left := (self._window_ends if self._jobs else poll_at) - time.monotonic()) > 0:
                self._changed.wait(left)
            return bool(self._jobs)

    def _take(self) -> list[Job]:
        """Take jobs from the queue, as many as fit into a batch. The rest is the next batch and waits no longer."""
        with self._changed:
            taken: list[Job] = []
            people = 0
            while self._jobs and people + len(self._jobs[0].people) <= MAX_BATCH:
                people += len(self._jobs[0].people)
                taken.append(self._jobs.popleft())
            self._waiting -= people
            self._window_ends = 0.0
        return taken

    def _refuse_waiting(self) -> None:
        with self._changed:
            jobs = list(self._jobs)
            self._jobs.clear()
            self._waiting = 0
        refused = refuse_not_open(self.state == "failed")
        self._answer(jobs, [refused] * len(jobs))

    def _sleep(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ending, seconds)

    @staticmethod
    def _answer(jobs: Sequence[Job], answers: Sequence[list[object] | Exception]) -> None:
        """Hand the answers of a batch to the event loop in one call, because each call wakes it up."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Job, list[object] | Exception]]] = {}
        for job, answer in zip(jobs, answers, strict=True):
            by_loop.setdefault(job.answers.get_loop(), []).append((job, answer))
        for loop, some in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the requests with it
                loop.call_soon_threadsafe(_resolve, some)


def _describe(error: Exception) -> str:
    """Describe an error for the log. Messages of the clock, a store, SQLite and the system quote no row."""
    kind = type(error).__name__
    if isinstance(error, (ClockError, StoreError, sqlite3.OperationalError)):
        return f"{kind}: {error}"
    return f"{kind}: {error.strerror}" if isinstance(error, OSError) and error.strerror else kind


def _resolve(answered: Sequence[tuple[Job, list[object] | Exception]]) -> None:
    for job, answer in answered:
        if job.answers.done():  # the client has disconnected
            continue
        if isinstance(answer, Exception):
            job.answers.set_exception(answer)
        else:
            job.answers.set_result(answer)


async def _gather(jobs: Sequence[Job]) -> list[object]:
    parts = await asyncio.gather(*(job.answers for job in jobs))
    return [answer for part in parts for answer in part]
