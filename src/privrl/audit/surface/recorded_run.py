"""What an online learner really publishes and asks, written down over a few blocks: the surface that is attacked."""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from privrl.audit.surface.queries import Asked
from privrl.contracts.learner import AbstractOnlineLearner
from privrl.contracts.release import Release
from privrl.privacy.accounting.ledger import Ledger
from privrl.privacy.continual.participation import ONCE, Participation
from privrl.privacy.trust.channels import AbstractChannel, RoundsChannel
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.studies.loop import State
from privrl.studies.open_ended import OpenEnded
from privrl.studies.simulation.simulated_loop import Simulation, SimulationKeys
from privrl.studies.study import Study

_USERS = (3, 6, 12, 25, 50, 100, 200, 400, 1000, 2000, 4000, 8000, 16000)


@dataclass(frozen=True)
class RunTranscript:
    """The plans of one short run and every query that they asked; `ends` are the public ends of the blocks."""

    learner: AbstractOnlineLearner
    privatizer: AbstractPrivatizer
    ledger: Ledger
    channels: dict[str, AbstractChannel]
    ends: tuple[int, ...]
    plans: tuple[Any, ...] = field(repr=False)
    queries: tuple[tuple[str, int, int, Any], ...] = field(repr=False)

    def asked(self, block: int) -> tuple[Asked, ...]:
        """What is released about a person of this block: streamed statistics once, later queries one by one."""
        plan = self.plans[block]
        streamed = [
            Asked(name, channel.statistic, plan, block=block)
            for name, channel in self.channels.items()
            if not isinstance(channel, RoundsChannel)
        ]
        later = [
            Asked(name, self.channels[name].statistic, plan, query, t, index)
            for name, t, index, query in self.queries
            if t > block
        ]
        return (*streamed, *later)


def short_run(
    learner: AbstractOnlineLearner, privatizer: AbstractPrivatizer, participation: Participation = ONCE
) -> tuple[int, ...]:
    """The ends of the blocks of the shortest run with three blocks (or fewer, where no run has more) that is served,
    or with so many that a person can come as often as they may."""
    needed = max(3, 1 + (participation.times - 1) * participation.distance)
    refusal: ValueError | None = None
    best: tuple[int, ...] | None = None
    for users in _USERS:
        try:
            ends = Study.online(learner, privatizer, users, participation).ends
        except ValueError as error:  # too few people for its schedule, or for each other's protection
            refusal = error
            continue
        assert ends is not None
        if best is None or len(ends) > len(best):
            best = tuple(int(end) for end in ends)
        if len(best) >= needed:
            break
    if best is None:
        raise refusal or PairingError(f"`{type(learner).__name__}` has no short run to attack.")
    return best


def record_run(
    env: Any,
    learner: AbstractOnlineLearner,
    privatizer: AbstractPrivatizer,
    key: PRNGKeyArray,
    participation: Participation = ONCE,
    *,
    open_ended: bool = False,
) -> RunTranscript:
    """Listens to a few blocks of a simulation with two people each, and writes down plans and queries.

    Two stand for the whole block: to whoever knows everybody else's record, only the one attacked matters.

    Arguments:
        open_ended: of a study without a known end, whose first epoch has one release and whose second two, and so on:
            a person who comes back is in several of them.
    """
    ends = short_run(learner, privatizer, participation)
    places = OpenEnded(first=1, ceiling=ends[-1]) if open_ended else ends[-1]
    study = Study.online(learner, privatizer, places, participation, secret_returns=True)
    assert isinstance(study.learner, AbstractOnlineLearner)
    simulation = Simulation(env, study.learner, study.channels(), SimulationKeys.of(key))
    plans: list[Any] = []
    queries: list[tuple[str, int, int, Any]] = []
    state = simulation.first()
    for t in range(len(ends) + 1):
        seen = ends[t - 1] if t else 0
        state, plan, asked = _block(simulation, state, jnp.asarray(t), jnp.asarray(seen))
        plans.append(plan)
        queries.extend((name, t, index, query) for name, index, query in asked)
    channels = simulation.channels
    return RunTranscript(study.learner, privatizer, study.ledger, channels, ends, tuple(plans), tuple(queries))


@eqx.filter_jit
def _block(
    simulation: Simulation, state: State, t: Int[Array, ""], seen: Int[Array, ""]
) -> tuple[State, Any, list[tuple[str, int, Any]]]:
    """One plan, the queries it asked, and the releases about two people who acted on it."""
    queries: list[tuple[str, int, Any]] = []

    def listen(name: str, index: int, query: Any, release: Release) -> None:
        del release
        queries.append((name, index, query))

    state, plan, _ = simulation.plan(state, t, seen, listen)
    terms = jax.vmap(lambda i: simulation.person(plan, t, i)[1])(seen + jnp.arange(2))
    totals = jax.tree.map(lambda term: term.sum(axis=0), terms)
    return simulation.publish(state, totals, t), plan, queries
