"""How each measurement is distributed over its public range: histograms in which each person has weight 1.

They replace means and standard deviations of a table, which are not private: from a histogram one reads any quantile.
"""

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.contracts.statistic import AbstractStatistic, Adjacency, SumHints
from privrl.mdp.measurements import Measurement, check_measurements
from privrl.mdp.quadratic_features import numeric_columns, positions
from privrl.mdp.types import Trajectory
from privrl.statistics.setting_checks import check_sizes


class ColumnShares(AbstractStatistic):
    """For each measurement, the shares of a person's own steps in `num_bins` bins between its bounds, and missing.

    The shape is `[F, num_bins + 1]`, measurements in the order of their names; the last entry is the share of steps
    without a value. All stays of a person count together.

    **Formal guarantee** (for all records). One person's entries for one measurement are not negative and add up to 1
    (0 without any step), so that row has L1 norm at most 1 and hence L2 norm at most 1, and the whole has at most
    sqrt(F). Inner products of two people are not negative, so ||x - y||^2 <= ||x||^2 + ||y||^2 <= 2F: sqrt(2F) under
    replace-one (reached by two people who each have one bin per measurement, all different), sqrt(F) under add-remove;
    2F and F in L1. No value, missing or not, inside its bounds or not, changes that: each step is in one bin.
    """

    columns: tuple[Measurement, ...] = eqx.field(static=True)
    num_bins: int = eqx.field(static=True, default=64)
    symmetric: bool = eqx.field(static=True, default=False, init=False)
    per_person: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_measurements(self.columns)
        check_sizes(num_bins=self.num_bins)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(numeric_columns(self.columns)), self.num_bins + 1

    @property
    def edges(self) -> Float[np.ndarray, " edges"]:
        """The edges of the bins, in [-1, 1]."""
        return np.linspace(-1.0, 1.0, self.num_bins + 1)

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True, working_entries=lambda steps: max(steps * self.shape[0], math.prod(self.shape)))

    def contribution(self, record: Trajectory, query: object) -> Float[Array, "F bins"]:
        del query
        v = positions(self.columns, jnp.asarray(record.states))
        inside = jnp.clip(jnp.floor((v + 1.0) * (self.num_bins / 2.0)), 0, self.num_bins - 1)
        bins = jnp.where(jnp.isnan(v), self.num_bins, inside).astype(int)
        taken = record.valid.astype(float)
        each = taken / jnp.maximum(taken.sum(), 1.0)
        return jnp.zeros(self.shape).at[jnp.arange(self.shape[0]), bins].add(each[..., None])

    def l2(self, adjacency: Adjacency) -> float:
        return math.sqrt((2.0 if adjacency == "replace-one" else 1.0) * self.shape[0])

    def l1(self, adjacency: Adjacency) -> float:
        return (2.0 if adjacency == "replace-one" else 1.0) * self.shape[0]
