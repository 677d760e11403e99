"""A central study over HTTP: people arrive, act on the plan of their ticket, and their record is posted at the end.

Tickets and records go through the writer; actions come from tables in memory. A ticket carries everything that is
needed to know it again, with a mac under a secret of the store, so that nothing is read for an action.

**Formal guarantee.** Apart from the policy itself (releases), what is answered is a function of the request, of
arrivals and of the clock: the time of an arrival or a record is the whole second in which it was queued, and blocks
close at such times, before what comes later and after what came before, however long the writer takes. That is so on
one machine; where several serve a study, the order in which their commits come is taken not to depend on records: one
of the last moments before a block closes may be late for another's commit, and who arrives at a machine that is busy
with records may be numbered behind who arrives elsewhere at the same moment. A record is answered alike whether it was
counted, had been before, or came too late: the same bytes, through the same queue, no sooner than a public time
(`writer.py`).
"""

import base64
import binascii
import hmac
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

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
from privrl.service.opening import work_on
from privrl.service.refusals import RefusedError
from privrl.service.registry import AbstractServed
from privrl.service.study_file import StudyFile
from privrl.studies.live.agent import Agent
from privrl.studies.live.arrivals import Ticket

_ARRIVE, _END = "arrive", "end"
_PURPOSE = "tickets over HTTP"
_MAC = 16
_COINS = 512  # random numbers that are drawn at once
_TICKETS = msgspec.json.Decoder(Ticket)


class CentralServed(AbstractServed):
    """An `Agent` behind the writer, and its plans as tables."""

    def __init__(self, file: StudyFile, clock: Callable[[], float] = time.time) -> None:
        super().__init__(file, clock)
        problem = file.world.problem()
        self._sizes = (problem.horizon, problem.num_states, problem.num_actions)
        self._tables: tuple[Float[np.ndarray, "H S A"], ...] = ()
        self._coins: list[float] = []
        self._signing: hmac.HMAC | None = None
        self._agent: Agent | None = None
        self.policy = b""
        """The newest plan, as it is answered."""

    @property
    def summary(self) -> StudySummary:
        """What an app must know."""
        horizon, states, actions = self._sizes
        file = self.file
        delta = None if file.delta is None else file.delta.hex()
        assert file.patience is not None
        known = (self.kind, file.users, self.view.ends[-1], file.epsilon.hex(), delta, states, actions, horizon)
        return StudySummary(*known, file.patience, file.max_episodes_per_unit, file.min_block_distance)

    # --------------------------------------------------------------------------------------------- in the event loop

    async def arrive(self, user: str | int, visit: str | int, key: str) -> TicketAnswer:
        """The ticket of a person, or of one of their visits; `key` is the name of the app's."""
        self.check_open()
        try:
            came = canonical_id(user).decode(), canonical_id(visit).decode(), key
        except ValueError as error:
            raise RefusedError("malformed", str(error)) from None
        (answer,) = await self.writer.submit(_ARRIVE, [came])
        if isinstance(answer, PairingError):
            raise RefusedError("full", f"All {self.view.ends[-1]} places are taken. Nothing was kept.")
        return answer

    def act(self, ticket: Ticket, state: int, step: int) -> ActionAnswer:
        """An action for the person of a ticket."""
        horizon, states, _ = self._sizes
        if not (0 <= step < horizon and 0 <= state < states):
            raise RefusedError("out-of-range", f"`step` must lie in [0, {horizon}) and `state` in [0, {states}).")
        if not self._coins:  # many at once: the system is asked seldom
            self._coins = ((np.frombuffer(os.urandom(8 * _COINS), np.uint64) >> 11) * 2.0**-53).tolist()
        return ActionAnswer(draw_action(self._tables[ticket.plan], state, step, self._coins.pop()), ticket.plan)

    async def meet(self, ticket: Ticket) -> None:
        """Makes sure that the plan of a ticket is here: another machine may have been further."""
        if ticket.plan >= len(self._tables):
            self.check_open()
            await self.in_writer(lambda store: self._plan_again())
        if ticket.plan >= len(self._tables):
            raise RefusedError("unknown-plan", "This ticket has a plan that this store lacks: it is an older copy.")

    def record(self, text: str, steps: Sequence[RecordedStep]) -> tuple[Ticket, Columns]:
        """A record that can be counted; refused otherwise, before it is queued."""
        ticket = self.known(text)
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
                raise RefusedError("bad-record", f"`{word}` must lie below {bound} in every step.")
        return ticket, found

    async def end(self, records: Sequence[tuple[Ticket, Columns]]) -> None:
        """Counts people once each."""
        self.check_open()
        await self.writer.submit(_END, records)

    def known(self, text: str) -> Ticket:
        """The ticket of a text that `_sealed` made."""
        if self._signing is None:
            self.check_open()  # without a secret every ticket would look like one of another study
        try:
            raw = base64.urlsafe_b64decode(text)
            if self._signing is not None and hmac.compare_digest(raw[:_MAC], self._mac(raw[_MAC:])):
                return _TICKETS.decode(raw[_MAC:])
        except (binascii.Error, ValueError):
            pass
        raise RefusedError("unknown-ticket", "Pass the `ticket` that `tickets` answered, of this study.")

    def _mac(self, content: bytes) -> bytes:
        assert self._signing is not None
        made = self._signing.copy()
        made.update(content)
        return made.digest()[:_MAC]

    # ------------------------------------------------------------------------------------------ in the writer's thread

    def _begun(self, store: ReleaseStore) -> None:
        self._tables = ()
        agent = self._agent = self._made(store)
        if agent is not None and not self.view.shown["purged"]:
            self._signing = hmac.new(store.secret(_PURPOSE), digestmod="sha256")
            agent.plans.units(jax.tree.map(lambda x: x[None], Trajectory.empty(self._sizes[0])), 0)  # compiled now
        self._plan_again()

    def _made(self, store: ReleaseStore) -> Agent | None:
        """The agent; none in a store that was purged before everything was released."""
        self._publish(shown=store.shown())
        try:
            agent = work_on(self.file, store, lambda: self._time)
        except StoreError:
            if self.view.shown["purged"]:
                return None
            raise
        assert isinstance(agent, Agent)
        return agent

    def _answered(self, kind: str, people: Sequence[Any]) -> list[Any]:
        assert self._agent is not None
        if kind == _ARRIVE:
            before = self._agent.num_arrived
            tickets = self._arrived(self._agent, people)
            self._count_arrivals(before, people, tickets)
            if any(isinstance(one, Ticket) and one.plan >= len(self._tables) for one in tickets):
                self._plan_again()  # a ticket's plan is here before the ticket is out
            return [self._sealed(self._agent, one) if isinstance(one, Ticket) else one for one in tickets]
        # A record that can be read no further than our checks counts as empty, in silence.
        tickets_of, columns = zip(*people, strict=True)
        self._agent.count_records(tickets_of, Trajectory.stacked(columns))
        return [None] * len(people)

    def _count_arrivals(
        self, before: int, people: Sequence[tuple[str, str, str]], tickets: Sequence[Ticket | PairingError]
    ) -> None:
        """Counts who has come for the first time, once: that somebody came back is as secret as their record."""
        found = zip(people, tickets, strict=True)
        new = {one.number: key for (_, _, key), one in found if isinstance(one, Ticket) and one.number >= before}
        self.counters.arrivals.update(new.values())

    def _arrived(self, agent: Agent, people: Sequence[tuple[str, str, str]]) -> Sequence[Ticket | PairingError]:
        try:
            users, visits, _ = zip(*people, strict=True)
            return agent.begin_episodes(users, visits)
        except PairingError as error:
            return [error] if len(people) == 1 else [self._arrived(agent, [person])[0] for person in people]

    def _sealed(self, agent: Agent, ticket: Ticket) -> TicketAnswer:
        content = msgspec.json.encode(ticket)
        text = base64.urlsafe_b64encode(self._mac(content) + content).decode()
        return TicketAnswer(text, str(ticket.number), ticket.plan, agent.deadline(ticket))

    def _plan_again(self) -> float | None:
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
            self._publish(plan=plans.closed, certificate=certificate, shown=self._store.shown())
        closing = agent.next_closing
        return None if closing is None else math.ceil(closing) - self._clock()
