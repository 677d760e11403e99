"""Record what an online learner publishes and asks over a few blocks, for attacks."""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from privrl.audit.surface.queries import Query
from privrl.contracts.learner import AbstractOnlineLearner
from privrl.contracts.release import Release
from privrl.envs.base import Env
from privrl.envs.lq_worlds import LQEnv
from privrl.envs.patients.patient_world import AbstractPatients
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
    """The plans of one short run and all of their queries; `ends` are the public ends of the blocks."""

    learner: AbstractOnlineLearner
    privatizer: AbstractPrivatizer
    ledger: Ledger
    channels: dict[str, AbstractChannel]
    ends: tuple[int, ...]
    plans: tuple[Any, ...] = field(repr=False)
    queries: tuple[tuple[str, int, int, object], ...] = field(repr=False)

    def queries_about(self, block: int) -> tuple[Query, ...]:
        """Return the releases about a person of this block: streamed statistics once, later queries one by one."""
        plan = self.plans[block]
        streamed = [
            Query(name, channel.statistic, plan, block=block)
            for name, channel in self.channels.items()
            if not isinstance(channel, RoundsChannel)
        ]
        later = [
            Query(name, self.channels[name].statistic, plan, query, t, index)
            for name, t, index, query in self.queries
            if t > block
        ]
        return (*streamed, *later)


def short_run(
    learner: AbstractOnlineLearner, privatizer: AbstractPrivatizer, participation: Participation = ONCE
) -> tuple[int, ...]:
    """Return the ends of the blocks of the shortest run with three blocks that the study accepts.

    If people may return, the run has as many blocks as a person needs for all of their episodes. If no run has
    enough blocks, return the run with the most.
    """
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
    env: Env | LQEnv | AbstractPatients,
    learner: AbstractOnlineLearner,
    privatizer: AbstractPrivatizer,
    key: PRNGKeyArray,
    participation: Participation = ONCE,
    *,
    open_ended: bool = False,
) -> RunTranscript:
    """Simulate a few blocks with two people each, and record plans and queries.

    Two people stand for the whole block, because the attacker knows the records of all others.

    Arguments:
        env: the world.
        learner, privatizer: as for `run`.
        key: the randomness of the simulation.
        participation: how often a person may take part.
        open_ended: whether to record a study without a known end, whose first epoch has one release, whose second
            has two, and so on. A person who returns is in several of them.
    """
    ends = short_run(learner, privatizer, participation)
    places = OpenEnded(first=1, ceiling=ends[-1]) if open_ended else ends[-1]
    study = Study.online(learner, privatizer, places, participation, secret_returns=True)
    assert isinstance(study.learner, AbstractOnlineLearner)
    simulation = Simulation(env, study.learner, study.channels(), SimulationKeys.of(key))
    plans: list[object] = []
    queries: list[tuple[str, int, int, object]] = []
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
) -> tuple[State, object, list[tuple[str, int, object]]]:
    """Return one plan, its queries, and the releases about two people who acted on it."""
    queries: list[tuple[str, int, object]] = []

    def listen(name: str, index: int, query: object, release: Release) -> None:
        del release
        queries.append((name, index, query))

    state, plan, _ = simulation.plan(state, t, seen, listen)
    terms = jax.vmap(lambda i: simulation.person(plan, t, i)[1])(seen + jnp.arange(2))
    totals = jax.tree.map(lambda term: term.sum(axis=0), terms)
    return simulation.publish(state, totals, t), plan, queries
