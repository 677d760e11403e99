"""Moments of features at one step: Gram matrices and regression targets, weighted or not, with their sensitivities.

One episode has at most one transition at step h, so bounding one transition bounds the person.

**Formal guarantee** (for all records). Features have norm at most 1, and a public table of weights is bounded by w
(1 without a table). w(s,a) phi phi^T is positive semidefinite with Frobenius norm at most w, so two of them differ by
at most sqrt(2) w, reached when phi is orthogonal to phi' and both weigh w. A target w(s,a) phi (y - m), y clipped to a
public interval of length R with midpoint m, has norm at most w R/2, so two of them differ by at most w R, reached at
opposite ends of the interval with the same phi. Without centring (m = 0) a target has norm at most w max |y|, so two
of them differ by at most twice that, reached where phi' = -phi.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.statistic import Adjacency, SumHints
from privrl.mdp.features import AbstractFeatures
from privrl.mdp.types import Transitions
from privrl.privacy.noise.sensitivities import l2_of_outer_products, l2_of_scaled, l2_of_sum
from privrl.statistics.row_statistics import AbstractRowStatistic, clipped_reward, within
from privrl.statistics.setting_checks import (
    as_step,
    check_array,
    check_features,
    check_positive,
    check_stage,
    unit_features,
    unit_weights,
)


class AbstractMoment(AbstractRowStatistic):
    """A sum over the transitions at one step, each times the public weight of its (s, a)."""

    features: AbstractFeatures
    stage: Int[Array, ""] = eqx.field(converter=as_step)
    weights: Float[Array, "S A"] | None = eqx.field(default=None, kw_only=True)
    weight_bound: float | None = eqx.field(static=True, default=None, kw_only=True)

    def __check_init__(self) -> None:
        check_features(self.features)
        check_stage(self.stage, math.inf)
        if self.weight_bound is not None:
            check_positive(weight_bound=self.weight_bound)
        if self.weights is not None:
            check_array("weights", self.weights, (self.features.num_states, self.features.num_actions), low=0.0)

    @property
    def largest_weight(self) -> float:
        """w: what the weights scale the sensitivity by, their public bound or else their own maximum."""
        if self.weights is None:
            return 1.0
        return float(jnp.max(self.weights)) if self.weight_bound is None else self.weight_bound

    def _phi(self, rows: Transitions) -> Float[Array, "N d"]:
        return unit_features(self.features, rows.state, rows.action, self._counted(rows))

    def _counted(self, rows: Transitions) -> Bool[Array, " N"]:
        inside = within(rows, self.features.num_states, self.features.num_actions, "ignored")
        return inside & (rows.step == self.stage) & (rows.count > 0)

    def _weighted(self, rows: Transitions, terms: Float[Array, " N"]) -> Float[Array, " N"]:
        """The terms of the rows that count, each times its weight; 0 elsewhere."""
        counted = self._counted(rows)
        if self.weights is not None:
            weights = unit_weights(self.weights, jnp.inf if self.weight_bound is None else self.weight_bound)
            terms = terms * weights[jnp.where(counted, rows.state, 0), jnp.where(counted, rows.action, 0)]
        return jnp.where(counted, terms, 0.0)


class Gram(AbstractMoment):
    """sum w(s, a) phi phi^T over the (s, a) taken at step `stage`.

    `weights` w >= 0 are public, 1 where not given, and cut at `weight_bound` if there is one.
    """

    symmetric: bool = eqx.field(static=True, default=True, init=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features.dim, self.features.dim)

    @property
    def hints(self) -> SumHints:
        return SumHints(plain=True, row_by_row=True, ignores_next_state=True)

    def terms(self, rows: Transitions) -> tuple[Int[Array, " N"], Float[Array, "N d d"]]:
        phi = self._phi(rows)
        weights = self._weighted(rows, jnp.asarray(rows.count))
        return jnp.zeros(phi.shape[0], int), weights[:, None, None] * (phi[:, :, None] * phi[:, None, :])

    def of_rows(self, rows: Transitions) -> Array:
        """The sum as one matrix product, without the outer products."""
        phi = self._phi(rows)
        return (phi * self._weighted(rows, jnp.asarray(rows.count))[:, None]).T @ phi

    def l2(self, adjacency: Adjacency) -> float:
        return self.largest_weight * l2_of_outer_products(1.0, adjacency)

    def l1(self, adjacency: Adjacency) -> float:
        raise ValueError("`Gram` is released with Gaussian noise; it has no L1 bound. Use `mechanism='gaussian'`.")


class Targets(AbstractMoment):
    """sum w(s, a) phi (r + V(s') - m) at step `stage`, centred at the public midpoint m of r + V(s').

    `values` is an already public function V of the next state, such as a value function or its square, and [`low`,
    `high`] bounds it (the span calibration reads the range off V, which costs nothing because V was released before).
    Rewards lie in [0, 1] and may be left out (`with_reward=False`). `centred=False` takes m = 0, as the papers do.
    A transition whose next state was not recorded counts with V(s') = `unrecorded`, by default the bottom of the range.
    `weights` and `weight_bound` are those of `Gram`.
    """

    values: Float[Array, " S"]
    low: Float[Array, ""]
    high: Float[Array, ""]
    with_reward: bool = eqx.field(static=True, default=True)
    centred: bool = eqx.field(static=True, default=True)
    unrecorded: Float[Array, ""] | None = None

    def __check_init__(self) -> None:
        check_array("values", self.values, (self.features.num_states,))
        for name, value in (("low", self.low), ("high", self.high), ("unrecorded", self.unrecorded)):
            if value is not None:
                check_array(name, value, ())
        bounds = (self.low, self.high)
        if not any(isinstance(bound, jax.core.Tracer) for bound in bounds) and not float(self.low) <= float(self.high):
            raise ValueError(f"`low` is {self.low} and `high` is {self.high}; `low` must not exceed `high`.")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features.dim,)

    @property
    def midpoint(self) -> Float[Array, ""]:
        """What was subtracted from every target, to be added back to the regression."""
        return (self.low + self.high + float(self.with_reward)) / 2 if self.centred else jnp.zeros(())

    @property
    def hints(self) -> SumHints:
        return SumHints(plain=True, row_by_row=not self.with_reward)

    def terms(self, rows: Transitions) -> tuple[Int[Array, " N"], Float[Array, "N d"]]:
        known = within(rows, self.features.num_states, self.features.num_actions, "needed")
        values = self._in_range(self.values)
        unrecorded = self.low if self.unrecorded is None else self._in_range(self.unrecorded)
        V = jnp.where(known, values[jnp.where(known, rows.next_state, 0)], unrecorded)
        y = jnp.asarray(rows.count) * (V - self.midpoint)
        if self.with_reward:
            y = y + clipped_reward(rows)
        phi = self._phi(rows)
        return jnp.zeros(phi.shape[0], int), self._weighted(rows, y)[:, None] * phi

    def _in_range(self, values: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Values cut to [low, high]; `low` where they are not a number."""
        return jnp.clip(jnp.where(jnp.isnan(values), self.low, values), self.low, self.high)

    def l2(self, adjacency: Adjacency) -> float:
        low, high = float(self.low), float(self.high) + self.with_reward
        if self.centred:
            return self.largest_weight * l2_of_scaled(1.0, low, high, adjacency)
        return self.largest_weight * l2_of_sum(max(-low, high), adjacency)

    def l1(self, adjacency: Adjacency) -> float:
        return math.sqrt(self.features.dim) * self.l2(adjacency)
