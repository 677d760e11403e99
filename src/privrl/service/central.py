"""A central study over HTTP: people arrive, act on the plan of their ticket, and their record is posted at the end.

Tickets and records go through the writer; actions come from tables in memory. A ticket contains all of its facts and a
MAC under a secret of the store, so that an action reads nothing from the store.

**Formal guarantee.** Apart from the policy itself, which consists of releases, a response is a function of the request,
of arrivals and of the clock. The time of an arrival or a record is the whole second in which it was queued. Blocks
close at such times, before later requests and after earlier ones, however long the writer takes. This holds on one
machine. If several machines serve a study, we assume that the order of their commits does not depend on records: a
record in the last moment before a block closes may come too late because of another machine's commit, and a person who
arrives at a machine that is busy with records may get a later number than one who arrives elsewhere at the same moment.
A record gets the same response if it is counted, was counted before, or comes too late: the same bytes, through the
same queue, no sooner than a public time (`writer.py`).
"""

import base64
import binascii
import hmac
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import jax
import msgspec
import numpy as np
from jaxtyping import Float

from privrl.mdp.records import Columns, padded_columns
from privrl.mdp.simulation import cumulative_table, draw_action
from privrl.mdp.types import Trajectory
from privrl.privacy.canonical_ids import canonical_id
from privrl.privacy.store.errors import StoreError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import PairingError
from privrl.service.bodies import ActionAnswer, PolicyAnswer, RecordedStep, StudySummary, TicketAnswer
from privrl.service.opening import start_learning
from privrl.service.refusals import RefusedError
from privrl.service.served_studies import AbstractServedStudy
from privrl.service.study_file import StudyFile
from privrl.studies.live.agent import Agent
from privrl.studies.live.arrivals import Ticket

_ARRIVE, _COUNT = "arrive", "count"
_PURPOSE = "tickets over HTTP"
_MAC_BYTES = 16
_COINS = 512  # random numbers per system call
_TICKETS = msgspec.json.Decoder(Ticket)
_Arrival = tuple[str, str, str]  # ids of the person and of the visit, and the name of the app's key


class CentralStudy(AbstractServedStudy):
    """An `Agent` in the writer's thread, and its plans as tables.

    Attributes:
        policy: the newest plan as JSON.
    """

    def __init__(self, file: StudyFile, clock: Callable[[], float] = time.time) -> None:
        super().__init__(file, clock)
        problem = file.world.problem()
        self._sizes = (problem.horizon, problem.num_states, problem.num_actions)
        self._tables: tuple[Float[np.ndarray, "H S A"], ...] = ()
        self._coins: list[float] = []
        self._signing: hmac.HMAC | None = None
        self._agent: Agent | None = None
        self.policy = b""

    @property
    def summary(self) -> StudySummary:
        """The sizes and the budget of the study."""
        horizon, states, actions = self._sizes
        file = self.file
        delta = None if file.delta is None else file.delta.hex()
        assert file.patience is not None
        return StudySummary(
            kind=self.kind,
            users=file.users,
            places=self.view.ends[-1],
            epsilon=file.epsilon.hex(),
            delta=delta,
            states=states,
            actions=actions,
            horizon=horizon,
            patience=file.patience,
            max_episodes_per_unit=file.max_episodes_per_unit,
            min_block_distance=file.min_block_distance,
        )

    # --------------------------------------------------------------------------------------------- in the event loop

    async def arrive(self, user: str | int, visit: str | int, key: str) -> TicketAnswer:
        """Issue the ticket of a person, or of one of their visits; `key` is the name of the app's key."""
        self.check_open()
        try:
            arrival = canonical_id(user).decode(), canonical_id(visit).decode(), key
        except ValueError as error:
            raise RefusedError("malformed", str(error)) from None
        (answer,) = await self.writer.submit(_ARRIVE, [arrival])
        if isinstance(answer, PairingError):
            raise RefusedError("full", f"All {self.view.ends[-1]} places are taken. Nothing was kept.")
        assert isinstance(answer, TicketAnswer)
        return answer

    def draw_action(self, ticket: Ticket, state: int, step: int) -> ActionAnswer:
        """Draw an action for the person of a ticket."""
        horizon, states, _ = self._sizes
        if not (0 <= step < horizon and 0 <= state < states):
            raise RefusedError("out-of-range", f"Expected 0 <= `step` < {horizon} and 0 <= `state` < {states}.")
        if not self._coins:
            self._coins = ((np.frombuffer(os.urandom(8 * _COINS), np.uint64) >> 11) * 2.0**-53).tolist()
        return ActionAnswer(draw_action(self._tables[ticket.plan], state, step, self._coins.pop()), ticket.plan)

    async def await_plan(self, ticket: Ticket) -> None:
        """Load the plan of a ticket if another machine has made it."""
        if ticket.plan >= len(self._tables):
            self.check_open()
            await self.run_in_writer(lambda store: self._plan())
        if ticket.plan >= len(self._tables):
            raise RefusedError("unknown-plan", "The store, perhaps an older copy, lacks the plan of this ticket.")

    def check_record(self, text: str, steps: Sequence[RecordedStep]) -> tuple[Ticket, Columns]:
        """Check a record before it is queued, and return it with its ticket."""
        ticket = self.verify_ticket(text)
        horizon, states, actions = self._sizes
        try:
            found = padded_columns(
                [step.state for step in steps],
                [step.action for step in steps],
                [step.reward for step in steps],
                [step.next_state for step in steps],
                horizon,
                msgspec.UNSET,
            )
        except ValueError as error:
            raise RefusedError("bad-record", str(error)) from None
        below = (("state", found.states, states), ("action", found.actions, actions))
        for word, column, bound in (*below, ("next_state", found.next_states, states)):
            if max(column) >= bound:
                raise RefusedError("bad-record", f"Expected `{word}` < {bound} in every step.")
        return ticket, found

    async def count(self, records: Sequence[tuple[Ticket, Columns]]) -> None:
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

    def _begin(self, store: ReleaseStore) -> None:
        self._tables = ()
        agent = self._agent = self._make_agent(store)
        if agent is not None and not self.view.shown["purged"]:
            self._signing = hmac.new(store.secret(_PURPOSE), digestmod="sha256")
            agent.plans.to_steps(jax.tree.map(lambda x: x[None], Trajectory.empty(self._sizes[0])), 0)  # compile
        self._plan()

    def _make_agent(self, store: ReleaseStore) -> Agent | None:
        """Make the agent; `None` if the store was purged before everything was released."""
        self.view = replace(self.view, shown=store.describe())
        try:
            agent = start_learning(self.file, store, lambda: self._time)
        except StoreError:
            if self.view.shown["purged"]:
                return None
            raise
        assert isinstance(agent, Agent)
        return agent

    def _commit_people(self, kind: str, people: Sequence[object]) -> list[object]:
        assert self._agent is not None
        if kind == _ARRIVE:
            arrivals = cast(Sequence[_Arrival], people)
            before = self._agent.num_arrived
            tickets = self._issue_tickets(self._agent, arrivals)
            self._count_arrivals(before, arrivals, tickets)
            if any(isinstance(one, Ticket) and one.plan >= len(self._tables) for one in tickets):
                self._plan()  # publish the plan of a ticket before the ticket
            return [self._seal(self._agent, one) if isinstance(one, Ticket) else one for one in tickets]
        # A record that the agent cannot use counts as an empty one: an error would reveal something about it.
        tickets_of, columns = zip(*cast(Sequence[tuple[Ticket, Columns]], people), strict=True)
        self._agent.count_records(tickets_of, Trajectory.stack(columns))
        return [None] * len(people)

    def _count_arrivals(
        self, before: int, people: Sequence[_Arrival], tickets: Sequence[Ticket | PairingError]
    ) -> None:
        """Count people who came for the first time, once each: that a person returned is as secret as a record."""
        found = zip(people, tickets, strict=True)
        new = {one.number: key for (_, _, key), one in found if isinstance(one, Ticket) and one.number >= before}
        self.counters.arrivals.update(new.values())

    def _issue_tickets(self, agent: Agent, people: Sequence[_Arrival]) -> Sequence[Ticket | PairingError]:
        try:
            users, visits, _ = zip(*people, strict=True)
            return agent.begin_episodes(users, visits)
        except PairingError as error:
            if len(people) == 1:
                return [error]
            return [self._issue_tickets(agent, [person])[0] for person in people]  # the study is full for some

    def _seal(self, agent: Agent, ticket: Ticket) -> TicketAnswer:
        content = msgspec.json.encode(ticket)
        text = base64.urlsafe_b64encode(self._mac(content) + content).decode()
        return TicketAnswer(text, str(ticket.number), ticket.plan, agent.deadline(ticket))

    def _plan(self) -> float | None:
        agent = self._agent
        if agent is None:
            return None
        plans = agent.plans
        if len(self._tables) <= plans.closed:
            missing = range(len(self._tables), plans.closed + 1)
            self._tables += tuple(cumulative_table(plans[number].policy) for number in missing)
            newest = np.asarray(plans[plans.closed].policy.probabilities)
            self.policy = msgspec.json.encode(PolicyAnswer(plans.closed, newest.tolist()))
            assert self._store is not None
            certificate = agent.certificate.to_json()
            self.view = replace(self.view, plan=plans.closed, certificate=certificate, shown=self._store.describe())
        closing = agent.next_closing
        return None if closing is None else math.ceil(closing) - self._clock()
