"""`Pilot`: a trial of policies at work with real people, safe across crashes.

A person who arrives gets a ticket with an arm, which the operating system's randomness drew once
(`randomisation.py`). People in the arm of current practice are left to the clinician. In the arm of a policy the
policy advises: ask `advise`, or compute the advice elsewhere from the file of the ticket's arm. When the outcome is
known, send it with the ticket. At every look the numbers received and the sums of outcomes of each arm are
released, and what is served follows from them at once.
"""

import functools
import math
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from privrl.contracts.learner import Plan
from privrl.contracts.policy import AbstractPolicy
from privrl.learners.trials.looks import looks_of
from privrl.learners.trials.protocol import Arm, Protocol
from privrl.learners.trials.trial import Trial, TrialState
from privrl.mdp.simulation import action_draw, cumulative_table, draw_action
from privrl.privacy.shared_budget import AnySharedBudget
from privrl.privacy.store.release_store import ReleaseStore
from privrl.statistics.arm_sums import Assignment, Outcomes
from privrl.studies.keys import KeyLike
from privrl.studies.live.agent import AbstractAgent
from privrl.studies.live.arrivals import Ticket
from privrl.studies.live.randomisation import PRACTICE, Randomisation
from privrl.studies.results.arm_policies import how_to_advise, is_served_by_state
from privrl.studies.results.binding import policy_sha256
from privrl.studies.results.pilot_record import PilotRecord


class Pilot(AbstractAgent):
    """Conducts a trial: `begin_episode` when a person arrives, `advise` while they are treated, `record` at the end.

    >>> arms = (privrl.Arm("practice"), privrl.Arm("advice"))
    >>> protocol = privrl.Protocol("pilot", 1_000, arms, privrl.Outcome("survival"), epsilon=1.0, delta=1e-6)
    >>> with privrl.ReleaseStore("pilot.db") as store:
    ...     pilot = privrl.Pilot(protocol, store=store)
    ...     ticket = pilot.begin_episode("ana")
    ...     pilot.record(ticket, survival=1.0)
    >>> ticket.arm in (0, 1)
    True

    Arguments:
        protocol: everything that is fixed before the first person is enrolled. The store keeps its hash and refuses
            another one.
        store: where arms, contributions and releases are kept.
        policies: the policies of arms, by the names of the arms, for `advise`; leave them out if apps compute the
            advice. One that is not the policy that the protocol names by its hash is refused.
        clock: seconds; by default the computer's.
        key: seeded noise and arms, for tests and simulations. Leave it out on real people.
        unit: what the ids of people identify, for example "patient_id"; the certificate states it.
        budget: a `SharedBudget`, or its path, for all studies of the same `unit`.

    The guarantee is that of `AbstractAgent`; arms and groups are public, and neighbours keep them.

    Raises:
        ValueError: a policy is missing or does not fit the protocol, or an argument is out of its range.
        StoreError: the store cannot be opened, is older than its audit log, or belongs to another study.
    """

    def __init__(
        self,
        protocol: Protocol,
        *,
        store: ReleaseStore,
        policies: Mapping[str, AbstractPolicy] | None = None,
        clock: Callable[[], float] = time.time,
        key: KeyLike | None = None,
        unit: str = "user",
        budget: AnySharedBudget | None = None,
    ) -> None:
        self.protocol = protocol
        self._policies = dict(policies or {})
        _check_policies(protocol, self._policies)
        super().__init__(
            Trial(protocol),
            protocol.privatizer,
            num_users=protocol.people,
            store=store,
            patience=protocol.patience,
            clock=clock,
            key=key,
            unit=unit,
            budget=budget,
        )

    @property
    def state(self) -> TrialState:
        """Where the trial stands: what was released and decided so far. Public."""
        self._plans.catch_up()
        return self._plans[-1].policy

    def to_record(self) -> PilotRecord:
        """What every look has shown so far, with the certificate; `save` writes it to a folder. Public."""
        certificate = self.certificate  # catches up
        return PilotRecord(self.protocol, looks_of(Trial(self.protocol), self._plans[-1].policy), certificate)

    def advise(self, ticket: Ticket, state: int, step: int) -> int | None:
        """Returns the action for the person with this ticket; `None` if the decision is left to the clinician.

        Only policies on numbered states can be asked. Apps compute the advice of other policies from the file that
        `privrl pilot init` wrote for the arm.
        """
        self._arrivals.check(ticket)
        if ticket.arm in (None, PRACTICE):
            return None
        table = self._table(self.protocol.arms[ticket.arm])
        horizon, num_states, _ = table.shape
        if not (0 <= step < horizon and 0 <= state < num_states):
            raise ValueError(f"Expected 0 <= `step` < {horizon} and 0 <= `state` < {num_states}.")
        person = self._person(ticket)
        coin = secrets.randbits(53) * 2.0**-53 if person is None else float(action_draw(person, horizon, step))
        return draw_action(table, state, step, coin)

    def record(self, ticket: Ticket, **outcomes: float) -> None:
        """Counts a person's outcomes at most once; safe to call again after a crash.

        Arguments:
            ticket: the ticket from `begin_episode`.
            outcomes: the value of every declared outcome, by name. One that is left out is missing.
        """
        self.end_episode(ticket, read_outcomes(self.protocol, outcomes))

    def compile_counting(self) -> None:
        """Compiles what counts a record, so that the first person does not wait for it. Nothing is counted."""
        empty = jax.tree.map(lambda x: np.asarray(x)[None], self._blank(self._plans[0]))
        group = "/".join(part.groups[0] for part in self.protocol.subgroups)
        self._plans.to_steps(empty, 0, self._query((PRACTICE, group)))

    def _table(self, arm: Arm) -> Float[np.ndarray, "H S A"]:
        """The policy of an arm on the host."""
        table = self._tables.get(arm.name)
        if table is None:
            policy = self._policies.get(arm.name)
            if not is_served_by_state(policy):
                raise ValueError(
                    f"The policy of the arm `{arm.name}` was not given, is not a table of numbered states, or its "
                    f"rules need the previous action. {how_to_advise(arm)}"
                )
            table = self._tables[arm.name] = cumulative_table(policy)
        return table

    @functools.cached_property
    def _tables(self) -> dict[str, Float[np.ndarray, "H S A"]]:
        """The policies of arms on the host."""
        return {}

    @property
    def _facts(self) -> dict[str, Any]:
        return {"protocol": self.protocol.sha256}

    def _randomise(self) -> Randomisation:
        return Randomisation(self._state_at, self._key)

    def _state_at(self, plan: int) -> TrialState:
        """The state of the trial under a plan, on the host."""
        number = self._plans.closed if plan < 0 else plan
        if number not in self._states:
            self._states[number] = jax.tree.map(np.asarray, self._plans[number].policy)
        return self._states[number]

    @functools.cached_property
    def _states(self) -> dict[int, TrialState]:
        return {}

    def _assignment(self, ticket: Ticket) -> tuple[int, str]:
        return self._arrivals.assignment(ticket.number)

    def _query(self, assigned: tuple[int, str]) -> Assignment:
        arm, group = assigned
        return Assignment(jnp.asarray(arm), jnp.asarray(self.protocol.cells_of(group), int))

    def _check_group(self, group: str) -> None:
        self.protocol.cells_of(group)

    def _blank(self, plan: Plan) -> Outcomes:
        del plan
        return Outcomes(jnp.zeros(len(self.protocol.outcomes)))


def _check_policies(protocol: Protocol, policies: Mapping[str, AbstractPolicy]) -> None:
    """Refuses policies of unknown arms, and those that the protocol does not name."""
    hashes = {arm.name: arm.sha256 for arm in protocol.policies}
    for name, policy in policies.items():
        if name not in hashes:
            raise ValueError(f"`policies` has {name!r}; the arms with a policy are {', '.join(map(repr, hashes))}.")
        if hashes[name] and policy_sha256(policy) != hashes[name]:
            raise ValueError(
                f"The policy of the arm `{name}` is not the one that the protocol names by its hash. A protocol cannot "
                "change after the first person was enrolled."
            )


def read_outcomes(protocol: Protocol, outcomes: Mapping[str, float]) -> Outcomes:
    """The record of a person for `Pilot.end_episodes`, from the values of outcomes by name; others are missing.

    Raises:
        ValueError: an outcome is unknown or not a finite number. The message quotes no value.
    """
    names = [outcome.name for outcome in protocol.outcomes]
    if not set(outcomes) <= set(names):
        raise ValueError(f"An outcome is unknown. The protocol declares {', '.join(f'`{name}`' for name in names)}.")
    for name, value in outcomes.items():
        if not _is_finite(value):
            raise ValueError(f"`{name}` must be a finite number. Leave it out if it is missing.")
    return Outcomes(jnp.asarray([float(outcomes.get(name, math.nan)) for name in names]))


def _is_finite(value: object) -> bool:
    try:
        return isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floating-point numbers
        return False
