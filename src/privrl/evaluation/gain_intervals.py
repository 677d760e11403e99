"""Intervals of gains, from a release of the sum of D over people and one of the sum of D^2.

The same intervals serve all people, the people of one group, and a second outcome.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from privrl.contracts.noise_distribution import AbstractNoise
from privrl.contracts.release import Release
from privrl.evaluation.confidence import ERROR_RATE, Interval
from privrl.mdp.assistance import AbstractAssisted
from privrl.mdp.value_features import AbstractValueFeature
from privrl.statistics.corrected_gains import CorrectedGains
from privrl.statistics.off_policy import AbstractPairMeans, Gains, Limits


class GainEntry(NamedTuple):
    """One entry of a release: a sum over people with noise, both in units of `unit`."""

    value: float
    noise: AbstractNoise
    unit: float = 1.0

    @classmethod
    def of_pair(cls, release: Release, pair: int, statistic: AbstractPairMeans, row: int | None = None) -> "GainEntry":
        """The entry of one pair of limits; in the row of one group, if there are groups."""
        values = np.asarray(release.value, float)
        value = values[pair] if row is None else values[row, pair]
        return cls(float(value), release.noise, float(statistic.units[pair]))

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise in the sum."""
        return self.unit * float(np.max(self.noise.std))

    def mean(self, people: float) -> float:
        """The mean over people."""
        return self.value * self.unit / people


def certified_interval(
    first: GainEntry,
    second: GainEntry,
    people: float,
    largest: float,
    error: float = 0.0,
    among: int = 1,
    count_deviation: float = 0.0,
) -> Interval:
    """Value +- z sqrt(v/n + sigma^2 + error^2), where z is for the error rate that `among` bounds share.

    v is the released second moment minus mean^2 (if positive) plus one standard deviation of its noise, and plus
    largest^2 ln(20 J)/n for J bounds: a rare stay of weight `largest` may be in no record, and where there is no
    noise nothing else would allow for it. `error` is a further standard error, of an estimated b*. If the number of
    people is itself a noisy sum, with the standard deviation `count_deviation`, the value is a ratio r of two noisy
    sums, and r^2 times the variance of the number is added to that of the sum.
    """
    value = first.mean(people)
    rare = largest**2 * math.log(among / ERROR_RATE) / people
    counted = (value * count_deviation) ** 2 / people
    variance = released_variance(first, second, people) + rare + error**2 * people + counted
    return Interval.of(value, variance, people, first.noise, unit=first.unit, among=among)


def released_variance(first: GainEntry, second: GainEntry, people: float) -> float:
    """The released second moment minus mean^2 (if positive) plus one standard deviation of its noise."""
    return max(second.mean(people) - first.mean(people) ** 2, 0.0) + second.deviation / people


@dataclass(frozen=True)
class GainMeasure:
    """How the gain with one pair of limits is read off releases, as a share of the range of returns.

    With estimated weights it is E[w (G-m)]/E[w], as if they had the mean 1. Its standard error holds that of the
    estimated b*, and the interval has an allowance for what the estimate of practice misses.

    Attributes:
        largest: the largest weight.
        among: how many bounds share the error rate.
        spread: the standard deviation of returns, or a bound on it.
        error: the standard error that comes from an estimated b*, in units of `spread`; 0 if practice is known.
        scale: one over the mean weight; 1 if practice is known.
        allowance: of an estimated practice, from the standard deviation of D over people; `None` if it is known.
    """

    largest: float
    among: int
    spread: float
    error: float = 0.0
    scale: float = 1.0
    allowance: Callable[[float], float] | None = None

    def interval(self, first: GainEntry, second: GainEntry, people: float, count_deviation: float = 0.0) -> Interval:
        """From the sums of D and of D^2 over this number of people, which is public unless it has a deviation."""
        error = self.spread * self.error
        gain = certified_interval(first, second, people, self.largest, error, self.among, count_deviation)
        if self.allowance is None:
            return gain
        deviation = math.sqrt(released_variance(first, second, people))
        return gain.scaled(self.scale).wider(self.allowance(self.scale * deviation))


@dataclass(frozen=True)
class WeighedGain:
    """What is summed to estimate the gain of an assisted policy.

    Attributes:
        policy: the assisted policy.
        limits: the pairs that are compared; `None`: those of the policy alone.
        logged, least_propensity: as in `Gains`.
        feature: of the correction (`statistics/corrected_gains.py`); `None` without one.
    """

    policy: AbstractAssisted
    limits: Limits | None
    logged: bool
    least_propensity: float
    feature: AbstractValueFeature | None

    def terms(self, centre: float, slope: float, return_range: tuple[float, float]) -> tuple[AbstractPairMeans, ...]:
        """D and its square, centred at m and, with a feature, corrected with a slope."""
        m, ways = jnp.asarray(centre), (False, True)
        if self.feature is None:
            stated = (self.limits, self.logged, self.least_propensity)
            return tuple(Gains(self.policy, m, return_range, way, *stated) for way in ways)
        corrected = (self.policy, self.feature, m, jnp.asarray(slope), return_range)
        return tuple(CorrectedGains(*corrected, squared=way, limits=self.limits) for way in ways)
