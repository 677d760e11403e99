"""A local study over HTTP: tickets from reserved ranges, plans that never change, and reports that count once.

The event loop signs a ticket and writes nothing for it. The writer reserves ranges of ticket numbers ahead of time. A
report is checked in full before it is queued.

**Formal guarantee.** A device's message is private by itself, whatever the service does with it (`Client`,
`privrl-client.mjs`). A report whose response is 200 or 201 is in the sums, once.
"""

import asyncio
import collections
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import msgspec

from privrl.privacy.store.errors import StoreError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.service.bodies import ActionsAnswer, SignedTicketAnswer, write_time
from privrl.service.event_log import log_event
from privrl.service.opening import start_learning
from privrl.service.refusals import RefusedError
from privrl.service.served_studies import AbstractServedStudy
from privrl.service.study_file import StudyFile
from privrl.studies.local.local_plans import plan_arrays
from privrl.studies.local.server import Server
from privrl.studies.local.wire import Message, MessageError

_RESERVE, _REPORT = "reserve", "report"
_RATE_SECONDS = 10.0  # for which an unused rate of tickets is kept
_MIN_NUMBERS = 500  # unused ticket numbers below which another range is reserved


class LocalStudy(AbstractServedStudy):
    """A `Server` in the writer's thread, its plans, and ticket numbers.

    Attributes:
        plans: every plan as JSON.
    """

    def __init__(self, file: StudyFile, clock: Callable[[], float] = time.time) -> None:
        super().__init__(file, clock)
        self._server: Server | None = None
        self._numbers: collections.deque[int] = collections.deque()
        self._reserving: asyncio.Future[list[object]] | None = None
        self._finished = False
        self._allowance, self._allowed_at = max(1.0, _RATE_SECONDS * file.ticket_rate), time.monotonic()
        self.plans: tuple[bytes, ...] = ()

    @property
    def document(self) -> bytes:
        """The bytes of the public document."""
        return self._open_server().document

    # --------------------------------------------------------------------------------------------- in the event loop

    async def issue_ticket(self) -> SignedTicketAnswer:
        """Issue a ticket, which allows one report."""
        self.check_open()
        server = self._open_server()
        if self._finished:
            raise RefusedError(
                "full",
                f"All {self.file.users} reports are counted, and nothing was kept. Serve this person from "
                "`plans/newest`, without a report.",
            )
        self._check_rate()
        while not self._numbers:
            await asyncio.shield(self._reserve_numbers())
        number = self._numbers.popleft()
        if len(self._numbers) < _MIN_NUMBERS:
            with contextlib.suppress(RefusedError):  # this request has its number
                self._reserve_numbers()
        made = server.signed(number, len(self.plans) - 1)
        expires = int(made.expires)
        return SignedTicketAnswer(str(made.number), made.plan, str(expires), made.mac.hex(), write_time(expires))

    def _check_rate(self) -> None:
        """Refuse a ticket beyond the public rate. The unused rate of ten seconds is kept."""
        now, rate = time.monotonic(), self.file.ticket_rate
        self._allowance = min(_RATE_SECONDS * rate, self._allowance + (now - self._allowed_at) * rate)
        self._allowed_at = now
        if self._allowance < 1.0:
            raise RefusedError(
                "busy", f"This study issues {rate:g} tickets per second. Nothing was kept; try again soon."
            )
        self._allowance -= 1.0

    async def count_report(self, content: bytes) -> bool:
        """Count a report once; whether it is new."""
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
        return bool(answer)

    def find_plan(self, number: int) -> bytes | None:
        """Find a plan; `None` if this process does not have it."""
        return self.plans[number] if 0 <= number < len(self.plans) else None

    async def catch_up_plans(self) -> None:
        """Load plans that another machine has made."""
        self.check_open()
        await self.run_in_writer(lambda store: self._plan())

    def _reserve_numbers(self) -> "asyncio.Future[list[object]]":
        """Reserve a range of ticket numbers, unless a reservation is under way."""
        if self._reserving is None or self._reserving.done():
            self._reserving = self.writer.submit(_RESERVE, [None])
            self._reserving.add_done_callback(lambda done: done.cancelled() or done.exception())  # mark it as seen
        return self._reserving

    def _open_server(self) -> Server:
        if self._server is None:
            self.check_open()
            raise RefusedError("starting", "The study is being opened. Try again in a few seconds.")
        return self._server

    # ------------------------------------------------------------------------------------------- in the writer's thread

    def _begin(self, store: ReleaseStore) -> None:
        self.view = replace(self.view, shown=store.describe())
        try:
            server = start_learning(self.file, store, self._clock)
        except StoreError:
            if self.view.shown["purged"]:
                return
            raise
        assert isinstance(server, Server)
        if not self.view.shown["purged"]:
            server.prepare()
            self._numbers = collections.deque(server.reserve())  # a replica may lack an earlier range
        self._server, self.plans = server, ()
        self._plan()

    def _commit_people(self, kind: str, people: Sequence[object]) -> list[object]:
        assert self._server is not None
        if kind == _REPORT:
            self.counters.reports.add(len(people))
            return list(self._server.absorb_screened(cast(Sequence[tuple[Message, bytes]], people)))
        self._numbers.extend(self._server.reserve())
        return [None] * len(people)

    def _plan(self) -> float | None:
        server = self._server
        plans = () if server is None else server.plans
        if server is not None and len(plans) > len(self.plans):
            if self.writer.state == "ready":
                log_event("release", "A block is full and its sums are released.", study=self.name)
                log_event("plan", "A new plan is in force.", study=self.name, plan=len(plans) - 1)
            missing = (plans[number] for number in range(len(self.plans), len(plans)))
            actions = [ActionsAnswer(plan_arrays(plan)[0].tolist()) for plan in missing]
            self.plans += tuple(msgspec.json.encode(one) for one in actions)
            self._finished = server.plans.finished
            assert self._store is not None
            certificate = server.result().certificate.to_json()
            shown, newest = self._store.describe(), len(self.plans) - 1
            self.view = replace(self.view, plan=newest, closed=newest, certificate=certificate, shown=shown)
        return None
