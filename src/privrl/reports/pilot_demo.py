"""The demo of pilots: a learnt policy is tried on simulated patients, where it helps and where it harms.

In the first world the record is complete. In the second, clinicians know how severe an illness is, and the record does
not: those who get more treatment die more often, so the learnt advice withholds it. A table cannot tell the two worlds
apart; the pilot does. Only the outcomes of patients come from the simulator; arms and noise come from the operating
system.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from privrl.envs.worlds_by_name import make
from privrl.learners.trials.protocol import Protocol
from privrl.mdp.types import TabularPolicy
from privrl.privacy.store.release_store import ReleaseStore
from privrl.recipes.all_recipes import get
from privrl.studies.live.live_pilot import Pilot, read_outcomes
from privrl.studies.offline.fitting import fit
from privrl.studies.results.arm_policies import read_arm_policies
from privrl.studies.results.pilot_record import PilotRecord
from privrl.studies.simulation.sampled_tables import sampled

WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "helps": ("endings-150x8", {}),
    "harms": ("hidden-severity", {"follows": 1.0}),
}
"""The worlds of the demo by the names of their folders: their names in privrl, and arguments."""
FILES = frozenset(WORLDS)
_RECIPE = "dp-tap"
_AT_ONCE = 50  # people who arrive between two looks at the clock


@dataclass(frozen=True)
class DemoPilot:
    """One world of the demo: the true gain of the advice, and what the pilot found."""

    world: str
    gain: float
    record: PilotRecord


class _Clock:
    """Moves when people arrive."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def learn_policy(folder: Path, name: str, stays: int, epsilon: float, *, seed: int) -> None:
    """Learn a policy from simulated stays, with noise from the operating system, and save it.

    Arguments:
        folder: where the policy is saved, as `policy`.
        name: one of `WORLDS`.
        stays: the number of stays in the table.
        epsilon: the budget of the policy; the pilot has its own.
        seed: of the stays.
    """
    world = _world(name)
    table = sampled(world, stays, jax.random.key(seed))
    result = fit(table, get(_RECIPE).build(world), get(_RECIPE).privatizer(epsilon=epsilon, delta=1e-6), unit="patient")
    result.save(folder / "policy")


def conduct_pilot(
    folder: Path, name: str, *, seed: int, advance: Callable[[str], object] = lambda done: None
) -> DemoPilot:
    """Take simulated patients through the pilot of `pilot.toml`, and save its record.

    Arguments:
        folder: where the protocol and its policy are.
        name: one of `WORLDS`.
        seed: of the patients.
        advance: called after every group of people.
    """
    world, protocol = _world(name), Protocol.read(folder / "pilot.toml")
    (advice,) = read_arm_policies(protocol, folder).values()
    arms: tuple[TabularPolicy, ...] = (world.behaviour_policy(), advice)
    keys = jax.random.split(jax.random.key(seed + 1), len(arms))
    outcomes = [_returns(world, policy, protocol.people, key) for policy, key in zip(arms, keys, strict=True)]
    values = [float(world.value(policy)) for policy in arms]
    clock = _Clock()
    with ReleaseStore(folder / "pilot.db") as store:
        pilot = Pilot(protocol, store=store, clock=clock, unit="patient")
        for first in range(0, protocol.people, _AT_ONCE):
            clock.time += protocol.patience  # so each group is complete before the next arrives
            numbers = range(first, min(first + _AT_ONCE, protocol.people))
            tickets = pilot.begin_episodes([f"patient {number}" for number in numbers])
            found = [(one, _outcome(protocol, outcomes, one.arm, one.number)) for one in tickets]
            pilot.end_episodes(found)
            advance(f"{pilot.num_arrived:,} people")
            if pilot.state.served is not None:
                break
        clock.time += protocol.patience
        record = pilot.to_record()
    record.save(folder / "pilot")
    return DemoPilot(name, values[1] - values[0], record)


def _world(name: str) -> Any:
    known, arguments = WORLDS[name]
    return make(known, **arguments)


def _returns(world: Any, policy: TabularPolicy, people: int, key: jax.Array) -> Float[np.ndarray, " n"]:
    episodes = world.sample(policy, people, key)
    return np.asarray((np.asarray(episodes.rewards) * np.asarray(episodes.valid)).sum(axis=-1))


def _outcome(protocol: Protocol, outcomes: list[Float[np.ndarray, " n"]], arm: int | None, number: int) -> Any:
    assert arm is not None
    return read_outcomes(protocol, {protocol.outcome.name: float(outcomes[arm][number])})
