"""`Agent` and `Controller`: online learners at work with real people, safe across crashes.

A person arrives and gets a ticket (`arrivals.py`), acts on the plan that was out then, and leaves a record behind. It
is added, exactly, to the sums of their block in a `ReleaseStore`; when a block closes, the noisy sums are released,
once, and the agent plans again (`live_plans.py`). Everything the agent knows is in the store: any number of processes
may work on it, and each catches up with the others before it answers.
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
from jaxtyping import Float, Int64, PRNGKeyArray

from privrl.contracts.learner import AbstractLearner, AbstractOnlineLearner, Plan
from privrl.mdp.lq import LQTrajectory, explorations
from privrl.mdp.simulation import action_draw, cumulative_table, draw_action
from privrl.mdp.types import RecordForm, Trajectory
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.noise.sources import Seeded, System
from privrl.privacy.store.errors import SumSealedError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import AbstractPrivatizer, Central, PairingError
from privrl.recipes.pairing import AnyWorld, BudgetArguments, resolve_pair
from privrl.studies.keys import KeyLike, optional_key
from privrl.studies.live.arrivals import AbstractArrivals, BehindError, Ticket
from privrl.studies.live.fixed_order import FixedOrder
from privrl.studies.live.live_plans import LivePlans
from privrl.studies.live.patience import Patience
from privrl.studies.open_ended import OpenEnded
from privrl.studies.results.result import Result
from privrl.studies.simulation.simulated_loop import SimulationKeys
from privrl.studies.study import Study, participation_of


class AbstractAgent(abc.ABC):
    """Learns from people as they come and go, and never overspends.

    Arguments:
        learner: an online learner that publishes sums of what people leave behind, such as `LSVIUCB`; or the name of a
            recipe, such as "dp-ucbvi", with `world` and a budget.
        privatizer: with a learner object: `Central(...)`. Read through the billboard lemma this is joint differential
            privacy.
        world: with the name of a recipe: the environment or its name, or a `privrl.recipes.Problem`.
        epsilon, delta, rho: with the name of a recipe: the budget.
        num_users: the public number of people K, fixed in advance: it sets the schedule and the noise. Further people
            are refused. `None` where nobody knows it, or an `OpenEnded`: then epochs follow each other (see there).
        store: where places, contributions and releases are kept.
        patience: for people who come and go: seconds (or a `timedelta`), the longest stay that is waited for. A block
            is released so long after its last person arrived, whoever has finished; later records count as empty.
        fixed_order: instead, and only where the sequence of people is fixed in advance (a simulation, a public list):
            a block is released as soon as all its people have ended, and nobody of the next one begins before.
        clock: seconds, for `patience`; by default the computer's.
        max_episodes_per_unit: how many episodes of one person count, where people come back; noise and certificate
            cover all of them. Further ones are served and not counted. `num_users` is then the number of people with
            `patience`, and the number of visits in the list in fixed order.
        min_block_distance: an episode counts only if it is at least so many blocks after the last one of the same
            person that does. Less noise is needed.
        key: seeded noise and actions for tests and simulations, the same as those of `run` for a seed of this key.
            Leave it out on real people.

    **Formal guarantee.** A person (an id) has one place and is counted at most once, whatever is sent again (at most
    `max_episodes_per_unit` times, at least `min_block_distance` blocks apart). Every release is drawn once and kept
    before it is used, of a block whose people and closing time do not depend on records, nor on who comes back. The
    sequence of all releases is (epsilon, delta)-differentially private; what other people are shown, and all that
    is published, depends on a person's record only through it, provided that arrivals do not depend on records (the
    certificate says it in full). A person's own actions are not covered. Proof: `docs/proofs/arrivals.md`.
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
    ) -> None:
        budget = BudgetArguments(epsilon, delta, rho)
        learner, privatizer = resolve_pair(learner, privatizer, world, budget, "online", "control")
        key = optional_key(key)
        self._store, self._key = store, key
        if not isinstance(privatizer, Central) or privatizer.budget is None:
            raise PairingError("`Agent` needs `Central(...)` with a finite budget: it works with real people.")
        often = participation_of(max_episodes_per_unit, min_block_distance)
        users = OpenEnded() if num_users is None else num_users
        self._study = Study.online(learner, privatizer, users, often, secret_returns=patience is not None)
        assert isinstance(self._study.learner, AbstractOnlineLearner)
        self._learner = self._study.learner
        if asked := self._study.asked():
            raise PairingError(
                f"`{self._study.name}` asks new questions about people who have left ({', '.join(asked)}), and `Agent` "
                "keeps sums only. Use a learner that publishes running sums, such as `LSVIUCB`."
            )
        ends = self._study.ends
        assert ends is not None
        self._arrivals: AbstractArrivals
        if patience is not None and not fixed_order:
            self._arrivals = Patience(store, ends, patience, clock, often)
        elif fixed_order and patience is None:
            self._arrivals = FixedOrder(store, ends, often)
        else:
            raise ValueError(
                "Say when a block of people may be released: `patience=...` (seconds, or a `timedelta`: the longest "
                "stay that is waited for) for people who come and go, or `fixed_order=True` where the sequence of "
                "people is fixed in advance (a simulation, a public list). One of the two, not both."
            )
        self._plans = LivePlans(self._learner, self._study, self._arrivals, store, self._blank, key)
        limits, arrivals = self._plans.limits(len(ends)), self._arrivals.settings
        self._study.open(store, "agent", limits, key=key, users=self._study.users, arrivals=arrivals)
        self._plans.check_lattices()
        self._plans.catch_up()

    @property
    def num_arrived(self) -> int:
        """How many tickets were handed out; public. How many people were counted is secret."""
        return self._arrivals.num_arrived

    @property
    def plans(self) -> LivePlans:
        """Every plan so far; the newest has the number `plans.closed`."""
        self._plans.catch_up()
        return self._plans

    @property
    def next_closing(self) -> float | None:
        """When the block that is open now closes, on the clock of `patience`; unknown before it is full. Public."""
        return self._arrivals.closing(self._plans.closed)

    def deadline(self, ticket: Ticket) -> float | None:
        """Until when a record is waited for, on the clock of `patience`; the record of a later one may be empty."""
        return self._arrivals.deadline(ticket)

    @property
    def policy(self) -> Any:
        """The policy that is out now, for whoever arrives next."""
        self._plans.catch_up()
        return self._plans[-1].policy

    @abc.abstractmethod
    def _blank(self, plan: Plan) -> Any:
        """What a record looks like."""

    def begin_episode(self, user: str | int, visit: str | int = "") -> Ticket:
        """A person arrives: their ticket, kept in the store before it is returned. The same id gets the same ticket.

        Arguments:
            user: the person's id; it is kept as a keyed digest. 12 and "12" are one id.
            visit: the name of this visit where people come back, such as a random session id (one that can be guessed
                tells whoever may begin episodes whether it was made): a new one is a new episode, and the same one gets
                the same ticket, however often it is sent. Without a name it is the first visit.
        """
        (ticket,) = self.begin_episodes([user], [visit])
        return ticket

    def begin_episodes(self, users: Iterable[str | int], visits: Iterable[str | int] | None = None) -> list[Ticket]:
        """Several people arrive, in this order: their tickets, kept in one commit; all of them, or none."""
        users = list(users)
        came = list(zip(users, [""] * len(users) if visits is None else visits, strict=True))
        while True:
            self._plans.catch_up()
            try:
                return self._arrivals.arrive_all(came, self._plans.closed)
            except BehindError:  # another block has closed in between
                self._arrivals.forget()
            except BaseException:
                self._arrivals.forget()
                raise

    def end_episode(self, ticket: Ticket, trajectory: Any) -> None:
        """A person's record, counted at most once; safe to call again after a crash.

        Nothing is returned: whether it was counted, had been before, or came too late, is secret.

        Arguments:
            ticket: what `begin_episode` gave them.
            trajectory: what happened, padded to the horizon.
        """
        self.end_episodes([(ticket, trajectory)])

    def end_episodes(self, ended: Iterable[tuple[Ticket, Any]]) -> None:
        """Several records at once, each on its own: what cannot be read is named in an error, and the others count."""
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

    def count_records(self, tickets: Sequence[Any], records: Any) -> list[bool]:
        """Counts the records of several people, given as one with a batch axis: which could be read, that is, came with
        a ticket of this study and give finite numbers. Whether one was counted, had been before, or came too late, is
        not said."""
        self._plans.catch_up()
        issued = self._arrivals.all_issued(tickets)
        by_plan: dict[int, list[int]] = {}
        for position, ticket in enumerate(tickets):
            if issued[position]:
                by_plan.setdefault(ticket.plan, []).append(position)
        read = [False] * len(tickets)
        rows: dict[tuple[int, int], dict[str, Int64[np.ndarray, " entries"]]] = {}
        for plan, positions in by_plan.items():
            some = records if len(positions) == len(tickets) else jax.tree.map(lambda x: x[positions], records)  # noqa: B023
            for position, units in zip(positions, self._units(some, len(positions), plan), strict=True):
                if units is not None:
                    ticket, read[position] = tickets[position], True
                    kept = units if self._arrivals.counts(ticket) else np.zeros_like(units)
                    rows.setdefault((self._arrivals.block(ticket), plan), {}).setdefault(ticket.key, kept)
        if len(rows) == 1:
            self._count(rows)
        elif rows:
            self._store.together(functools.partial(self._count, rows))
        self._plans.catch_up()
        return read

    def _count(self, rows: dict[tuple[int, int], dict[str, Int64[np.ndarray, " entries"]]]) -> None:
        """Adds everybody's terms to the sum of their block and plan."""
        for (block, plan), units_of in sorted(rows.items(), key=lambda row: self._arrivals.sum_name(*row[0])):
            closed = functools.partial(self._arrivals.closes, block)
            keys, units = list(units_of), np.array(list(units_of.values()))
            with contextlib.suppress(SumSealedError):  # too late: answered alike
                self._store.contribute(self._arrivals.sum_name(block, plan), keys, units, scope="people", closed=closed)

    def _units(self, records: Any, number: int, plan: int) -> list[Int64[np.ndarray, " entries"] | None]:
        """Everybody's terms in whole numbers; `None` where a record cannot be read, whatever is wrong with it.

        An error here must not reach anybody else's record, nor quote this one.
        """
        try:
            found, finite = self._plans.units(records, plan)
            return [units if fine else None for units, fine in zip(found, finite.tolist(), strict=True)]
        except Exception:
            if number == 1:
                return [None]
            alone = (jax.tree.map(lambda x: x[i : i + 1], records) for i in range(number))  # noqa: B023
            return [self._units(record, 1, plan)[0] for record in alone]

    @functools.cached_property
    def _form(self) -> RecordForm:
        """What a record looks like."""
        return RecordForm(self._blank(self._plans[0]))

    @property
    def certificate(self) -> Certificate:
        """What everything released so far, and until the end, can reveal."""
        self._plans.catch_up()
        made = {name: (self._plans.closed, channel.calibration) for name, channel in self._plans.channels.items()}
        source = System.description if self._key is None else Seeded.description
        notes = (self._arrivals.assumption, *self._store.notes())
        return self._study.certificate(source, self._study.counted, made=made, notes=notes)

    def result(self) -> Result:
        """The policy that is out now, the certificate, and how many tickets were handed out."""
        certificate = self.certificate  # catches up, so that the policy is the one of the releases it counts
        return Result(self._plans[-1].policy, certificate, {"tickets": self.num_arrived})

    def _plan_of(self, ticket: Ticket) -> Plan:
        """The plan that a person acts on."""
        self._arrivals.check(ticket)
        if ticket.plan > self._plans.closed:  # another process was further
            self._plans.catch_up()
        return self._plans[ticket.plan]

    def _person(self, ticket: Ticket) -> PRNGKeyArray | None:
        """The simulation's randomness for a person; none with real people."""
        if self._key is None:
            return None
        person = SimulationKeys.of(self._key).person(self._arrivals.block(ticket), ticket.number)
        return jax.random.fold_in(person, zlib.crc32(ticket.visit.encode())) if ticket.visit else person


class Agent(AbstractAgent):
    """A learner for finite worlds at work: `begin_episode` when a person arrives, `act` at every step, `end_episode`.

    Arguments and guarantee are those of `AbstractAgent`.
    """

    def act(self, ticket: Ticket, state: int, step: int) -> int:
        """An action for the person with this ticket, drawn from the policy that was out when they arrived."""
        plan = self._plan_of(ticket)
        table = self._tables.get(ticket.plan)
        if table is None:
            table = self._tables[ticket.plan] = cumulative_table(plan.policy)
        horizon, num_states, _ = table.shape
        if not (0 <= step < horizon and 0 <= state < num_states):
            raise ValueError(
                f"`step` must lie in [0, {horizon}) and `state` in [0, {num_states}); one of them does not."
            )
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
    """A learner of linear control at work: `act` gives the input and the exploration that is part of it.

    Keep both for the trajectory: what was explored is what the learner learns from. Arguments and guarantee are those
    of `AbstractAgent`.
    """

    def act(
        self, ticket: Ticket, state: Float[np.ndarray, " n"], step: int
    ) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
        """The input for the person with this ticket, and the random part of it."""
        policy = self._plan_of(ticket).policy
        gains, radius = np.asarray(policy.gains), float(policy.radius)
        horizon, d, n = gains.shape
        x = np.asarray(state, float)
        if not (0 <= step < horizon and x.shape == (n,) and np.isfinite(x).all()):
            raise ValueError(
                f"`step` must lie in [0, {horizon}) and `state` be {n} finite numbers; one of them is not."
            )
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
