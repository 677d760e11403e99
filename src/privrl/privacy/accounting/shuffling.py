"""Privacy amplification by shuffling: locally private reports with a large epsilon hide each other in their batch.

A batch of n people answers n queries (which may depend on earlier answers). A shuffler assigns the queries by a secret
uniformly random permutation, and passes on the answers without the names of the people. Each answer is
epsilon_0-locally private, w = e^epsilon_0. Only the shuffler is trusted; without it, epsilon_0 still holds.

**Formal guarantee.** For one person's two records, all that leaves the shuffler is (epsilon, delta)-differentially
private with delta = sup_E P(E) - e^epsilon Q(E), where P and Q are the distributions of

    (A + D, C - A + 1 - D),   C ~ Binomial(n - 1, 1/w),   A ~ Binomial(C, 1/2),   D ~ Bernoulli(w/(w+1)) under P,
                                                                                  D ~ Bernoulli(1/(w+1)) under Q.

*Proof* (Feldman, McMillan and Talwar 2021). Let x0, x1 be the records and R_i the distribution of the answer to
query i given the earlier answers. By local privacy Q_i0 = (w R_i(x0) - R_i(x1))/(w - 1) and Q_i1, the same with x0
and x1 exchanged, are probability distributions, and R_i(x0) = (w Q_i0 + Q_i1)/(w + 1), R_i(x1) = (Q_i0 + w Q_i1)/(w +
1), Q_i0 + Q_i1 = R_i(x0) + R_i(x1). For any record x, R_i(x) >= R_i(xb)/w, hence R_i(x) = (Q_i0 + Q_i1)/(2w) + (1 -
1/w) L_i(x) for a distribution L_i(x). So draw a label first: each other person gets 0 or 1 with probability 1/(2w)
each, or "own"; the person in question gets b with probability w/(w + 1), else 1 - b, when their record is xb. Then the
person who has query i answers by Q_i0, Q_i1 or L_i(own record). The person in question is never labelled "own", the
labels of the others do not depend on who they are, and the permutation is uniform: so given the numbers of 0s and 1s,
which query has which label, and which of the others answer the queries labelled "own", is uniform for both b. All
answers are thus a random function of the two numbers that does not depend on b, and the numbers have the distributions
P and Q. ∎

Given C = c the first number is A + D with A ~ Binomial(c, 1/2), and P(x)/Q(x) rises with x, so the best E is a
half-line and delta is a sum of binomial tails over c; exchanging the numbers exchanges P and Q, so the order does not
matter. More people only add independent labels: delta falls in n. Batches hold different people, and a batch is
complete before the next one sees its output, so the smallest batch bounds all of them.
"""

import functools
import math

from privrl.privacy.accounting.gdp import bisect, check

_MAX_PEOPLE = 2**26  # of a batch that count: more only lower delta, and its sum would have too many terms
_SLACK = 1e-13  # rounding of the sums below, which have fewer than 10^5 terms of relative error 1e-14 or less


def shuffled_delta(local_epsilon: float, num_users: int, epsilon: float) -> float:
    """An upper bound on the delta at `epsilon` of `num_users` shuffled reports, `local_epsilon`-private each."""
    _checked(local_epsilon, num_users)
    check(epsilon >= 0, f"`epsilon` is {epsilon}; it must be a number of at least 0.")
    if epsilon >= local_epsilon:
        return 0.0
    return _delta(float(local_epsilon), min(num_users, _MAX_PEOPLE), float(epsilon))


@functools.lru_cache(maxsize=4096)
def _delta(local_epsilon: float, num_users: int, epsilon: float) -> float:
    import numpy as np
    from scipy.stats import binom

    chance = math.exp(-local_epsilon)
    low, high = (int(c) for c in binom.interval(1 - 1e-13, num_users - 1, chance)) if num_users > 1 else (0, 0)
    c = np.arange(max(low, 0), high + 1)
    outside = float(binom.cdf(low - 1, num_users - 1, chance) + binom.sf(high, num_users - 1, chance))
    q = 1 / (1 + chance)  # w/(w+1)
    gain, loss = q - math.exp(epsilon) * (1 - q), math.exp(epsilon) * q - (1 - q)
    # P(x) = q b(x-1) + (1-q) b(x), Q(x) = (1-q) b(x-1) + q b(x), b(x-1)/b(x) = x/(c+1-x): P > e^eps Q from `edge` on.
    edge = np.floor((c + 1) * loss / (gain + loss)) + 1
    tails = gain * binom.sf(edge - 2, c, 0.5) - loss * binom.sf(edge - 1, c, 0.5)
    return min(1.0, float(binom.pmf(c, num_users - 1, chance) @ np.maximum(tails, 0.0)) + outside + _SLACK)


def shuffled_epsilon(local_epsilon: float, num_users: int, delta: float) -> float:
    """The epsilon at `delta` of `num_users` shuffled reports: an upper bound, never above `local_epsilon`.

    A thousand people with `local_epsilon` 2 are protected by less than a third of it:

    >>> shuffled_epsilon(2.0, 1000, 1e-6) < 0.6
    True
    """
    _checked(local_epsilon, num_users)
    check(0 < delta < 1, f"`delta` is {delta}; it must lie in (0, 1).")
    if math.isinf(local_epsilon):
        return local_epsilon
    return bisect(lambda x: shuffled_delta(local_epsilon, num_users, x) > delta, 0.0, float(local_epsilon), 1e-12)[1]


def local_epsilon_for(epsilon: float, delta: float, num_users: int) -> float:
    """The largest local epsilon for which batches of at least `num_users` reports are (epsilon, delta)-private.

    It is `epsilon` itself if the batch is too small to help.
    """
    check(0 < epsilon < math.inf, f"`epsilon` is {epsilon}; it must be a finite number above 0.")
    check(0 < delta < 1, f"`delta` is {delta}; it must lie in (0, 1).")
    _checked(epsilon, num_users)
    high = epsilon + math.log(num_users + 1)  # at 1/w < 1/n, less than one other person is expected to hide the answer
    return bisect(lambda local: shuffled_delta(local, num_users, epsilon) <= delta, epsilon, high, 1e-9)[0]


def _checked(local_epsilon: float, num_users: int) -> None:
    check(local_epsilon > 0, f"`local_epsilon` is {local_epsilon}; it must be positive.")
    check(num_users >= 1, f"`num_users` is {num_users}; it must be at least 1.")
