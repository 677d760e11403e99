"""`Agent` and `Controller`: online learners at work with real people, safe across crashes.

A person arrives and gets a ticket (`_arrivals.py`), acts on the plan that was out then, and leaves a record behind. What
it says is added, exactly, to the sums of their block in a `ReleaseStore`; when a block closes the noisy sums are
released, once, and the agent plans again. Everything the agent knows is in the store: any number of processes may work
on it, and each catches up with the others before it answers.
"""

import abc
import contextlib
import secrets
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl._arrivals import BehindError, FixedOrder, Patience, Ticket
from privrl._result import Result
from privrl._run import SimulationKeys
from privrl._study import Study
from privrl.learners import AbstractOnlineLearner, Plan
from privrl.mdp import LQTrajectory, Trajectory, action_coin, draw_action, explorations
from privrl.privacy import (
    AbstractPrivatizer,
    BurntError,
    Central,
    Certificate,
    ExactStream,
    PairingError,
    Release,
    ReleaseStore,
    Seeded,
    Stream,
    StreamSealedError,
    System,
)


class AbstractAgent(abc.ABC):
    """Learns from people as they come and go, and never overspends.

    Arguments:
        learner: an online learner that publishes sums of what people leave behind, such as `LSVIUCB`.
        privatizer: `Central(...)`; read through the billboard lemma this is joint differential privacy.
        num_users: the public number of people K, fixed in advance: it sets the schedule and the noise. Further people
            are refused.
        store: where places, contributions and releases are kept.
        patience: for people who come and go: seconds (or a `timedelta`), the longest stay that is waited for. A block
            is released so long after its last person arrived, whoever has finished; later records count as empty.
        fixed_order: instead, and only where the sequence of people is fixed in advance (a simulation, a public list):
            a block is released as soon as all its people have ended, and nobody of the next one begins before.
        clock: seconds, for `patience`; by default the computer's.
        key: seeded noise and actions for tests and simulations, the same as those of `run` for a seed of this key.
            Leave it out on real people.

    **Formal guarantee.** A person (an id) has one place and is counted at most once, whatever is sent again. Every
    release is drawn once and kept before it is used, of a block whose people and closing time do not depend on records.
    The sequence of all releases is (epsilon, delta)-differentially private; what other people are shown, and all that is
    published, depends on a person's record only through it, provided that arrivals do not depend on records (the
    certificate says it in full). A person's own actions are not covered. Proof: `docs/design.md`.
    """

    def __init__(
        self,
        learner: AbstractOnlineLearner,
        privatizer: AbstractPrivatizer,
        *,
        num_users: int,
        store: ReleaseStore,
        patience: float | timedelta | None = None,
        fixed_order: bool = False,
        clock: Callable[[], float] = time.time,
        key: PRNGKeyArray | None = None,
    ) -> None:
        self._learner, self._store, self._key = learner, store, key
        if not isinstance(privatizer, Central) or privatizer.budget is None:
            raise PairingError("`Agent` needs `Central(...)` with a finite budget: it works with real people.")
        self._study = Study.online(learner, privatizer, num_users)
        if asked := self._study.asked():
            raise PairingError(
                f"`{self._study.name}` asks new questions about people who have left ({', '.join(asked)}), and `Agent` "
                "keeps sums only. Use a learner that publishes running sums, such as `LSVIUCB`."
            )
        self._ends = learner.blocks(num_users)
        if (patience is None) != fixed_order:
            raise ValueError(
                "Say when a block of people may be released: `patience=...` (seconds, or a `timedelta`: the longest "
                "stay that is waited for) for people who come and go, or `fixed_order=True` where the sequence of "
                "people is fixed in advance (a simulation, a public list). One of the two, not both."
            )
        self._arrivals = (
            FixedOrder(store, self._ends) if patience is None else Patience(store, self._ends, patience, clock)
        )
        channels = self._study.channels()
        self._released = {n: release for n, channel in channels.items() if (release := channel.empty()) is not None}
        start, nobody = learner.init(), jnp.zeros((), int)
        self._made = [_next_plan(learner, start, start, nobody, dict(self._released), nobody)]  # (memory, plan) so far
        parameter, blocks = self._study.ledger.parameter, len(self._ends)
        self._streams = {
            n: ExactStream(channel, blocks, parameter(n), privatizer.adjacency, self._blank(), self._made[0][1])
            for n, channel in channels.items()
        }
        _check_absence(self._streams)
        limits = {f"releases of {n}": float(blocks) for n in self._streams}
        self._study.open(store, "agent", limits, key=key, users=num_users, arrivals=self._arrivals.settings)
        for n, stream in self._streams.items():
            if store.fact(f"lattice of {n}", stream.fingerprint) != stream.fingerprint():
                raise ValueError(
                    f"This computer rounds the public numbers of `{n}` otherwise than the one that began this store, "
                    "so sums cannot be continued here. Nothing was counted. Go on where the study began."
                )
        self._sums: list[np.ndarray] = []  # of closed blocks, exact: never leaves this object
        self._noisy: dict[str, list[np.ndarray]] = {n: [] for n in self._streams}
        self._catch_up()

    @property
    def num_arrived(self) -> int:
        """How many tickets were handed out; public. How many people were counted is secret."""
        return self._arrivals.num_arrived

    @property
    def policy(self) -> Any:
        """The policy that is out now, for whoever arrives next."""
        self._catch_up()
        return self._made[-1][1].policy

    @abc.abstractmethod
    def _blank(self) -> Any:
        """What a record looks like."""

    def begin_episode(self, user: str | int) -> Ticket:
        """A person arrives: their ticket, kept in the store before it is returned. The same id gets the same ticket.

        Arguments:
            user: the person's id; it is kept as a keyed digest. 12 and "12" are one id.
        """
        while True:
            self._catch_up()
            with contextlib.suppress(BehindError):  # another block has closed in between
                return self._arrivals.arrive(user, len(self._sums))

    def end_episode(self, ticket: Ticket, trajectory: Any) -> None:
        """A person's record, counted at most once; safe to call again after a crash.

        Nothing is returned: whether it was counted, had been before, or came too late, is secret.

        Arguments:
            ticket: what `begin_episode` gave them.
            trajectory: what happened, padded to the horizon.
        """
        self.end_episodes([(ticket, trajectory)])

    def end_episodes(self, ended: Iterable[tuple[Ticket, Any]]) -> None:
        """Several records at once. A record that cannot be read is named in an error, after the others were counted."""
        ended = list(ended)
        self._catch_up()
        for ticket, _ in ended:
            self._arrivals.check(ticket)
        rows: dict[tuple[int, int], dict[str, np.ndarray]] = {}
        unreadable: dict[int, Exception] = {}
        for position, (ticket, trajectory) in enumerate(ended):
            try:
                units = self._units(trajectory, self._made[ticket.plan][1])
            except (TypeError, ValueError) as error:
                unreadable[position] = error
            else:
                rows.setdefault((self._arrivals.block(ticket), ticket.plan), {}).setdefault(str(ticket.number), units)
        for (block, plan), units_of in rows.items():
            stream, units = self._arrivals.stream(block, plan), np.stack(list(units_of.values()))
            with contextlib.suppress(StreamSealedError):  # too late: answered alike
                self._store.contribute(
                    stream, list(units_of), units, scope="people", closed=lambda b=block: self._arrivals.closes(b)
                )
        self._catch_up()
        if unreadable:
            position, error = min(unreadable.items())
            raise ValueError(
                f"{len(unreadable)} of {len(ended)} records cannot be read and were not counted; the first is at "
                f"position {position}: {error}"
            ) from error

    @property
    def certificate(self) -> Certificate:
        """What everything released so far, and until the end, can reveal."""
        self._catch_up()
        for name, stream in self._streams.items():
            self._study.ledger.reconcile(name, len(self._sums), stream.law)
        source = System.description if self._key is None else Seeded.description
        notes = (self._arrivals.assumption, *self._store.notes())
        return self._study.certificate(source, {"episodes per unit": 1}, notes=notes)

    def result(self) -> Result:
        """The policy that is out now, the certificate, and how many tickets were handed out."""
        return Result(self.policy, self.certificate, {"tickets": self.num_arrived})

    def _plan_of(self, ticket: Ticket) -> Plan:
        """The plan that a person acts on."""
        self._catch_up()
        self._arrivals.check(ticket)
        return self._made[ticket.plan][1]

    def _units(self, trajectory: Any, plan: Plan) -> np.ndarray:
        """One person's terms of all statistics, end to end; what the plan asked decides what they are."""
        return np.concatenate([stream.units(trajectory, plan).ravel() for stream in self._streams.values()])

    def _catch_up(self) -> None:
        """Closes every block whose time has come, makes or reads its releases, and plans."""
        while self._arrivals.closes(len(self._sums)):
            block = len(self._sums)
            plans = self._arrivals.plans(block)
            for plan in plans:
                self._store.seal(self._arrivals.stream(block, plan))
            acted = max(plans, key=lambda plan: (plans[plan], plan))  # a public choice: the plan that most acted on
            chosen = [acted] if self._learner.one_plan_per_block else list(plans)
            self._sums.append(self._total(block, chosen))
            for number, (name, stream) in enumerate(self._streams.items()):
                self._noisy[name].append(self._release(number, name, stream))
                self._released[name] = stream.release(self._noisy[name])
            memory, published = self._made[-1][0], self._made[acted][0]
            others = jnp.asarray(self._arrivals.size(block) - plans[acted])
            seen = jnp.asarray(int(self._ends[block]))
            self._made.append(_next_plan(self._learner, memory, published, others, dict(self._released), seen))

    def _total(self, block: int, plans: list[int]) -> np.ndarray:
        """The exact sum of a closed block, over those who acted on these plans; whoever is missing adds nothing."""
        totals = (self._store.total(self._arrivals.stream(block, plan)) for plan in plans)
        entries = sum(int(np.prod(stream.shape, dtype=int)) for stream in self._streams.values())
        return sum((total for total in totals if total is not None), np.zeros(entries, np.int64))

    def _release(self, number: int, name: str, stream: ExactStream) -> np.ndarray:
        t = len(self._sums) - 1

        def draw() -> np.ndarray:
            sizes = [int(np.prod(stream.shape, dtype=int)) for stream in self._streams.values()]
            begin = sum(sizes[:number])
            blocks = np.stack([total[begin : begin + sizes[number]].reshape(stream.shape) for total in self._sums])
            encoded = stream.encoded(blocks)
            if self._key is None:
                return stream.noisy(encoded, Stream())
            return stream.noisy_in_simulation(encoded, SimulationKeys.of(self._key).white(number, t, 0))

        try:
            return self._store.release(f"{name}/{t}", f"releases of {name}", 1.0, draw, law=stream.lattice.to_bytes())
        except BurntError as error:
            raise BurntError(
                f"Release {t} of `{name}` was burnt by a crash, and later ones build on it. Open the store with "
                "`after_crash='redraw'`: nobody has seen the first draw, so drawing again is safe."
            ) from error

    def _person(self, ticket: Ticket) -> PRNGKeyArray | None:
        """The simulation's randomness for a person; none with real people."""
        if self._key is None:
            return None
        return SimulationKeys.of(self._key).person(self._arrivals.block(ticket), ticket.number)


class Agent(AbstractAgent):
    """A learner for finite worlds at work: `begin_episode` when a person arrives, `act` at every step, `end_episode`.

    Arguments and guarantee are those of `AbstractAgent`.
    """

    def act(self, ticket: Ticket, state: int, step: int) -> int:
        """An action for the person with this ticket, drawn from the policy that was out when they arrived."""
        policy = self._plan_of(ticket).policy
        horizon, num_states, _ = policy.probabilities.shape
        if not (0 <= step < horizon and 0 <= state < num_states):
            raise ValueError(
                f"`step` must lie in [0, {horizon}) and `state` in [0, {num_states}); one of them does not."
            )
        person = self._person(ticket)
        coin = secrets.randbits(53) * 2.0**-53 if person is None else action_coin(person, horizon, step)
        return int(draw_action(policy, state, step, coin))

    def _blank(self) -> Trajectory:
        zeros = jnp.zeros(self._learner.horizon, int)
        return Trajectory(zeros, zeros, jnp.zeros(self._learner.horizon), zeros, jnp.zeros((), int))


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

    def _blank(self) -> LQTrajectory:
        horizon, d, n = self._made[0][1].policy.gains.shape
        return LQTrajectory(
            jnp.zeros((horizon + 1, n)), jnp.zeros((horizon, d)), jnp.zeros((horizon, d)), jnp.zeros((), int)
        )


def _check_absence(streams: dict[str, ExactStream]) -> None:
    """A missing record adds nothing, and that must be as close to any record as another one is."""
    for name, stream in streams.items():
        bound = stream.statistic.l1 if stream.lattice.kind == "l1" else stream.statistic.l2
        if bound("add-remove") > bound("replace-one"):
            raise PairingError(
                f"One person's term of `{name}` can be larger than the distance of two, so a record that is missing "
                "would show. Centre the statistic, so that its own norm is at most its replace-one sensitivity."
            )


@eqx.filter_jit
def _next_plan(
    learner: AbstractOnlineLearner,
    memory: Any,
    published: Any,
    others: Int[Array, ""],
    released: dict[str, Release],
    seen: Int[Array, ""],
) -> tuple[Any, Plan]:
    """The plan after a block whose people acted on the plan that came with `published`, but for `others` of them."""
    return learner.next_plan(learner.acted_on(memory, published, others), released, _no_question, seen)


def _no_question(name: str, index: int, question: Any) -> Any:
    raise PairingError(f"`{name}` cannot be asked for: `Agent` keeps sums only.")
