"""A real-valued world on a public grid, as a hospital would discretise its data for a tabular method.

Each column is cut at public edges, a missing value is replaced by a typical one, and the recorded state is the cell.
Two further states, death and survival, are the ends of episodes; people alive at the horizon are recorded as survivors.
Cells hide differences inside them, and practice sees the measurements themselves.
"""

import functools
import math
from collections.abc import Hashable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from privrl.envs.patients.actors import Actor, AssistedActor
from privrl.envs.patients.glucose_day import GlucoseDay
from privrl.envs.patients.patient_world import AbstractPatients, KnownValue, key_chunks
from privrl.envs.patients.vitals import Vitals
from privrl.envs.recorded_world import AbstractRecorded
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.measurements import Feature
from privrl.mdp.multinomial import AnyKey
from privrl.mdp.types import TabularPolicy, Trajectory

_COUNTED = 40_000  # simulated people from whose decisions the frequencies of practice are computed


class Grid(eqx.Module):
    """Public edges of each column (empty: the column is not used), and the typical value that replaces a missing
    one."""

    edges: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    typical: tuple[float, ...] = eqx.field(static=True)

    @property
    def cells(self) -> int:
        return math.prod(len(e) + 1 for e in self.edges)

    def cell(self, observation: Float[Array, " D"]) -> Int[Array, ""]:
        """The number of the cell, the last column counting fastest."""
        number = jnp.zeros((), int)
        for value, edges, typical in zip(observation, self.edges, self.typical, strict=True):
            if edges:
                known = jnp.where(jnp.isnan(value), typical, value)
                number = number * (len(edges) + 1) + jnp.sum(known >= jnp.array(edges))
        return number


class _OnCells(eqx.Module):
    """A policy on cells as an `Actor`."""

    grid: Grid
    policy: TabularPolicy

    def __call__(
        self, step: Int[Array, ""], state: object, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        likely = jnp.cumsum(self.policy.probabilities[step, self.grid.cell(observation)])
        return jnp.searchsorted(likely[:-1], uniforms[0], side="right")


class GridTable(AbstractRecorded):
    """The table of a real-valued world on a grid. Values are simulated, on the same people for every policy.

    Arguments:
        patients: the world.
        grid: its public grid.
        name, arguments, seed: the arguments with which `make` builds this table again.
    """

    patients: AbstractPatients
    grid: Grid
    name: str = eqx.field(static=True)
    arguments: tuple[tuple[str, Hashable], ...] = eqx.field(static=True, default=())
    seed: int = eqx.field(static=True, default=0)

    @property
    def horizon(self) -> int:
        return self.patients.horizon

    @property
    def num_actions(self) -> int:
        return self.patients.num_actions

    @property
    def num_states(self) -> int:
        return self.grid.cells + len(self.terminal)

    @property
    def terminal(self) -> tuple[int, ...]:
        """Death and survival, if episodes can end."""
        return (self.grid.cells, self.grid.cells + 1) if self.patients.survival else ()

    @property
    def arrival(self) -> Float[Array, " S"] | None:
        if not self.terminal:
            return None
        return jnp.zeros(self.num_states).at[self.terminal[1]].set(self.patients.survival)

    @property
    def behaviour(self) -> Float[Array, "S A"]:
        """Frequencies among 40,000 people; equal probabilities in cells that none of them visited."""
        return jnp.asarray(_frequencies(self))

    def behaviour_policy(self) -> Actor:
        return self.patients.behaviour_policy()

    def _actor(self, policy: TabularPolicy | Actor) -> Actor:
        return _OnCells(self.grid, policy) if isinstance(policy, TabularPolicy) else policy

    @property
    def optimal_value(self) -> Float[Array, ""]:
        """The value of a rule on the measurements themselves whose constants were tuned in the simulator."""
        return self.patients.value(self.patients.tuned)

    def value(self, policy: TabularPolicy | Actor) -> Float[Array, ""]:
        """The mean return over simulated people; `estimate` has its standard error."""
        return self.patients.value(self._actor(policy))

    def estimate(self, policy: TabularPolicy | Actor) -> KnownValue:
        """A policy's value and its standard error."""
        return self.patients.estimate(self._actor(policy))

    def gain(self, policy: AssistedPolicy) -> KnownValue:
        """The gain of an assisted policy on cells over practice, on the same people."""
        return self.patients.gain(AssistedActor(policy, self.behaviour_policy(), self.grid.cell))

    @eqx.filter_jit
    def _chunk(
        self, actor: Actor, keys: Key[Array, " people"]
    ) -> tuple[Int[Array, "people rows"], Array, Array, Array]:
        def one(key: AnyKey) -> tuple[Array, Array, Array, Array]:
            draws = self.patients.draws(key)
            walk = self.patients.walk(actor, draws)
            length, died, paid = self.patients.ends(walk, draws)
            cells = jax.vmap(self.grid.cell)(walk.observations)
            if self.terminal:
                death, survival = self.terminal
                cells = jnp.where(jnp.arange(len(cells)) < length, cells, jnp.where(died, death, survival))
            return cells.astype(jnp.int32), walk.actions.astype(jnp.int32), paid, length

        return jax.vmap(one)(keys)

    def sample(self, policy: TabularPolicy | Actor, episodes: int, key: AnyKey) -> Trajectory:
        """Recorded episodes of `episodes` people."""
        actor = self._actor(policy)
        parts = [jax.tree.map(np.asarray, self._chunk(actor, keys)) for keys in key_chunks(key, episodes)]
        cells, actions, rewards, length = (np.concatenate([p[i] for p in parts])[:episodes] for i in range(4))
        return Trajectory(cells[:, :-1], actions, rewards, cells[:, 1:], length)


@functools.cache
def _frequencies(table: GridTable) -> Float[np.ndarray, "S A"]:
    drawn = table.sample(table.behaviour_policy(), _COUNTED, jr.key(table.seed))
    taken = np.arange(table.horizon) < drawn.length[:, None]
    count = np.zeros((table.num_states, table.num_actions))
    np.add.at(count, (drawn.states[taken], drawn.actions[taken]), 1.0)
    seen = count.sum(axis=1, keepdims=True)
    return np.where(seen > 0, count / np.maximum(seen, 1.0), 1 / table.num_actions)


Cut = Literal["expert", "equal"]


def _grid(
    patients: AbstractPatients, cut: Cut, expert: dict[str, tuple[float, ...]], typical: dict[str, float]
) -> Grid:
    if cut not in ("expert", "equal"):
        raise ValueError(f"`cut` is {cut!r}; it must be 'expert' or 'equal'.")
    measured = (c for c in patients.columns if isinstance(c, Feature))
    equal = {c.name: tuple(c.low + (c.high - c.low) * i / 3 for i in (1, 2)) for c in measured}
    edges = expert if cut == "expert" else equal
    return Grid(
        tuple(edges.get(c.name, ()) for c in patients.columns),
        tuple(typical.get(c.name, 0.0) for c in patients.columns),
    )


def VitalsTable(cut: Cut = "expert", horizon: int = 20, evaluated: int = 140_000, seed: int = 0) -> GridTable:
    """`vitals` on a grid: death or survival at the end.

    Arguments:
        cut: "expert" (blood pressure in 5, lactate and fluid in 3 bins: 45 cells) or "equal" (each of the six columns
            in 3 bins of equal width: 729 cells).
        horizon: decisions per episode.
        evaluated: number of simulated people in the mean that is a value.
        seed: of these people.
    """
    patients = Vitals(horizon, evaluated, seed=seed)
    expert = {"map": (54.0, 64.0, 76.0, 86.0), "lactate": (2.5, 4.0), "fluid": (1.0, 2.0)}
    grid = _grid(patients, cut, expert, {"map": 70.0, "lactate": 3.0, "wbc": 12.0})
    return GridTable(patients, grid, "vitals-table", (("cut", cut), *patients.arguments), seed)


def GlucoseTable(cut: Cut = "expert", horizon: int = 24, evaluated: int = 110_000, seed: int = 0) -> GridTable:
    """`glucose-day` on a grid: minutes in range, paid at every step.

    Arguments:
        cut: "expert" (glucose in 6, trend and carbohydrates in 3, insulin on board in 2 bins: 108 cells) or "equal"
            (each of the five columns in 3 bins of equal width: 243 cells).
        horizon: decisions per day.
        evaluated: number of simulated people in the mean that is a value.
        seed: of these people.
    """
    patients = GlucoseDay(horizon, evaluated, seed=seed)
    expert = {
        "cgm": (70.0, 100.0, 140.0, 180.0, 250.0),
        "trend": (-0.5, 0.5),
        "insulin_on_board": (0.04,),
        "carbohydrates": (1.0, 40.0),
    }
    grid = _grid(patients, cut, expert, {"cgm": 140.0})
    return GridTable(patients, grid, "glucose-table", (("cut", cut), *patients.arguments), seed)
