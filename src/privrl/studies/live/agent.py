"""`Agent` and `Controller`: online learners at work with real people, safe across crashes.

A person arrives, gets a ticket (`arrivals.py`), acts on the plan that is current at that moment, and leaves a
record. The agent adds the record exactly to the sums of the person's block in a `ReleaseStore`. When a block
closes, the agent releases its noisy sums once and plans again (`live_plans.py`). The store holds everything the
agent knows: any number of processes may work on it, and each catches up with the others before it answers.
"""

import abc
import contextlib
import functools
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int64, PRNGKeyArray, PyTree

from privrl.contracts.learner import AbstractLearner, AbstractOnlineLearner, Plan
from privrl.learners.trials.trial import Trial
from privrl.mdp.lq import LQTrajectory, explorations
from privrl.mdp.simulation import action_draw, cumulative_table, draw_action
from privrl.mdp.types import RecordForm, Trajectory
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.noise.sources import Seeded, System
from privrl.privacy.shared_budget import AnySharedBudget
from privrl.privacy.store.errors import SumSealedError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import AbstractPrivatizer, Central, PairingError
from privrl.recipes.pairing import AnyWorld, BudgetArguments, resolve_pair
from privrl.studies.keys import KeyLike, optional_key
from privrl.studies.live.arrivals import AbstractArrivals, BehindError, Ticket
from privrl.studies.live.fixed_order import FixedOrder
from privrl.studies.live.live_plans import LivePlans
from privrl.studies.live.patience import Patience
from privrl.studies.live.randomisation import Randomisation
from privrl.studies.open_ended import OpenEnded
from privrl.studies.results.result import Result
from privrl.studies.simulation.simulated_loop import SimulationKeys
from privrl.studies.study import Study, participation_of


class AbstractAgent(abc.ABC):
    """Learns from people as they come and go, and never overspends.

    Arguments:
        learner: an online learner that publishes sums over people's records, such as `LSVIUCB`; or the name of a
            recipe, such as "dp-ucbvi", with `world` and a budget.
        privatizer: with a learner object: `Central(...)`. Read through the billboard lemma this is joint
            differential privacy.
        world: with the name of a recipe: the environment or its name, or a `privrl.recipes.Problem`.
        epsilon, delta, rho: with the name of a recipe: the budget.
        num_users: the public number of people K, fixed in advance. It sets the schedule and the noise. Further
            people are refused. If K is unknown, pass `None` or an `OpenEnded`; the study then runs in epochs.
        store: where places, contributions and releases are kept.
        patience: for people who come and go: the longest episode that the agent waits for, in seconds or as a
            `timedelta`. A block is released this long after its last person arrived, whether or not all its people
            have finished; later records count as empty.
        fixed_order: use this instead of `patience` only if the sequence of people is fixed in advance (a
            simulation, a public list). A block is released as soon as all its people have ended, and people of the
            next block wait for that.
        clock: seconds, for `patience`; by default the computer's.
        max_episodes_per_unit: the largest number of episodes that count for one person, if people return. Noise and
            certificate cover all of them. Further episodes are served and not counted. `num_users` is then the
            number of people (with `patience`) or the number of visits in the list (in fixed order).
        min_block_distance: an episode counts only if it begins at least this number of blocks after the same
            person's last episode that counts. A distance reduces the noise.
        unit: what the ids of people identify, for example "patient_id"; the certificate states it.
        budget: a `SharedBudget`, or its path, for all studies of the same `unit`. The cost is reserved there once,
            before the first person arrives.
        plan_delay: the number of blocks by which plans lag behind, 0 or 1, with `patience`. With 1, a plan takes effect
            when the block after its last one closes, and is computed in a thread of its own meanwhile, so people do
            not wait for it. `run(delay=1)` simulates what this costs.
        key: seeded noise and actions for tests and simulations, the same as those of `run` for a seed of this key.
            Leave it out on real people.

    **Formal guarantee.** A person (an id) has one place and is counted at most once, however often messages are
    repeated (at most `max_episodes_per_unit` times, at least `min_block_distance` blocks apart). Every release is
    drawn once and kept before it is used. The people of its block and its closing time depend neither on records
    nor on who returns. The sequence of all releases is (epsilon, delta)-differentially private; what other people
    are shown, and all that is published, depends on a person's record only through it, provided that arrivals do
    not depend on records (the certificate states this in full). A person's own actions are not covered. Proof:
    `docs/proofs/arrivals.md`.
    """

    def __init__(
        self,
        learner: str | AbstractLearner,
        privatizer: AbstractPrivatizer | None = None,
        *,
        num_users: int | OpenEnded | None,
        store: ReleaseStore,
        world: str | AnyWorld | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        patience: float | timedelta | None = None,
        fixed_order: bool = False,
        clock: Callable[[], float] = time.time,
        key: KeyLike | None = None,
        max_episodes_per_unit: int = 1,
        min_block_distance: int = 0,
        plan_delay: int = 0,
        unit: str = "user",
        budget: AnySharedBudget | None = None,
    ) -> None:
        given = BudgetArguments(epsilon, delta, rho)
        learner, privatizer = resolve_pair(learner, privatizer, world, given, "online", "control")
        key = optional_key(key)
        self._store, self._key = store, key
        if not isinstance(privatizer, Central) or privatizer.budget is None:
            raise PairingError("`Agent` needs `Central(...)` with a finite budget: it works with real people.")
        often = participation_of(max_episodes_per_unit, min_block_distance)
        users = OpenEnded() if num_users is None else num_users
        self._study = Study.online(learner, privatizer, users, often, secret_returns=patience is not None)
        self._study.unit = unit
        assert isinstance(self._study.learner, AbstractOnlineLearner)
        self._learner = self._study.learner
        if asked := self._study.asked():
            raise PairingError(
                f"`{self._study.name}` asks new queries about people who have left ({', '.join(asked)}), and `Agent` "
                "keeps sums only. Use a learner that publishes running sums, such as `LSVIUCB`."
            )
        ends = self._study.ends
        assert ends is not None
        self._arrivals: AbstractArrivals
        if patience is not None and not fixed_order:
            self._arrivals = Patience(store, ends, patience, clock, often, self._randomise())
        elif fixed_order and patience is None:
            self._arrivals = FixedOrder(store, ends, often)
        else:
            raise ValueError(
                "Say when a block of people may be released: `patience=...` (seconds, or a `timedelta`: the longest "
                "stay that is waited for) for people who come and go, or `fixed_order=True` where the sequence of "
                "people is fixed in advance (a simulation, a public list). One of the two, not both."
            )
        if plan_delay not in (0, 1) or (plan_delay and (fixed_order or self._randomise() is not None)):
            raise ValueError(
                f"`plan_delay` is {plan_delay}. Expected 0, or 1 with `patience`; a trial plans nothing, so its shares "
                "and verdicts take effect at once."
            )
        self._arrivals.plan_delay = plan_delay
        self._plans = LivePlans(self._learner, self._study, self._arrivals, store, self._blank, key, plan_delay)
        limits, arrivals = self._plans.limits(len(ends)), self._arrivals.settings
        if plan_delay:
            arrivals = arrivals | {"plan_delay": plan_delay}
        facts = {"users": self._study.users, "arrivals": arrivals, **self._facts}
        self._study.open(store, "agent", limits, key=key, **facts)
        called = "pilot" if isinstance(self._learner, Trial) else None
        self._study.reserve(budget, "agent", None, key, store, called)
        self._plans.check_lattices()
        self._plans.catch_up()

    @property
    def num_arrived(self) -> int:
        """The number of tickets issued; public. The number of people counted is secret."""
        return self._arrivals.num_arrived

    @property
    def plans(self) -> LivePlans:
        """Every plan so far; the one in force has the number `plans.current`."""
        self._plans.catch_up()
        return self._plans

    @property
    def next_closing(self) -> float | None:
        """When the open block closes, on the clock of `patience`; `None` until the block is full. Public."""
        return self._arrivals.closing(self._plans.closed)

    @property
    def last_closing(self) -> float | None:
        """When the last closed block closed, on the clock of `patience`; `None` if there is none. Public."""
        return self._arrivals.closed_at(self._plans.closed - 1) if self._plans.closed else None

    @property
    def latest_arrival(self) -> float | None:
        """The time of the latest first arrival, on the clock of `patience`. Public."""
        return self._arrivals.latest

    def deadline(self, ticket: Ticket) -> float | None:
        """The time until which a record is accepted, on the clock of `patience`; a later record may count as empty."""
        return self._arrivals.deadline(ticket)

    @property
    def policy(self) -> PyTree:
        """The current policy, on which the next person to arrive acts."""
        self._plans.catch_up()
        return self._plans[self._plans.current].policy

    @abc.abstractmethod
    def _blank(self, plan: Plan) -> object:
        """What a record looks like."""

    @property
    def _facts(self) -> dict[str, object]:
        """What else the store keeps for good, on which every process that works on the study must agree."""
        return {}

    def _randomise(self) -> Randomisation | None:
        """In a trial, draws the arms of people."""
        return None

    def _assignment(self, ticket: Ticket) -> Any:
        """In a trial, the arm and the group of a person; hashable."""
        del ticket

    def _query(self, assigned: Any) -> Any:
        """In a trial, what the record of a person with this assignment answers; otherwise that of their plan."""
        del assigned

    def _check_group(self, group: str) -> None:
        """Refuses a group that was not declared."""
        if group:
            raise ValueError("`group` belongs to trials with declared subgroups. Leave it out.")

    def begin_episode(self, user: str | int, visit: str | int = "", group: str = "") -> Ticket:
        """Registers an arrival and returns the person's ticket, which is stored before it is returned. The same id
        gets the same ticket.

        Arguments:
            user: the person's id; the store keeps a keyed digest of it. 12 and "12" are one id.
            visit: if people return, the name of this visit. Use a random session id, because a guessable name lets
                anyone who may begin episodes find out whether that visit took place. A new name begins a new
                episode; the same name gets the same ticket, however often it is sent. Without a name it is the
                first visit.
            group: in a trial with subgroups, the person's group. It is public and stored with the ticket.
        """
        (ticket,) = self.begin_episodes([user], [visit], [group])
        return ticket

    def begin_episodes(
        self,
        users: Iterable[str | int],
        visits: Iterable[str | int] | None = None,
        groups: Iterable[str] | None = None,
    ) -> list[Ticket]:
        """Registers several arrivals in this order and returns their tickets. One commit stores all of them or none."""
        users = list(users)
        came = list(zip(users, [""] * len(users) if visits is None else visits, strict=True))
        given = [""] * len(users) if groups is None else list(groups)
        for group in set(given):
            self._check_group(group)
        while True:
            self._plans.catch_up()
            try:
                return self._arrivals.arrive_all(came, self._plans.closed, given)
            except BehindError:  # another block has closed in between
                self._arrivals.forget()
            except BaseException:
                self._arrivals.forget()
                raise

    def end_episode(self, ticket: Ticket, trajectory: object) -> None:
        """Counts a person's record at most once; safe to call again after a crash.

        Returns nothing, because it is secret whether the record was counted now, had been counted before, or came
        too late.

        Arguments:
            ticket: the ticket from `begin_episode`.
            trajectory: what happened, padded to the horizon.
        """
        self.end_episodes([(ticket, trajectory)])

    def end_episodes(self, ended: Iterable[tuple[Ticket, object]]) -> None:
        """Counts several records independently: an error names those that cannot be read, and the others count."""
        ended = list(ended)
        refused = set(range(len(ended)))
        positions, tickets, records = [], [], []
        for position, pair in enumerate(ended):
            ticket, trajectory = pair if isinstance(pair, tuple) and len(pair) == 2 else (None, None)
            leaves = self._form.leaves(trajectory)
            if leaves is not None:
                positions.append(position)
                tickets.append(ticket)
                records.append(leaves)
        if records:
            read = self.count_records(tickets, self._form.stack(records))
            refused -= {position for position, fine in zip(positions, read, strict=True) if fine}
        if refused:
            raise ValueError(
                f"{len(refused)} of {len(ended)} records were not counted, the first at position {min(refused)}: a "
                "record comes with a ticket of this study, and has the parts of "
                f"`{self._form.name}` as numbers of shapes {self._form.shapes}. Send it again as it should be, or an "
                "empty one (length 0)."
            )

    def count_records(self, tickets: Sequence[Ticket], records: PyTree) -> list[bool]:
        """Counts the records of several people, given as one record with a batch axis. Returns which of them could be
        read, that is, came with a ticket of this study and contain finite numbers. It does not reveal whether a
        record was counted now, had been counted before, or came too late.
        """
        self._plans.catch_up()
        issued = self._arrivals.all_issued(tickets)
        by_plan: dict[tuple[int, object], list[int]] = {}
        for position, ticket in enumerate(tickets):
            if issued[position]:
                by_plan.setdefault((ticket.plan, self._assignment(ticket)), []).append(position)
        read = [False] * len(tickets)
        rows: dict[tuple[int, int], dict[str, Int64[np.ndarray, " entries"]]] = {}
        for (plan, assigned), positions in by_plan.items():
            some = records if len(positions) == len(tickets) else jax.tree.map(lambda x: x[positions], records)  # noqa: B023
            for position, units in zip(positions, self._units(some, len(positions), plan, assigned), strict=True):
                if units is not None:
                    ticket, read[position] = tickets[position], True
                    if not self._arrivals.has_block(ticket):
                        continue
                    kept = units if self._arrivals.counts(ticket) else np.zeros_like(units)
                    rows.setdefault((self._arrivals.block(ticket), plan), {}).setdefault(ticket.key, kept)
        if len(rows) == 1:
            self._count(rows)
        elif rows:
            self._store.together(functools.partial(self._count, rows))
        self._plans.catch_up()
        return read

    def _count(self, rows: dict[tuple[int, int], dict[str, Int64[np.ndarray, " entries"]]]) -> None:
        """Adds each person's terms to the sum of their block and plan."""
        for (block, plan), units_of in sorted(rows.items(), key=lambda row: self._arrivals.sum_name(*row[0])):
            closed = functools.partial(self._arrivals.closes, block)
            keys, units = list(units_of), np.array(list(units_of.values()))
            with contextlib.suppress(SumSealedError):  # too late: answered alike
                self._store.contribute(self._arrivals.sum_name(block, plan), keys, units, scope="people", closed=closed)

    def _units(self, records: Any, number: int, plan: int, assigned: Any) -> list[Int64[np.ndarray, " entries"] | None]:
        """Each person's terms in steps of the lattice; `None` if a record cannot be read for any reason.

        An error here must neither affect another person's record nor quote this one.
        """
        try:
            found, finite = self._plans.to_steps(records, plan, self._query(assigned))
            return [units if fine else None for units, fine in zip(found, finite.tolist(), strict=True)]
        except Exception:
            if number == 1:
                return [None]
            alone = (jax.tree.map(lambda x: x[i : i + 1], records) for i in range(number))  # noqa: B023
            return [self._units(record, 1, plan, assigned)[0] for record in alone]

    @functools.cached_property
    def _form(self) -> RecordForm:
        """What a record looks like."""
        return RecordForm(self._blank(self._plans[0]))

    @property
    def certificate(self) -> Certificate:
        """What all releases of the study, past and future, can reveal."""
        self._plans.catch_up()
        made = {name: (self._plans.closed, channel.calibration) for name, channel in self._plans.channels.items()}
        source = System.origin if self._key is None else Seeded.origin
        notes = (self._arrivals.assumption, *self._store.notes())
        return self._study.certificate(source, made=made, notes=notes)

    def result(self) -> Result:
        """The current policy, the certificate, and the number of tickets issued."""
        certificate = self.certificate  # catches up, so that the policy is the one of the releases it counts
        return Result(self._plans[self._plans.current].policy, certificate, {"tickets": self.num_arrived})

    def _plan_of(self, ticket: Ticket) -> Plan:
        """The plan that a person acts on."""
        self._arrivals.check(ticket)
        if ticket.plan > self._plans.current:  # another process was further
            self._plans.catch_up()
        return self._plans[ticket.plan]

    def _person(self, ticket: Ticket) -> PRNGKeyArray | None:
        """The simulation's randomness for a person; `None` with real people."""
        if self._key is None:
            return None
        person = SimulationKeys.of(self._key).person(self._arrivals.block(ticket), ticket.number)
        return jax.random.fold_in(person, zlib.crc32(ticket.visit.encode())) if ticket.visit else person


class Agent(AbstractAgent):
    """Runs a learner for finite worlds: `begin_episode` when a person arrives, `act` at every step, `end_episode`.

    >>> study = {"world": "riverswim", "epsilon": 1, "delta": 1e-6, "num_users": 1_000, "patience": 3600}
    >>> with privrl.ReleaseStore("study.db") as store:
    ...     agent = privrl.Agent("dp-ucbvi", store=store, **study)
    ...     ticket = agent.begin_episode("ana")
    ...     agent.act(ticket, state=0, step=0) in (0, 1)
    True

    Arguments and guarantee are those of `AbstractAgent`.

    Raises:
        ValueError: learner and privatizer do not fit together, or an argument is missing or out of its range.
        StoreError: the store cannot be opened, is older than its audit log, or belongs to another study.
    """

    def act(self, ticket: Ticket, state: int, step: int) -> int:
        """Draws an action for the person with this ticket from the policy that was current when they arrived."""
        plan = self._plan_of(ticket)
        table = self._tables.get(ticket.plan)
        if table is None:
            table = self._tables[ticket.plan] = cumulative_table(plan.policy)
        horizon, num_states, _ = table.shape
        if not (0 <= step < horizon and 0 <= state < num_states):
            raise ValueError(f"Expected 0 <= `step` < {horizon} and 0 <= `state` < {num_states}.")
        person = self._person(ticket)
        coin = secrets.randbits(53) * 2.0**-53 if person is None else float(action_draw(person, horizon, step))
        return draw_action(table, state, step, coin)

    @functools.cached_property
    def _tables(self) -> dict[int, Float[np.ndarray, "H S A"]]:
        """The policies of plans on the host."""
        return {}

    def _blank(self, plan: Plan) -> Trajectory:
        del plan
        return Trajectory.empty(self._learner.horizon)


class Controller(AbstractAgent):
    """Runs a learner of linear control: `act` returns the input and the exploration that is part of it.

    >>> study = {"world": "lq-scalar", "epsilon": 1, "delta": 1e-6, "num_users": 1_000, "patience": 3600}
    >>> with privrl.ReleaseStore("control.db") as store:
    ...     controller = privrl.Controller("private-lq", store=store, **study)
    ...     ticket = controller.begin_episode("ana")
    ...     applied, explored = controller.act(ticket, state=[0.5], step=0)
    >>> applied.shape
    (1,)

    Keep both for the trajectory, because the learner learns from the exploration. Arguments and guarantee are those
    of `AbstractAgent`.

    Raises:
        ValueError: learner and privatizer do not fit together, or an argument is missing or out of its range.
        StoreError: the store cannot be opened, is older than its audit log, or belongs to another study.
    """

    def act(
        self, ticket: Ticket, state: Float[np.ndarray, " n"], step: int
    ) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
        """Returns the input for the person with this ticket, and its random part."""
        policy = self._plan_of(ticket).policy
        gains, radius = np.asarray(policy.gains), float(policy.radius)
        horizon, d, n = gains.shape
        x = np.asarray(state, float)
        if not (0 <= step < horizon and x.shape == (n,) and np.isfinite(x).all()):
            raise ValueError(f"Expected 0 <= `step` < {horizon} and a `state` of {n} finite numbers.")
        person = self._person(ticket)
        if person is None:
            white = np.random.default_rng(secrets.randbits(128)).normal(size=d)
            explored = np.asarray(radius * white / np.linalg.norm(white))
        else:
            explored = np.asarray(explorations(policy, person)[step])
        return gains[step] @ x + explored, explored

    def _blank(self, plan: Plan) -> LQTrajectory:
        horizon, d, n = plan.policy.gains.shape
        return LQTrajectory(
            jnp.zeros((horizon + 1, n)), jnp.zeros((horizon, d)), jnp.zeros((horizon, d)), jnp.zeros((), int)
        )
