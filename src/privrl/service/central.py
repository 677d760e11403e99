"""A central study over HTTP: people arrive, act on the plan of their ticket, and their record is posted at the end.

Tickets and records go through the writer (`ticketed.py`); actions come from tables in memory.

**Formal guarantee.** Apart from the policy itself, which consists of releases, a response is a function of the request,
of arrivals and of the clock. The time of an arrival or a record is the whole second in which it was queued. Blocks
close at such times, before later requests and after earlier ones, however long the writer takes. This holds on one
machine. If several machines serve a study, we assume that the order of their commits does not depend on records: a
record in the last moment before a block closes may come too late because of another machine's commit, and a person who
arrives at a machine that is busy with records may get a later number than one who arrives elsewhere at the same moment.
A record gets the same response if it is counted, was counted before, or comes too late: the same bytes, through the
same queue, no sooner than a public time (`writer.py`).
"""

import os
import time
from collections.abc import Callable, Sequence

import jax
import msgspec
import numpy as np
from jaxtyping import Float

from privrl.mdp.records import Columns, padded_columns
from privrl.mdp.simulation import cumulative_table, draw_action
from privrl.mdp.types import Trajectory
from privrl.privacy.store.release_store import ReleaseStore
from privrl.service.bodies import ActionAnswer, PolicyAnswer, RecordedStep, StudySummary
from privrl.service.opening import start_learning
from privrl.service.refusals import RefusedError
from privrl.service.study_file import StudyFile
from privrl.service.ticketed import AbstractTicketedStudy
from privrl.studies.live.agent import Agent
from privrl.studies.live.arrivals import Ticket

_COINS = 512  # random numbers per system call


class CentralStudy(AbstractTicketedStudy[Agent, Columns]):
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
        self.policy = b""

    @property
    def summary(self) -> StudySummary:
        """The sizes and the budget of the study."""
        horizon, states, actions = self._sizes
        file = self.file
        assert file.patience is not None
        return StudySummary(
            kind=self.kind,
            users=file.users,
            places=self.view.ends[-1],
            epsilon=file.epsilon,
            delta=file.delta,
            uses_rewards=self.uses_rewards,
            states=states,
            actions=actions,
            horizon=horizon,
            patience=file.patience,
            max_episodes_per_unit=file.max_episodes_per_unit,
            min_block_distance=file.min_block_distance,
        )

    # --------------------------------------------------------------------------------------------- in the event loop

    def draw_action(self, ticket: Ticket, state: int, step: int) -> ActionAnswer:
        """Draw an action for the person of a ticket."""
        return self._draw(ticket.plan, state, step)

    def draw_current_action(self, state: int, step: int) -> ActionAnswer:
        """Draw an action from the plan in force, for a person who does not take part."""
        if not self._tables:
            self.check_open()
            raise RefusedError("purged", "This study was purged before its end, so it has no plan any more.")
        return self._draw(len(self._tables) - 1, state, step)

    def _draw(self, plan: int, state: int, step: int) -> ActionAnswer:
        horizon, states, _ = self._sizes
        if not (0 <= step < horizon and 0 <= state < states):
            raise RefusedError("out-of-range", f"Expected 0 <= `step` < {horizon} and 0 <= `state` < {states}.")
        if not self._coins:
            self._coins = ((np.frombuffer(os.urandom(8 * _COINS), np.uint64) >> 11) * 2.0**-53).tolist()
        return ActionAnswer(draw_action(self._tables[plan], state, step, self._coins.pop()), plan)

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

    # ------------------------------------------------------------------------------------------- in the writer's thread

    def _start_agent(self, store: ReleaseStore) -> Agent:
        agent = start_learning(self.file, store, lambda: self._time)
        assert isinstance(agent, Agent)
        return agent

    def _compile(self, agent: Agent) -> None:
        agent.plans.to_steps(jax.tree.map(lambda x: x[None], Trajectory.empty(self._sizes[0])), 0)

    def _count_records(self, agent: Agent, tickets: Sequence[Ticket], records: Sequence[Columns]) -> None:
        agent.count_records(tickets, Trajectory.stack(records))

    @property
    def _published(self) -> int:
        return len(self._tables)

    def _forget_plans(self) -> None:
        self._tables = ()

    def _publish(self, agent: Agent) -> None:
        plans = agent.plans
        missing = range(len(self._tables), plans.current + 1)
        self._tables += tuple(cumulative_table(plans[number].policy) for number in missing)
        newest = np.asarray(plans[plans.current].policy.probabilities)
        self.policy = msgspec.json.encode(PolicyAnswer(plans.current, newest.tolist()))
