"""One person's outcome in the arm of a trial: the number of records received and the sum of outcomes, by arm and group.

The value x of the record is clipped to the public bounds and rescaled, G = (x - low)/(high - low) in [0, 1]. A record
that is received contributes (k, G - c) to the pair of its arm and group, k = sqrt(1 - b^2), b = max(c, 1 - c); a record
that is missing, or whose value is not a number, contributes (0, 0). The first entry is the number received times k.

**Formal guarantee** (for all records, and for one arm and group on both sides: they are drawn, or stored, at enrolment
and are public, like the query of a plan). Two received records differ by (0, G - G'), of norm at most 1. A received and
a missing one differ by (k, G - c), of norm at most sqrt(k^2 + b^2) = 1, because |G - c| <= b. So the L2 sensitivity is
1, that of the sum of G alone: the number received costs nothing. Both bounds are met. The norm of one person's term is
at most 1 too, so an absent person is as close to any other as another record is. L1: k + b, which is at least 1.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from privrl.contracts.learner import Plan
from privrl.contracts.statistic import AbstractStatistic, Adjacency
from privrl.statistics.setting_checks import check_positive


class Outcomes(eqx.Module):
    """The record of one person in a trial: the values of the declared outcomes, NaN if one is missing."""

    values: Float[Array | np.ndarray, "*batch K"]


class Assignment(eqx.Module):
    """What is public about one person of a trial, as the query that their record answers.

    Attributes:
        arm: the number of the arm; -1 if the person is not counted.
        cells: the number of the person's group in each partition.
    """

    arm: Int[Array | np.ndarray, "*batch"]
    cells: Int[Array | np.ndarray, "*batch P"]


class ArmSums(AbstractStatistic):
    """Numbers received and sums of one outcome, by arm and group.

    Arguments:
        num_arms: the number of arms A.
        low, high: the public bounds of the outcome.
        centre: c in (0, 1), which is subtracted from the rescaled outcome.
        which: the place of the outcome in a record.
        num_groups: the number of groups G of the partition.
        partition: the place of the partition in an `Assignment`; `None` for all people together.
    """

    num_arms: int = eqx.field(static=True)
    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)
    centre: float = eqx.field(static=True)
    which: int = eqx.field(static=True, default=0)
    num_groups: int = eqx.field(static=True, default=1)
    partition: int | None = eqx.field(static=True, default=None)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        if not (self.low < self.high and 0 < self.centre < 1 and self.num_arms >= 1 and self.num_groups >= 1):
            raise ValueError(
                f"Expected `low` < `high`, 0 < `centre` < 1 and at least one arm and one group; got {self.low}, "
                f"{self.high}, {self.centre}, {self.num_arms} and {self.num_groups}."
            )
        check_positive(**{"high - low": self.high - self.low})

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.num_arms, self.num_groups, 2)

    @property
    def reach(self) -> float:
        """b: the largest distance of a rescaled outcome from the centre."""
        return max(self.centre, 1.0 - self.centre)

    @property
    def record_weight(self) -> float:
        """k: what one received record adds to the first entry."""
        return math.sqrt(1.0 - self.reach**2)

    def contribution(self, record: Outcomes, query: Plan) -> Float[Array, "A G 2"]:
        assigned: Assignment = query.query
        value = record.values[self.which]
        received = jnp.isfinite(value)
        offset = jnp.where(received, value, self.low) - self.low
        scaled = jnp.clip(offset / (self.high - self.low), 0.0, 1.0)
        pair = jnp.where(received, jnp.stack([jnp.asarray(self.record_weight), scaled - self.centre]), 0.0)
        cell = 0 if self.partition is None else assigned.cells[self.partition]
        arm = (jnp.arange(self.num_arms) == assigned.arm)[:, None] & (jnp.arange(self.num_groups) == cell)[None, :]
        return jnp.where(arm[..., None], pair[None, None], 0.0)

    def l2(self, adjacency: Adjacency) -> float:
        del adjacency
        return 1.0

    def l1(self, adjacency: Adjacency) -> float:
        del adjacency
        return self.record_weight + self.reach
