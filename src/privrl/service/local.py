"""A local study over HTTP: tickets from reserved ranges, plans that never change, and reports that count once.

A ticket is signed in the event loop and nothing is written for it; the writer reserves numbers ahead, a thousand at a
time. A report is checked in full before it is queued.

**Formal guarantee.** What a device sends is private by itself, whatever the service does with it (`Client`,
`privrl-client.mjs`). A report that was answered with 200 or 201 is in the sums, once.
"""

import asyncio
import collections
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from privrl.privacy.store.errors import StoreError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.service.bodies import ActionsAnswer, SignedTicketAnswer
from privrl.service.opening import work_on
from privrl.service.refusals import RefusedError
from privrl.service.registry import AbstractServed
from privrl.service.study_file import StudyFile
from privrl.studies.local.local_plans import plan_arrays
from privrl.studies.local.server import Server
from privrl.studies.local.wire import MessageError

_RESERVE, _REPORT = "reserve", "report"
_LOW = 500  # numbers left when more are asked for


class LocalServed(AbstractServed):
    """A `Server` behind the writer, its plans, and numbers for tickets."""

    def __init__(self, file: StudyFile, clock: Callable[[], float] = time.time) -> None:
        super().__init__(file, clock)
        self._server: Server | None = None
        self._numbers: collections.deque[int] = collections.deque()
        self._coming: asyncio.Future[list[Any]] | None = None
        self._finished = False
        self.plans: tuple[bytes, ...] = ()
        """Every plan as it is answered."""

    @property
    def document(self) -> bytes:
        """The public document, byte by byte."""
        return self._open_server().document

    # --------------------------------------------------------------------------------------------- in the event loop

    async def ticket(self) -> SignedTicketAnswer:
        """Leave to report, for one person."""
        self.check_open()
        server = self._open_server()
        if self._finished:
            raise RefusedError("full", f"All {self.file.users} reports have come in. Nothing was kept.")
        while not self._numbers:
            await asyncio.shield(self._more_numbers())
        number = self._numbers.popleft()
        if len(self._numbers) < _LOW:
            with contextlib.suppress(RefusedError):  # this one has its number
                self._more_numbers()
        made = server.signed(number, len(self.plans) - 1)
        return SignedTicketAnswer(str(made.number), made.plan, str(made.expires), made.mac.hex())

    async def report(self, content: bytes) -> bool:
        """Counts a report once; True if it is new."""
        self.check_open()
        server = self._open_server()
        if len(content) != server.message_bytes:
            raise RefusedError("wrong-length", f"A report of this study has {server.message_bytes} bytes.")
        try:
            message = server.screened(content)
        except MessageError as error:
            raise RefusedError(error.reason, str(error)) from None
        (answer,) = await self.writer.submit(_REPORT, [(message, content)])
        if isinstance(answer, MessageError):
            raise RefusedError(answer.reason, str(answer))
        return answer

    def plan(self, number: int) -> bytes | None:
        """A plan, if it is out as far as this process knows."""
        return self.plans[number] if 0 <= number < len(self.plans) else None

    async def meet(self) -> None:
        """Takes in plans that another machine has made."""
        self.check_open()
        await self.in_writer(lambda store: self._plan_again())

    def _more_numbers(self) -> "asyncio.Future[list[Any]]":
        """Asks for a range of numbers, unless one was asked for that is not there yet."""
        if self._coming is None or self._coming.done():
            self._coming = self.writer.submit(_RESERVE, [None])
            self._coming.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._coming

    def _open_server(self) -> Server:
        if self._server is None:
            self.check_open()
            raise RefusedError("starting", "The study is being opened. Send this again soon.")
        return self._server

    # ------------------------------------------------------------------------------------------ in the writer's thread

    def _begun(self, store: ReleaseStore) -> None:
        self._publish(shown=store.shown())
        try:
            server = work_on(self.file, store, self._clock)
        except StoreError:
            if self.view.shown["purged"]:
                return
            raise
        assert isinstance(server, Server)
        if not self.view.shown["purged"]:
            server.prepare()
            self._numbers.extend(server.reserve())
        self._server, self.plans = server, ()
        self._plan_again()

    def _answered(self, kind: str, people: Sequence[Any]) -> list[Any]:
        assert self._server is not None
        if kind == _REPORT:
            self.counters.reports.add(len(people))
            return list(self._server.absorb_screened(people))
        self._numbers.extend(self._server.reserve())
        return [None] * len(people)

    def _plan_again(self) -> float | None:
        server = self._server
        plans = () if server is None else server.plans
        if server is not None and len(plans) > len(self.plans):
            missing = (plans[number] for number in range(len(self.plans), len(plans)))
            actions = [ActionsAnswer(plan_arrays(plan)[0].tolist()) for plan in missing]
            self.plans += tuple(msgspec.json.encode(one) for one in actions)
            self._finished = server.plans.finished
            assert self._store is not None
            certificate = server.result().certificate.to_json()
            self._publish(plan=len(self.plans) - 1, certificate=certificate, shown=self._store.shown())
        return None
