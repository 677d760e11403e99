"""How many people would show a gain that was estimated and not shown, from its interval and the noise that is known.

An interval of a gain v from N people has the half width z se + a. The parts of se shrink at different rates:

    se^2 = V/N + (p^2 + q + r)/N^2

V is the variance over people, p the noise of the sum, q that of the sum of squares, and r allows for rare episodes
(`gain_intervals.py`). p, q and r are public. The ends of the released interval give se and the allowance a, which does
not shrink, so V follows. With N' people the lower bound is expected at v - z se(N') - a.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from statistics import NormalDist

from privrl.evaluation.confidence import ERROR_RATE, Interval

_MOST = 10**12


@dataclass(frozen=True)
class Candidate:
    """One of the gains that were compared.

    Attributes:
        name: its limits, as a part of a sentence.
        gain: its interval, as a share of the range of returns.
        noise: the standard deviation of the noise in the sum of D over people.
        square_noise: the same for the sum of the squares of D.
        largest: the largest weight, by which rare episodes are allowed for; 0 for a model.
    """

    name: str
    gain: Interval
    noise: float = 0.0
    square_noise: float = 0.0
    largest: float = 0.0

    def people_to_show(self, people: int, among: int) -> int | None:
        """The fewest people with whom the expected lower bound is above 0; `None` if no number is enough.

        Arguments:
            people: those from whom the interval was made.
            among: how many intervals share the error rate.
        """
        two, one = (NormalDist().inv_cdf(1.0 - rate / among) for rate in (ERROR_RATE / 2.0, ERROR_RATE))
        gain = self.gain
        se = max((gain.value - gain.low) - (gain.value - gain.lower), 0.0) / (two - one)
        allowance = max(gain.value - gain.lower - one * se, 0.0)
        if gain.value <= allowance:
            return None
        known = self.noise**2 + self.square_noise + self.largest**2 * math.log(among / ERROR_RATE)
        variance = max(se**2 * people - known / people, 0.0)

        def shown(number: int) -> bool:
            return gain.value - allowance > one * math.sqrt(variance / number + known / number**2)

        needed = 1 + bisect_left(range(1, _MOST), True, key=shown)
        return needed if needed < _MOST else None
