"""A pilot over HTTP: people arrive and are randomised, the app follows the arm, and outcomes are posted at the end.

An app may ask for each action, or compute the advice from the file of the arm. What is served changes with
the look that decides, because a new ticket is issued under the newest plan.

**Formal guarantee.** Everything that is shown is a function of the protocol, of arrivals, arms and groups, of the clock
and of releases. Arms and groups are public, and neighbours keep them. A record gets the same response whether it is
counted now, was counted before, or comes too late.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from privrl.learners.trials.protocol import Protocol
from privrl.mdp.simulation import cumulative_table, draw_action
from privrl.privacy.store.release_store import ReleaseStore
from privrl.service.bodies import ActionAnswer, PilotAnswer
from privrl.service.opening import start_learning
from privrl.service.refusals import RefusedError
from privrl.service.study_file import StudyFile
from privrl.service.ticketed import AbstractTicketedStudy
from privrl.statistics.arm_sums import Outcomes
from privrl.studies.live.arrivals import Ticket
from privrl.studies.live.live_pilot import Pilot, read_outcomes
from privrl.studies.live.randomisation import PRACTICE
from privrl.studies.results.arm_policies import how_to_advise, is_served_by_state, read_arm_policies
from privrl.studies.results.pilot_record import FILES
from privrl.writing import check_folder


class PilotStudy(AbstractTicketedStudy[Pilot, Outcomes]):
    """A `Pilot` in the writer's thread, and the policies of its arms as tables.

    Attributes:
        shown: the protocol and what every look has shown; `None` before the store is open.
    """

    def __init__(self, file: StudyFile, clock: Callable[[], float] = time.time) -> None:
        super().__init__(file, clock)
        assert file.protocol is not None
        self._protocol: Protocol = file.protocol
        self._folder = check_folder(file.path.with_suffix(""), FILES, overwrite=True)
        policies = read_arm_policies(self._protocol, file.path.parent)
        self._tables = {name: cumulative_table(one) for name, one in policies.items() if is_served_by_state(one)}
        self._known_plans = 0
        self.shown: PilotAnswer | None = None

    # --------------------------------------------------------------------------------------------- in the event loop

    def read_groups(self, groups: Mapping[str, str]) -> str:
        """Check the groups of a person, and return them as the protocol does."""
        declared = self._protocol.subgroups
        if set(groups) != {part.name for part in declared} or any(
            groups[one.name] not in one.groups for one in declared
        ):
            wanted = "; ".join(f"{part.name}: {', '.join(part.groups)}" for part in declared) or "no groups"
            raise RefusedError("malformed", f"`groups` must name one group of every partition ({wanted}).")
        return "/".join(groups[part.name] for part in declared)

    def draw_action(self, ticket: Ticket, state: int, step: int) -> ActionAnswer:
        """Draw an action for the person of a ticket, or leave the decision to the clinician."""
        return self._draw(PRACTICE if ticket.arm is None else ticket.arm, ticket.plan, state, step)

    def draw_served_action(self, state: int, step: int) -> ActionAnswer:
        """Draw an action for a person without a ticket, who gets what is served after the end of the trial."""
        if self.shown is None:
            self.check_open()
        if self.shown is None or self.shown.serving is None:
            raise RefusedError(
                "unknown-ticket",
                "The trial goes on, and a person's arm is drawn with their ticket. Request one from `tickets` first.",
            )
        served = [arm.name for arm in self._protocol.arms].index(self.shown.serving)
        return self._draw(served, self.view.plan, state, step)

    def _draw(self, arm_number: int, plan: int, state: int, step: int) -> ActionAnswer:
        if arm_number == PRACTICE:
            return ActionAnswer(None, plan)
        arm = self._protocol.arms[arm_number]
        table = self._tables.get(arm.name)
        if table is None:
            raise RefusedError(
                "not-offered",
                f"The policy of the arm `{arm.name}` is not a table of numbered states, or its rules need the previous "
                f"action. {how_to_advise(arm)}",
            )
        horizon, states, _ = table.shape
        if not (0 <= step < horizon and 0 <= state < states):
            raise RefusedError("out-of-range", f"Expected 0 <= `step` < {horizon} and 0 <= `state` < {states}.")
        return ActionAnswer(draw_action(table, state, step, secrets.randbits(53) * 2.0**-53), plan)

    def check_record(self, text: str, outcomes: Mapping[str, float]) -> tuple[Ticket, Outcomes]:
        """Check a record before it is queued, and return it with its ticket."""
        ticket = self.verify_ticket(text)
        try:
            return ticket, read_outcomes(self._protocol, outcomes)
        except ValueError as error:
            raise RefusedError("bad-record", str(error)) from None

    # ------------------------------------------------------------------------------------------- in the writer's thread

    def _start_agent(self, store: ReleaseStore) -> Pilot:
        agent = start_learning(self.file, store, lambda: self._time)
        assert isinstance(agent, Pilot)
        return agent

    def _compile(self, agent: Pilot) -> None:
        agent.compile_counting()

    def _count_records(self, agent: Pilot, tickets: Sequence[Ticket], records: Sequence[Outcomes]) -> None:
        agent.count_records(tickets, jax.tree.map(lambda *values: np.stack(values), *records))

    def _name_arm(self, ticket: Ticket) -> str:
        assert ticket.arm is not None
        return self._protocol.arms[ticket.arm].name

    @property
    def _published(self) -> int:
        return self._known_plans

    def _forget_plans(self) -> None:
        self._known_plans = 0

    def _publish(self, agent: Pilot) -> None:
        record = agent.to_record()
        self.shown = PilotAnswer(kind=self.kind, **record.to_json())
        self._known_plans = agent.plans.closed + 1
        record.save(self._folder)
