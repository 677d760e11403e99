"""Turn the success rate of an attack into the largest privacy claim that it refutes.

A claim limits how well *any* attack can do. An attack that does better, by more than chance explains, proves the
claim false; an attack that does worse proves nothing. So every number here is a lower bound: with probability at
least `confidence` over the runs, the true epsilon (or mu) is at least that large.
"""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from privrl.privacy.accounting.gdp import gdp_epsilon


def rate_bounds(
    false_positives: int, true_positives: int, trials: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Bound the false positive rate from above and the true positive rate from below, both at once.

    The attack guessed "world 1" in `false_positives` of `trials` runs of world 0 and in `true_positives` of as many
    runs of world 1. The bounds are Clopper and Pearson's exact one-sided ones, each of which fails with probability
    (1 - confidence)/2.
    """
    from scipy.special import betaincinv

    for name, hits in (("false_positives", false_positives), ("true_positives", true_positives)):
        if not 0 <= hits <= trials or trials < 1:
            raise ValueError(f"`{name}` is {hits} of {trials} `trials`; it must lie between 0 and a positive `trials`.")
    _probability("confidence", confidence)
    miss = (1.0 - confidence) / 2.0
    high = 1.0 if false_positives == trials else betaincinv(false_positives + 1, trials - false_positives, 1.0 - miss)
    low = 0.0 if true_positives == 0 else betaincinv(true_positives, trials - true_positives + 1, miss)
    return float(high), float(low)


def epsilon_lower(
    false_positives: int, true_positives: int, trials: int, delta: float, confidence: float = 0.95
) -> float:
    """Return the largest epsilon that the error rates of one fixed test refute at `delta`; 0 if they refute none.

    **Formal guarantee.** Let S be "the test says world 1", fixed before these runs were seen. Under (epsilon,
    delta)- differential privacy P1(S) <= e^epsilon P0(S) + delta, and for the complement P0(not S) <= e^epsilon
    P1(not S) + delta. With P0(S) <= a and P1(S) >= b (`rate_bounds`, both at once with probability `confidence`)
    any epsilon below max(ln((b - delta)/a), ln((1 - a - delta)/(1 - b))) is therefore impossible. Both tests use
    the same two bounds, so looking at both costs nothing.
    """
    if not 0 <= delta < 1:
        raise ValueError(f"`delta` is {delta}; it must lie in [0, 1).")
    a, b = rate_bounds(false_positives, true_positives, trials, confidence)
    return max(0.0, _log_ratio(b - delta, a), _log_ratio(1.0 - a - delta, 1.0 - b))


def mu_lower(false_positives: int, true_positives: int, trials: int, confidence: float = 0.95) -> float:
    """Return the largest mu such that the error rates of one fixed test refute every mu-GDP claim below it.

    **Formal guarantee.** Under mu-Gaussian differential privacy no test has P1(S) > Phi(Phi^-1(P0(S)) + mu). With
    the bounds a, b of `rate_bounds`, mu >= Phi^-1(b) - Phi^-1(a) with probability `confidence`. For a claim that
    *is* mu-GDP (public Gaussian releases) `gdp_epsilon(mu, delta)` is then a lower bound on its epsilon at any
    delta. It is far tighter than `epsilon_lower` at small deltas, because a test in the middle, where errors are
    frequent, bounds the tails too. The bound does not apply to mechanisms that are not Gaussian.
    """
    from scipy.special import ndtri

    a, b = rate_bounds(false_positives, true_positives, trials, confidence)
    return max(0.0, float(ndtri(b) - ndtri(a))) if b > 0 and a < 1 else 0.0


def gdp_epsilon_lower(
    false_positives: int, true_positives: int, trials: int, delta: float, confidence: float = 0.95
) -> float:
    """Return the epsilon at `delta` of `mu_lower`: what the test refutes among claims of Gaussian differential
    privacy.
    """
    return gdp_epsilon(mu_lower(false_positives, true_positives, trials, confidence), delta)


def bound_epsilon(
    scores: Float[np.ndarray, "2 n"], delta: float, confidence: float, *, gaussian: bool, thresholds: int = 400
) -> float:
    """Return the epsilon that guessing the world by a threshold of the score refutes.

    The threshold is chosen on one half of the runs, and right and wrong guesses are counted on the other half.

    Arguments:
        scores: `scores[w]` are the scores of world w; a larger score means that world 1 is likelier.
        delta: the delta at which epsilon is stated.
        confidence: the probability with which the bound holds.
        gaussian: whether the claim is one of Gaussian differential privacy (`gdp_epsilon_lower`).
        thresholds: the number of thresholds to try.
    """
    bound: Callable[..., float] = gdp_epsilon_lower if gaussian else epsilon_lower
    half = scores.shape[1] // 2

    def value(part: Float[np.ndarray, "2 n"], threshold: float) -> float:
        wrong, right = (part > threshold).sum(axis=1)
        return bound(int(wrong), int(right), part.shape[1], delta, confidence)

    chosen, counted = scores[:, :half], scores[:, half:]
    seen = np.unique(np.quantile(chosen, np.linspace(0.0, 1.0, min(thresholds, half)), axis=1))
    # Midpoints too: worlds that are told apart without fail are cut in the middle of the gap.
    candidates = np.concatenate([seen, (seen[1:] + seen[:-1]) / 2])
    return value(counted, max(candidates.tolist(), key=lambda threshold: value(chosen, threshold)))


def one_run_epsilon(guesses: int, correct: int, canaries: int, delta: float, confidence: float = 0.95) -> float:
    """The largest epsilon that `correct` of `guesses` about `canaries` coins refute, from a single run.

    Every canary is put in or left out by a fair coin of its own; after one run the attacker guesses some of the coins
    (Steinke, Nasr and Jagielski 2023). The relation is **add/remove**: worlds differ in the presence of one canary.

    **Formal guarantee.** Let the run be (epsilon, delta)-private for one canary in or out, p = e^epsilon/(1+e^epsilon),
    and fix which coins are guessed, and how, as a function of the output y. Then P(correct >= v) is at most `p_values`.

    *Proof.* Reveal the coins S_1, S_2, ... one by one. Given y and S_1..S_{i-1}, the coin is +1 with probability
    P/(P+Q), where P and Q are the densities of y given S_<i and S_i = +1 or -1. That is above p where P > e^epsilon Q.
    The excess g_i(y, S_<i) = max(0, P/(P+Q) - p, Q/(P+Q) - p) has mean over y ~ (P+Q)/2, since
    P - p (P+Q) = (P - e^epsilon Q)/(1+e^epsilon), at most
    (1/2) (∫[P - e^epsilon Q]_+ + ∫[Q - e^epsilon P]_+)/(1+e^epsilon) <= delta/(1+e^epsilon).
    A guess of coin i is right with probability at most p + g_i. Realise "right" by a uniform U_i that is independent of
    y and of the coins before: right only if U_i < p, or p <= U_i < p + g_i. The first kind makes B ~ Binomial(guesses,
    p), whatever y; the second F extra hits with E F <= tau = canaries delta/(1+e^epsilon). Now B + F >= v needs B >= v,
    or B = v - j and F >= j for some j >= 1. These have probabilities x_j <= P(B = v - j) with sum_j j x_j <= tau.
    The largest sum of such x_j takes j = 1, 2, ... in turn until tau is used up. ∎ At delta = 0 this is the binomial
    tail. The larger of two epsilons is implied by the smaller, so the answer is the largest epsilon whose p-value is
    at most 1 - `confidence`.
    """
    if not 0 <= correct <= guesses <= canaries or canaries < 1:
        raise ValueError(
            f"`correct` = {correct}, `guesses` = {guesses}, `canaries` = {canaries}; give 0 <= correct <= guesses <= "
            "canaries, and at least one canary."
        )
    _probability("confidence", confidence)
    low, high = 0.0, 60.0  # the first test of the grid below is at 0, so an answer of 0 refutes nothing
    for _ in range(5):  # the largest refuted point of a grid, then a finer grid up to the next point
        grid = np.linspace(low, high, 101)
        refuted = np.flatnonzero(p_values(guesses, correct, canaries, grid, delta) <= 1.0 - confidence)
        if not len(refuted):
            return 0.0
        low, high = float(grid[refuted[-1]]), float(grid[min(refuted[-1] + 1, len(grid) - 1)])
    return low


def p_values(
    guesses: int, correct: int, canaries: int, epsilon: Float[np.ndarray, " g"], delta: float
) -> Float[np.ndarray, " g"]:
    """Return the largest probability of at least `correct` right guesses under each (epsilon, delta); see
    `one_run_epsilon`.

    At most `correct` shortfalls can be made up: in turn, entirely, until tau is used up, the last one in part.
    """
    from scipy.stats import binom

    p = 1.0 / (1.0 + np.exp(-epsilon))
    tau = (canaries * delta * (1.0 - p))[:, None]
    short = np.arange(1, correct + 1)[None, :]
    mass = binom.pmf(correct - short, guesses, p[:, None])
    spent = np.cumsum(short * mass, axis=1)
    before = spent - short * mass
    lifted = np.clip((tau - before) / short, 0.0, mass)
    return np.minimum(1.0, binom.sf(correct - 1, guesses, p) + lifted.sum(axis=1))


def _log_ratio(upper: float, lower: float) -> float:
    if upper <= 0.0:
        return -math.inf
    return math.inf if lower <= 0.0 else math.log(upper / lower)


def _probability(name: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"`{name}` is {value}; it must lie strictly between 0 and 1, for example 0.95.")
