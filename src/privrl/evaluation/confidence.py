"""Intervals of estimates: two-sided and one-sided ends, each at 95%, for sampling error and privacy noise together."""

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist

import numpy as np

from privrl.contracts.noise_distribution import AbstractNoise

_EVIDENT = 3.0 / 1.959964  # three standard errors, in half widths
ERROR_RATE = 0.05
"""Of an interval, and of the one-sided lower bound that decides on a release."""


@dataclass(frozen=True)
class Interval:
    """An estimate, the ends of its two-sided interval, and those of the two one-sided ones."""

    value: float
    low: float
    high: float
    lower: float
    upper: float

    @classmethod
    def of(
        cls,
        value: float,
        variance: float,
        people: float,
        noise: AbstractNoise,
        allowance: float = 0.0,
        *,
        unit: float = 1.0,
        among: int = 1,
    ) -> "Interval":
        """Around a mean over `people` of terms of this variance, released as a sum with this noise.

        Arguments:
            value: the mean.
            variance: of the terms.
            people: their number.
            noise: of the sum, in units of `unit`.
            allowance: widens the interval on both sides, for what is not random.
            unit: what the terms were divided by before they were summed.
            among: how many intervals share the error rate.
        """
        se = math.sqrt(variance / people + unit**2 * float(np.max(noise.variance)) / people**2)
        two, one = (_quantile(rate / among, noise) * se + allowance for rate in (ERROR_RATE / 2.0, ERROR_RATE))
        return cls(value, value - two, value + two, value - one, value + one)

    def scaled(self, unit: float, origin: float = 0.0) -> "Interval":
        """The same in other units; `unit` is positive."""
        return Interval(*(origin + unit * end for end in asdict(self).values()))

    def wider(self, by: float) -> "Interval":
        """The same value with ends further out."""
        return Interval(self.value, self.low - by, self.high + by, self.lower - by, self.upper + by)

    @property
    def half(self) -> float:
        """Half the width of the two-sided interval."""
        return (self.high - self.low) / 2.0

    @property
    def evidently_not_zero(self) -> bool:
        """Whether 0 is more than three standard errors away."""
        return abs(self.value) > _EVIDENT * self.half

    def words(self, sign: str = "+") -> str:
        """Value and two-sided interval, three decimals."""
        return f"{self.value:{sign}.3f} [{self.low:{sign}.3f}, {self.high:{sign}.3f}]"


def _quantile(rate: float, noise: AbstractNoise) -> float:
    """What a normal number with mean 0 and variance 1 exceeds with this probability, and a Laplace number, if the noise
    has that distribution."""
    normal = NormalDist().inv_cdf(1.0 - rate)
    return max(normal, -math.log(2.0 * rate) / math.sqrt(2.0)) if noise.white == "laplace" else normal


def variance_bound(mean: float, largest: float) -> float:
    """The largest variance of a number in [0, largest] with this mean: mean (largest - mean), by x^2 <= largest x."""
    mean = min(max(mean, 0.0), largest)
    return mean * (largest - mean)
