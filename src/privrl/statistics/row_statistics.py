"""Statistics that are sums over transitions, written once for rows.

A trajectory is a handful of rows, a table compresses to its distinct rows, and a block of simulated episodes is a flow
of rows; `of_rows` serves all three. What a statistic does to one episode before its rows are summed (first visits
only, a clipped norm) is in `rows`. If that is nothing (`SumHints.plain`), compressed tables and flows are enough.
"""

import abc
import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer, PyTree

from privrl.contracts.statistic import AbstractStatistic
from privrl.mdp.types import Trajectory, Transitions


class AbstractRowStatistic(AbstractStatistic):
    """One person's contribution is a sum over the transitions of their episode.

    `stage` is the one step whose transitions count, or `None`. A statistic whose `rows` is just
    `Transitions.from_trajectory` may set the hint `SumHints.plain`: then the sum over people is taken from
    compressed rows, on which `rows` is never called.
    """

    stage: eqx.AbstractVar[Int[Array, ""] | None]
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def rows(self, trajectory: Trajectory) -> Transitions:
        """The rows of one episode that count, each with its weight in `count` (and in `reward`)."""
        return Transitions.from_trajectory(trajectory)

    @abc.abstractmethod
    def terms(self, rows: Transitions) -> tuple[Int[Array, " N"], Float[Array, "N *block"]]:
        """For each row the block that it adds, linear in `count` and `reward`, and where (see `parts`).

        Rows outside the finite world add zeros.
        """

    def of_rows(self, rows: Transitions) -> Array:
        """The sum over rows."""
        slots, blocks = self.terms(rows)
        block = blocks.shape[1:]
        flat = jnp.zeros((math.prod(self.raw_shape) // math.prod(block), *block))
        return flat.at[slots].add(blocks).reshape(self.raw_shape)

    def parts(self, record: PyTree, query: PyTree) -> tuple[Int[Array, " P"], Float[Array, "P *block"]]:
        del query
        return self.terms(self.rows(record))

    def contribution(self, record: PyTree, query: PyTree) -> Array:
        del query
        return self.of_rows(self.rows(record))

    def total(self, records: PyTree, query: PyTree) -> Array:
        del query
        rows = jax.vmap(self.rows)(records)
        return self.of_rows(jax.tree.map(lambda x: x.reshape(-1), rows))


def within(
    rows: Transitions, num_states: int, num_actions: int, next_state: Literal["needed", "ignored"]
) -> Bool[Array, " N"]:
    """Which rows lie inside the finite world: rows outside it must not touch any cell (indices would wrap)."""
    state, action = jnp.asarray(rows.state), jnp.asarray(rows.action)
    inside = (state >= 0) & (state < num_states) & (action >= 0) & (action < num_actions)
    if next_state == "needed":
        after = jnp.asarray(rows.next_state)
        inside &= (after >= 0) & (after < num_states)
    return inside


def after_each(
    rows: Transitions,
    length: Integer[Array | np.ndarray, ""],
    sizes: tuple[int, int, int],
    terminal: tuple[int, ...],
) -> Int[Array, " H"]:
    """The next state of each step of one stay: S where the stay ended, and -1 where it is not known.

    A stay has ended where it enters a public terminal state, or where it stops before the horizon and the next state
    was not recorded. One that was cut by the horizon has not: its last step is a step like any other. `sizes` are the
    numbers of states and actions, and the horizon.
    """
    num_states, num_actions, horizon = sizes
    known = within(rows, num_states, num_actions, "needed")
    stops = (rows.step == length - 1) & (length < horizon)
    ended = jnp.where(known, jnp.isin(rows.next_state, jnp.asarray(terminal, int)), stops)
    return jnp.where(ended, num_states, jnp.where(known, rows.next_state, -1))


def clipped_reward(rows: Transitions) -> Float[Array, " N"]:
    """Rewards clipped so that every counted transition has a reward in [0, 1], whatever was recorded.

    Exact for the rows of one person. Compressed rows of many people come from tables whose rewards were checked one
    by one, and sums of rewards in [0, 1] lie in [0, count] already.
    """
    return jnp.clip(jnp.where(jnp.isfinite(rows.reward), rows.reward, 0.0), 0.0, rows.count)
