"""Studies in which people arrive at the service: an agent in the writer's thread, and signed tickets.

Tickets and records go through the writer. A ticket contains all of its facts and a MAC under a secret of the store, so
that checking it reads nothing from the store.
"""

import abc
import base64
import binascii
import hmac
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar, cast

import msgspec

from privrl.privacy.canonical_ids import canonical_id
from privrl.privacy.store.errors import StoreError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import PairingError
from privrl.service.bodies import TicketAnswer, write_time
from privrl.service.event_log import log_event
from privrl.service.refusals import RefusedError
from privrl.service.served_studies import AbstractServedStudy
from privrl.service.study_file import StudyFile
from privrl.studies.live.agent import AbstractAgent
from privrl.studies.live.arrivals import Ticket

_ARRIVE, _COUNT = "arrive", "count"
_PURPOSE = "tickets over HTTP"
_MAC_BYTES = 16
_TICKETS = msgspec.json.Decoder(Ticket)
AgentT = TypeVar("AgentT", bound=AbstractAgent)
RecordT = TypeVar("RecordT")


class _Arrival(NamedTuple):
    """A person who arrives: ids of the person and of the visit, their group, and the name of the app's key."""

    user: str
    visit: str
    group: str
    key: str


class AbstractTicketedStudy(AbstractServedStudy, Generic[AgentT, RecordT]):
    """An agent in the writer's thread, and its tickets."""

    def __init__(self, file: StudyFile, clock: Callable[[], float] = time.time) -> None:
        super().__init__(file, clock)
        self._signing: hmac.HMAC | None = None
        self._agent: AgentT | None = None

    # --------------------------------------------------------------------------------------------- in the event loop

    async def arrive(self, user: str | int, visit: str | int, group: str, key: str) -> TicketAnswer:
        """Issue the ticket of a person, or of one of their visits; `key` is the name of the app's key."""
        self.check_open()
        try:
            arrival = _Arrival(canonical_id(user).decode(), canonical_id(visit).decode(), group, key)
        except ValueError as error:
            raise RefusedError("malformed", str(error)) from None
        (answer,) = await self.writer.submit(_ARRIVE, [arrival])
        if isinstance(answer, PairingError):
            raise RefusedError(
                "full",
                f"All {self.view.ends[-1]} places are taken, and nothing was kept. Serve this person without a ticket: "
                "`actions` then answers from the plan in force. People who have a ticket keep it.",
            )
        assert isinstance(answer, TicketAnswer)
        return answer

    async def count(self, records: Sequence[tuple[Ticket, RecordT]]) -> None:
        """Count each person once."""
        self.check_open()
        await self.writer.submit(_COUNT, records)

    def verify_ticket(self, text: str) -> Ticket:
        """Decode a ticket and check its MAC."""
        if self._signing is None:
            self.check_open()  # there is no secret yet: do not call a valid ticket unknown
        try:
            raw = base64.urlsafe_b64decode(text)
            if self._signing is not None and hmac.compare_digest(raw[:_MAC_BYTES], self._mac(raw[_MAC_BYTES:])):
                return _TICKETS.decode(raw[_MAC_BYTES:])
        except (binascii.Error, ValueError):
            pass
        raise RefusedError("unknown-ticket", "Pass the `ticket` that `tickets` of this study returned.")

    def _mac(self, content: bytes) -> bytes:
        assert self._signing is not None
        made = self._signing.copy()
        made.update(content)
        return made.digest()[:_MAC_BYTES]

    # ------------------------------------------------------------------------------------------- in the writer's thread

    @abc.abstractmethod
    def _start_agent(self, store: ReleaseStore) -> AgentT:
        """Make the agent."""

    @abc.abstractmethod
    def _compile(self, agent: AgentT) -> None:
        """Count an empty record without storing it, so that the first person does not wait for a compilation."""

    @abc.abstractmethod
    def _count_records(self, agent: AgentT, tickets: Sequence[Ticket], records: Sequence[RecordT]) -> None:
        """Count records. One that the agent cannot use counts as an empty one: an error would reveal something."""

    @abc.abstractmethod
    def _publish(self, agent: AgentT) -> None:
        """Publish all plans that were made since the last call."""

    @property
    @abc.abstractmethod
    def _published(self) -> int:
        """The number of published plans."""

    @abc.abstractmethod
    def _forget_plans(self) -> None:
        """Forget what was published, before the store is opened again."""

    def _name_arm(self, ticket: Ticket) -> str | msgspec.UnsetType:
        """The name of the arm of a ticket, in a pilot."""
        return msgspec.UNSET

    def _begin(self, store: ReleaseStore) -> None:
        self._forget_plans()
        agent = self._agent = self._make_agent(store)
        if agent is not None and not self.view.shown["purged"]:
            self.clock_watch.check(self._clock(), agent.latest_arrival)
            self._signing = hmac.new(store.secret(_PURPOSE), digestmod="sha256")
            self._compile(agent)
        self._plan()

    def _make_agent(self, store: ReleaseStore) -> AgentT | None:
        """Make the agent; `None` if the store was purged before everything was released."""
        self.view = replace(self.view, shown=store.describe())
        try:
            return self._start_agent(store)
        except StoreError:
            if self.view.shown["purged"]:
                return None
            raise

    def _commit_people(self, kind: str, people: Sequence[object]) -> list[object]:
        agent = self._agent
        assert agent is not None
        if kind == _ARRIVE:
            arrivals = cast(Sequence[_Arrival], people)
            before = agent.num_arrived
            tickets = self._issue_tickets(agent, arrivals)
            self._count_arrivals(before, arrivals, tickets)
            if any(isinstance(one, Ticket) and one.plan >= self._published for one in tickets):
                self._plan()  # publish the plan of a ticket before the ticket
            return [self._seal(agent, one) if isinstance(one, Ticket) else one for one in tickets]
        tickets_of, records = zip(*cast(Sequence[tuple[Ticket, RecordT]], people), strict=True)
        self._count_records(agent, tickets_of, records)
        return [None] * len(people)

    def _count_arrivals(
        self, before: int, people: Sequence[_Arrival], tickets: Sequence[Ticket | PairingError]
    ) -> None:
        """Count people who came for the first time, once each: that a person returned is as secret as a record."""
        found = zip(people, tickets, strict=True)
        new = {one.number: came.key for came, one in found if isinstance(one, Ticket) and one.number >= before}
        self.counters.arrivals.update(new.values())

    def _issue_tickets(self, agent: AgentT, people: Sequence[_Arrival]) -> Sequence[Ticket | PairingError]:
        try:
            users, visits, groups, _ = zip(*people, strict=True)
            return agent.begin_episodes(users, visits, groups)
        except PairingError as error:
            if len(people) == 1:
                return [error]
            return [self._issue_tickets(agent, [person])[0] for person in people]  # the study is full for some

    def _seal(self, agent: AgentT, ticket: Ticket) -> TicketAnswer:
        content = msgspec.json.encode(ticket)
        text = base64.urlsafe_b64encode(self._mac(content) + content).decode()
        deadline = write_time(agent.deadline(ticket))
        return TicketAnswer(text, str(ticket.number), ticket.plan, deadline, self._name_arm(ticket))

    def _plan(self) -> float | None:
        agent = self._agent
        if agent is None:
            return None
        plans = agent.plans
        released, planned = plans.closed > self.view.closed, self._published <= plans.current
        if planned:
            self._publish(agent)
        if released or planned:
            if self.writer.state == "ready":
                self._log_progress(plans.closed, plans.current)
            assert self._store is not None
            self.view = replace(
                self.view,
                plan=plans.current,
                closed=plans.closed,
                certificate=agent.certificate.to_json(),
                shown=self._store.describe(),
                last_release=agent.last_closing,
            )
        self.clock_watch.look(self._clock(), agent.latest_arrival)
        closing = agent.next_closing
        if closing != self.view.next_release:
            self.view = replace(self.view, next_release=closing)
        return None if closing is None else math.ceil(closing) - self._clock()

    def _log_progress(self, closed: int, plan: int) -> None:
        for block in range(self.view.closed, closed):
            log_event("release", "A block has closed and its sums are released.", study=self.name, block=block)
        if plan > self.view.plan:
            log_event("plan", "A new plan is in force.", study=self.name, plan=plan)
