"""Which limits of the assisted policy are compared: several public pairs in one study, or one that was asked for.

    max_ratio / max_weight     1.5/4   4/20   5/40

Larger limits allow more gain, and their estimates vary more. All pairs are estimated from one release, their error
rates add up to .05, and the pair with the largest lower bound is chosen: a function of releases, which costs no
privacy. More pairs cost more noise, and leave a smaller error rate for each.

The pairs were chosen on `endings-50x4`, `endings-200x6`, `in-flight-60x4` and `holes-50x4`, with advice in proportion
to its advantage and the noise of epsilon 1. 10/80 in place of 5/40 releases more of the gain from 100,000 people, and
less from 30,000. The smallest pair is for advice that is right only in part.
"""

import math

from privrl.statistics.off_policy import Limits

PAIRS: Limits = ((1.5, 4.0), (4.0, 20.0), (5.0, 40.0))
"""The pairs that are compared unless limits are given."""
WHOLE = (math.inf, math.inf)
"""No limits: all advice that practice supports."""


def choose_limits(max_ratio: float | None, max_weight: float | None) -> Limits:
    """All pairs, or the one that was asked for; what is missing of it is taken from the smallest pair."""
    if max_ratio is None and max_weight is None:
        return PAIRS
    smallest = PAIRS[0]
    return ((smallest[0] if max_ratio is None else max_ratio, smallest[1] if max_weight is None else max_weight),)
