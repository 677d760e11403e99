"""Blocks and sequences that depend on people: in which order they end, how many there are, what a learner peeks at."""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from privrl.audit.known_bad.case import Audited, Case
from privrl.audit.known_bad.two_worlds import DELTA, by_counting
from privrl.audit.sequences import compared, sequence
from privrl.audit.stays import PATIENCE, length_of_stay
from privrl.audit.worlds import tiny_world
from privrl.contracts.learner import AbstractOfflineLearner, AbstractOnlineLearner, Ask
from privrl.contracts.release import Declared
from privrl.data.episodes import Episodes
from privrl.mdp.types import TabularPolicy, Trajectory
from privrl.privacy.accounting.gdp import gdp_epsilon
from privrl.privacy.store.store import ReleaseStore
from privrl.privacy.trust.privatizers import Central, PairingError
from privrl.recipes.registry import get
from privrl.statistics.counts import VisitCounts
from privrl.studies.agent import Agent
from privrl.studies.arrivals import FixedOrder, Ticket
from privrl.studies.live_plans import LivePlans
from privrl.studies.study import Study

_HALF = 0.5
_S, _A, _H = 3, 2, 3


class _ByEndings(FixedOrder):
    """As it was: whoever ends next is the next of the block that is open, and a block is released when it is full."""

    def block(self, ticket: Ticket) -> int:
        del ticket
        return next(b for b in range(len(self._ends)) if not self.closes(b))

    def sum_name(self, block: int, plan: int) -> str:
        del plan
        return f"block {block}"

    def plans(self, block: int) -> dict[int, int]:
        return {block: self.size(block)}

    def _content(self, number: int, closed: int) -> dict[str, Any]:
        return {}


class _AgentByEndings(Agent):
    """The shipped agent but for that."""

    def __init__(
        self, learner: AbstractOnlineLearner, privatizer: Central, num_users: int, store: ReleaseStore, key: Any
    ) -> None:
        self._learner, self._store, self._key = learner, store, key
        self._study = Study.online(learner, privatizer, num_users)
        self._arrivals = _ByEndings(store, learner.blocks(num_users))
        self._plans = LivePlans(learner, self._study, self._arrivals, store, self._blank, key)
        limits = self._plans.limits(len(learner.blocks(num_users)))
        self._study.open(store, "agent", limits, key=key, users=num_users)
        self._plans.catch_up()


def _stays_longer(key: PRNGKeyArray, trials: int, *, by_endings: bool) -> Audited:
    """People who take turns in two corners; the second of them ends at once, or last of all."""
    del trials
    learner = get("dp-ucbvi").build(tiny_world(_H, _S, _A))
    assert isinstance(learner, AbstractOnlineLearner)
    private = Central(epsilon=_HALF, delta=DELTA)
    users = next(k for k in range(4, 200) if len(learner.blocks(k)) >= 3)
    ends = tuple(int(end) for end in learner.blocks(users))
    corner = np.repeat(np.arange(users)[:, None] % 2 * (_S - 1), _H, axis=1)
    action = np.repeat(np.arange(users)[:, None] % 2, _H, axis=1)
    records = Trajectory(corner, action, np.zeros((users, _H)), corner, np.full(users, _H))

    def make(store: ReleaseStore, clock: Callable[[], float]) -> Agent:
        if by_endings:
            return _AgentByEndings(learner, private, users, store, key)
        return Agent(learner, private, num_users=users, store=store, patience=PATIENCE, clock=clock, key=key)

    finding, moved = length_of_stay(make, records, ends)
    (stream,) = _streams_of(make)
    noise = stream.lattice.noise
    change = sum(float(((one - other).astype(float) ** 2).sum()) for one, other in moved.values())
    audited = gdp_epsilon(math.sqrt(change) / noise, DELTA)
    detail = finding.found[0] if finding.found else "one person's own term moved"
    return Audited(_HALF, audited, "epsilon", finding.broken or audited > _HALF, detail)


def _streams_of(make: Callable[[ReleaseStore, Callable[[], float]], Agent]) -> Any:
    """The exact streams of an agent."""
    with ReleaseStore.in_memory() as store:
        return tuple(make(store, lambda: 0.0)._plans.streams.values())


def _one_person_less(key: PRNGKeyArray, trials: int, *, refused: bool) -> Audited:
    """The number of releases that a run of K people makes, and one of K - 1, for `add-remove`."""
    del key
    learner = get("dp-ucbvi").build(tiny_world(_H, _S, _A))
    assert isinstance(learner, AbstractOnlineLearner)
    users = next(k for k in range(4, 200) if len(learner.blocks(k)) > len(learner.blocks(k - 1)))
    removing = Central(epsilon=0.1, delta=DELTA, adjacency="add-remove")
    counts = []
    for people in (users, users - 1):
        if refused:  # the shipped study: nothing is released at all
            try:
                Study.online(learner, removing, people)
                counts.append(len(learner.blocks(people)))
            except PairingError:
                counts.append(0)
        else:
            counts.append(len(learner.blocks(people)))
    scores = np.repeat(np.array(counts, float)[::-1, None], trials, axis=1)
    return by_counting(scores, 0.1, f"{counts[0]} releases, and {counts[1]} with one person less")


class _Peeks(AbstractOfflineLearner):
    """Gives up its second release where there is nobody in the first state: of the people, or of what was released."""

    peeks: bool = eqx.field(static=True)
    horizon: int = eqx.field(static=True, default=_H)

    @property
    def space(self) -> tuple[int, int]:
        return _S, _A

    def bounds(self) -> dict[str, Any]:
        return {}

    def declare(self) -> tuple[Declared, ...]:
        visits = VisitCounts(_S, _A, _H)
        return tuple(Declared(name, visits) for name in ("first", "second", "third"))

    def fit(self, ask: Ask) -> TabularPolicy:
        seen = ask("first").value
        if self.peeks:  # past the interface: nothing that is passed to a learner has people in it
            seen = ask._people.total(VisitCounts(_S, _A, _H), None)  # type: ignore[attr-defined]
        if float(jnp.sum(seen[:, 0])) > 0.5:
            ask("second")
        else:
            ask.skip("second", to=("third",))
        ask("third")
        return TabularPolicy(jnp.full((_H, _S, _A), 1 / _A))


def _peek(key: PRNGKeyArray, trials: int, *, peeks: bool) -> Audited:
    """The one person in the first state is there, or is somewhere else."""
    del key
    worlds = []
    for state in (0, 1):
        states = np.ones((20, _H), int)
        states[0] = state
        rows = Trajectory(states, np.zeros_like(states), np.zeros(states.shape), states, np.full(20, _H))
        worlds.append(Episodes.of(rows, num_states=_S, num_actions=_A))
    learner, private = _Peeks(peeks=peeks), Central(epsilon=1.0, delta=DELTA)
    one = sequence(worlds[0], learner, private)
    other = sequence(worlds[1], learner, private, one.answers)
    found = compared(one.log, other.log, "replaced")
    scores = np.repeat(np.array([[0.0], [float(bool(found))]]), trials, axis=1)
    return by_counting(scores, 1.0, "".join(found) or "the same releases in the same order")


CASES = (
    Case(
        name="blocks-by-order-of-ending",
        paper="practice",
        flaw="people enter blocks in the order in which they end, and when they end is part of their record",
        proof="one who stays longer moves everybody in between to another block: many terms change, not one",
        attack=functools.partial(_stays_longer, by_endings=True),
        trials=1,
        corrected=functools.partial(_stays_longer, by_endings=False),
    ),
    Case(
        name="blocks-by-head-count",
        paper="practice",
        flaw="blocks fill by head count, and the certificate speaks of removing a person",
        proof="without one person a block is not filled, and a release is not made: the worlds are told apart",
        attack=functools.partial(_one_person_less, refused=False),
        trials=4_000,
        corrected=functools.partial(_one_person_less, refused=True),
    ),
    Case(
        name="releases-skipped-by-exact-data",
        paper="practice",
        flaw="a program looks at the data themselves to decide whether a release is needed",
        proof="that a release is missing says exactly what was looked at; no noise is in it",
        attack=functools.partial(_peek, peeks=True),
        trials=4_000,
        corrected=functools.partial(_peek, peeks=False),
    ),
)
