"""Moments of features at one step: Gram matrices and regression targets, with their sensitivities.

One episode has at most one transition at step h, so bounding one transition bounds the person.

**Formal guarantee** (for all records). Features have norm at most 1. phi phi^T is positive semidefinite with Frobenius
norm at most 1, so two of them differ by at most sqrt(2), reached when phi is orthogonal to phi'. A target
phi * (y - m), y clipped to the public interval [m - R/2, m + R/2], has norm at most R/2, so two of them differ by
at most R, reached at opposite ends of the interval with the same phi.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from privrl.mdp import AbstractFeatures, Trajectory, Transitions
from privrl.privacy import Adjacency
from privrl.statistics._rows import AbstractRowStatistic, clipped_reward, within


class AbstractMoment(AbstractRowStatistic):
    """A sum over the transitions at one step."""

    features: AbstractFeatures
    stage: Int[Array, ""] = eqx.field(converter=jnp.asarray)
    plain: bool = eqx.field(static=True, default=True, init=False)

    def rows(self, trajectory: Trajectory) -> Transitions:
        return Transitions.of(trajectory)

    def _counted(self, rows: Transitions, next_state: Any) -> Bool[Array, " N"]:
        inside = within(rows, self.features.num_states, self.features.num_actions, next_state)
        return inside & (rows.step == self.stage) & (rows.count > 0)


class Gram(AbstractMoment):
    """sum phi phi^T over the (s, a) taken at step `stage`."""

    symmetric: bool = eqx.field(static=True, default=True, init=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features.dim, self.features.dim)

    def of_rows(self, rows: Transitions) -> Array:
        weight = jnp.where(self._counted(rows, "ignored"), rows.count, 0.0)
        phi = self.features.of(rows.state, rows.action)
        return (phi * weight[:, None]).T @ phi

    def l2(self, adjacency: Adjacency) -> float:
        return math.sqrt(2.0) if adjacency == "replace-one" else 1.0

    def l1(self, adjacency: Adjacency) -> float:
        raise ValueError("`Gram` is released with Gaussian noise; it has no L1 bound. Use `mechanism='gaussian'`.")


class Targets(AbstractMoment):
    """sum phi (r + V(s') - m) at step `stage`, centred at the public midpoint m of r + V(s').

    `values` is the already public V; `next_range` bounds it (the span calibration reads it off V, which costs
    nothing because V was released before). Rewards lie in [0, 1] and may be left out (`with_reward=False`).
    A transition whose next state was not recorded counts with V(s') at the bottom of the range.
    """

    values: Float[Array, " S"]
    low: Float[Array, ""]
    high: Float[Array, ""]
    with_reward: bool = eqx.field(static=True, default=True)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features.dim,)

    @property
    def midpoint(self) -> Float[Array, ""]:
        """What was subtracted from every target, to be added back to the regression."""
        return (self.low + self.high + float(self.with_reward)) / 2

    def of_rows(self, rows: Transitions) -> Array:
        weight = jnp.where(self._counted(rows, "ignored"), rows.count, 0.0)
        known = within(rows, self.features.num_states, self.features.num_actions, "needed")
        values = jnp.clip(self.values, self.low, self.high)
        V = jnp.where(known, values[jnp.where(known, rows.next_state, 0)], self.low)
        y = weight * (V - self.midpoint)
        if self.with_reward:
            y = y + jnp.where(weight > 0, clipped_reward(rows), 0.0)
        return y @ self.features.of(rows.state, rows.action)

    def l2(self, adjacency: Adjacency) -> float:
        span = float(self.high - self.low) + self.with_reward
        return span if adjacency == "replace-one" else span / 2

    def l1(self, adjacency: Adjacency) -> float:
        return math.sqrt(self.features.dim) * self.l2(adjacency)
