"""Blocks and sequences that depend on people: on the order in which they end, on their number, on exact data."""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from privrl.audit.known_bad.case import DELTA, Audited, audit_by_counting, case
from privrl.audit.protocol.episode_ends import PATIENCE, attack_episode_ends
from privrl.audit.protocol.sequences import compare_sequences, record_sequence
from privrl.audit.worlds import tiny_world
from privrl.contracts.learner import AbstractOfflineLearner, AbstractOnlineLearner, Ask, Solution
from privrl.contracts.release import Declared
from privrl.data.episodes import Episodes
from privrl.mdp.types import TabularPolicy, Trajectory
from privrl.privacy.accounting.gdp import gdp_epsilon
from privrl.privacy.noise.arithmetic import Floating
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import Central, PairingError
from privrl.recipes.all_recipes import get
from privrl.statistics.counts import VisitCounts
from privrl.studies.live.agent import Agent
from privrl.studies.live.arrivals import Ticket
from privrl.studies.live.fixed_order import FixedOrder
from privrl.studies.live.live_plans import LivePlans
from privrl.studies.study import Study

_HALF = 0.5
_S, _A, _H = 3, 2, 3
VISITS = VisitCounts(_S, _A, _H)


class ThreeReleases(AbstractOfflineLearner):
    """A learner with three releases about all people, or two about halves of them (`groups`).

    It gives up the second release if no person visits the first state: according to the data if it `peeks`,
    otherwise according to the first release.
    """

    peeks: bool = eqx.field(static=True, default=False)
    groups: bool = eqx.field(static=True, default=False)
    horizon: int = eqx.field(static=True, default=_H)

    @property
    def space(self) -> tuple[int, int]:
        return _S, _A

    def bounds(self) -> dict[str, object]:
        return {}

    def declare(self) -> tuple[Declared, ...]:
        if self.groups:
            return tuple(Declared(name, VISITS, group=name) for name in ("first half", "second half"))
        return tuple(Declared(name, VISITS) for name in ("first", "second", "third"))

    def fit(self, ask: Ask) -> Solution:
        seen = ask("first").value
        if self.peeks:  # past the interface, which gives learners no access to people
            seen = ask._people.total(VISITS, None, Floating(1.0, np.inf))  # type: ignore[attr-defined]
        if float(jnp.sum(seen[:, 0])) > 0.5:
            ask("second")
        else:
            ask.skip("second", to=("third",))
        ask("third")
        return Solution(TabularPolicy(jnp.full((_H, _S, _A), 1 / _A)))


def _online() -> AbstractOnlineLearner:
    learner = get("dp-ucbvi").build(tiny_world(_H, _S, _A))
    assert isinstance(learner, AbstractOnlineLearner)
    return learner


class _ByEndings(FixedOrder):
    """Arrivals as in an earlier version: the next person to end joins the open block, which is released when it is
    full.
    """

    def block(self, ticket: Ticket) -> int:
        del ticket
        return next(b for b in range(len(self._ends)) if not self.closes(b))

    def sum_name(self, block: int, plan: int) -> str:
        del plan
        return f"block {block}"

    def plans(self, block: int) -> dict[int, int]:
        return {block: self.size(block)}

    def _content(self, number: int, closed: int, user: str, visit: str) -> dict[str, object]:
        return {}


class _AgentByEndings(Agent):
    """The shipped agent with these arrivals."""

    def __init__(
        self,
        learner: AbstractOnlineLearner,
        privatizer: Central,
        num_users: int,
        store: ReleaseStore,
        key: PRNGKeyArray,
    ) -> None:
        self._learner, self._store, self._key = learner, store, key
        self._study = Study.online(learner, privatizer, num_users)
        self._arrivals = _ByEndings(store, learner.blocks(num_users))
        self._plans = LivePlans(learner, self._study, self._arrivals, store, self._blank, key)
        limits = self._plans.limits(len(learner.blocks(num_users)))
        self._study.open(store, "agent", limits, key=key, users=num_users)
        self._plans.catch_up()


@case(
    paper="practice",
    trials=1,
    flaw="people enter blocks in the order in which they end, and when they end is part of their record",
    proof="a person who stays longer moves all people in between to another block: many terms change, not one",
)
def blocks_by_order_of_ending(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """People who take turns in two corners; the second person's episode ends at once, or last of all."""
    del trials
    learner = _online()
    private = Central(epsilon=_HALF, delta=DELTA)
    users = next(k for k in range(4, 200) if len(learner.blocks(k)) >= 3)
    ends = tuple(int(end) for end in learner.blocks(users))
    corner = np.repeat(np.arange(users)[:, None] % 2 * (_S - 1), _H, axis=1)
    action = np.repeat(np.arange(users)[:, None] % 2, _H, axis=1)
    records = Trajectory(corner, action, np.zeros((users, _H)), corner, np.full(users, _H))

    def make(store: ReleaseStore, clock: Callable[[], float]) -> Agent:
        if flawed:
            return _AgentByEndings(learner, private, users, store, key)
        return Agent(learner, private, num_users=users, store=store, patience=PATIENCE, clock=clock, key=key)

    finding, moved = attack_episode_ends(make, records, ends)
    with ReleaseStore.in_memory() as store:
        (channel,) = make(store, lambda: 0.0)._plans.channels.values()
    change = sum(float(((one - other).astype(float) ** 2).sum()) for one, other in moved.values())
    audited = gdp_epsilon(math.sqrt(change) / channel.lattice.noise, DELTA)
    detail = finding.found[0] if finding.found else "one person's own term moved"
    return Audited(_HALF, audited, "epsilon", finding.broken or audited > _HALF, detail)


@case(
    paper="practice",
    trials=4_000,
    flaw="blocks fill by head count, and the certificate speaks of removing a person",
    proof="without one person a block is not filled, and a release is missing: the worlds can be told apart",
)
def blocks_by_head_count(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """The number of releases that a run of K people makes, and one of K - 1, for `add-remove`."""
    del key
    learner = _online()
    users = next(k for k in range(4, 200) if len(learner.blocks(k)) > len(learner.blocks(k - 1)))
    removing = Central(epsilon=0.1, delta=DELTA, adjacency="add-remove")
    counts = []
    for people in (users, users - 1):
        try:
            if not flawed:
                Study.online(learner, removing, people)
            counts.append(len(learner.blocks(people)))
        except PairingError:  # the shipped study: nothing is released at all
            counts.append(0)
    scores = np.repeat(np.array(counts, float)[::-1, None], trials, axis=1)
    return audit_by_counting(scores, 0.1, f"{counts[0]} releases, and {counts[1]} without one person")


@case(
    paper="practice",
    trials=4_000,
    flaw="a program looks at the data themselves to decide whether a release is needed",
    proof="a missing release reveals exactly what the program looked at, without noise",
)
def releases_skipped_by_exact_data(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """The only person in the first state is there, or is elsewhere."""
    del key
    worlds = []
    for state in (0, 1):
        states = np.ones((20, _H), int)
        states[0] = state
        rows = Trajectory(states, np.zeros_like(states), np.zeros(states.shape), states, np.full(20, _H))
        worlds.append(Episodes.from_trajectories(rows, num_states=_S, num_actions=_A))
    learner, private = ThreeReleases(peeks=flawed), Central(epsilon=1.0, delta=DELTA)
    one = record_sequence(worlds[0], learner, private)
    found = compare_sequences(one, record_sequence(worlds[1], learner, private, one), "replaced")
    scores = np.repeat(np.array([[0.0], [float(bool(found))]]), trials, axis=1)
    return audit_by_counting(scores, 1.0, "".join(found) or "the same releases in the same order")


CASES = (blocks_by_order_of_ending, blocks_by_head_count, releases_skipped_by_exact_data)
