"""Theorem 4 by hand, that its lemma fails, and that its conditions leave nothing to learn with."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from privrl.audit.theorem_4 import reward_influence, theorem_4

FIGURE = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "samples": 100_000,
    "batch": 50,
    "refreshes": 2_000,
    "lipschitz": 1.0,
    "beta": 1.0,
    "largest_reward": 0.5,
}


def test_by_hand():
    # n = 10 updates, L = 2, β = 1, r₀ = 1/2, k = 200: spread = 2·0.01·4·401·0.5 = 16.04, over B = 10: 1.604;
    # C = 2·1.604² + 4/2 = 7.145632; ln(e + 1/0.01) = ln 102.7182818 = 4.6319894; √(2·10·4.6319894) = 9.6249.
    report = theorem_4(
        epsilon=1.0, delta=0.01, samples=100, batch=10, refreshes=1,
        learning_rate=0.01, lipschitz=2.0, beta=1.0, largest_reward=0.5, k=200.0,
    )  # fmt: skip
    assert report.smallest_sigma == pytest.approx(9.624956 * 7.145632, rel=1e-5)
    assert report.smallest_sigma_of_proof == pytest.approx(math.sqrt(2) * 9.624956 * math.sqrt(7.145632), rel=1e-5)
    assert report.k_large_enough and report.sigma_large_enough and not report.sigma_at_most_5 and not report.met
    # 100 - 51.7 = 48.3: the extra delta is nil. All rewards move Q by (e^{2·10·0.01·4} - 1)/2.
    assert report.total_delta == pytest.approx(0.01)
    assert report.reward_influence == pytest.approx((math.e**0.8 - 1) / 2)
    # repaired: (1 + 1/2) 16.04² + 2·4/1 = 393.9224, ten times, is the square of 62.7632, at the exact μ of (1, 0.01)
    mu = 62.763237 / report.smallest_sigma_repaired
    assert norm.cdf(mu / 2 - 1 / mu) - math.e * norm.cdf(-mu / 2 - 1 / mu) == pytest.approx(0.01, rel=1e-5)


def test_extra_delta_of_a_small_k():
    report = theorem_4(**FIGURE, learning_rate=1e-6, k=(51.7 + 2.0) / 0.5, sigma=1.0)
    assert report.total_delta == pytest.approx(1e-5 + 2_000 * math.exp(-2.0))
    below = theorem_4(**FIGURE, learning_rate=1e-6, k=51.0 / 0.5, sigma=1.0)
    assert not below.k_large_enough and below.total_delta == pytest.approx(1e-5 + 2_000)


def test_the_k_that_is_found_is_the_least_for_its_delta():
    found = theorem_4(**FIGURE, learning_rate=1e-6)
    assert found.total_delta == pytest.approx(2e-5)
    for k in np.linspace(found.k, 3 * found.k, 7)[1:]:
        other = theorem_4(**FIGURE, learning_rate=1e-6, k=float(k))
        assert other.smallest_sigma > found.smallest_sigma and other.total_delta < found.total_delta


def test_the_settings_of_the_figure_cannot_be_met():
    report = theorem_4(**FIGURE, learning_rate=2.0)
    assert not report.met and report.smallest_sigma > 1_000
    text = str(report)
    assert report.reward_influence == math.inf and "large enough to learn" in text
    assert "no   sigma" in text and all(f"({letter})" in text for letter in "abcd") and "does not hold" in text


@given(
    epsilon=st.floats(0.01, 10), delta=st.floats(1e-12, 0.1),
    batch=st.integers(1, 10**6), updates=st.integers(1, 10**5),
    share=st.floats(0.01, 0.99), lipschitz=st.floats(0.1, 10), log_beta=st.floats(0.01, 4), r_0=st.floats(0.01, 10),
)  # fmt: skip
def test_where_it_can_be_met_the_rewards_hardly_move_q(epsilon, delta, batch, updates, share, lipschitz, log_beta, r_0):
    """The proposition of the module: n alpha L^2 <= B sigma^2 epsilon^2/(146.2 L^3 ln(e + epsilon/delta))."""
    log = math.log(math.e + epsilon / delta)
    room = 5.0 * epsilon / math.sqrt(2 * updates * log)  # for C, at the largest noise
    beta = 10**log_beta * lipschitz**2 / (2 * room)
    k = (51.7 * math.sqrt(beta) + math.sqrt(2 * math.log(1 / delta))) / r_0
    left = share * (room - lipschitz**2 / (2 * beta)) / (1 + beta**2)
    alpha = batch * math.sqrt(left) / (2 * lipschitz**2 * (2 * k + 1) * r_0)
    report = theorem_4(
        epsilon=epsilon, delta=delta, samples=batch * updates, batch=batch, refreshes=1,
        learning_rate=alpha, lipschitz=lipschitz, beta=beta, largest_reward=r_0, k=k,
    )  # fmt: skip
    assert report.met
    bound = batch * report.sigma**2 * epsilon**2 / (146.2 * lipschitz**3 * log)
    assert updates * alpha * lipschitz**2 <= bound
    assert report.reward_influence <= reward_influence(bound)


def _largest_rate(sigma: float, batch: int, updates: int) -> float:
    """The largest n alpha L^2 at L = 1, epsilon = 1 that the printed conditions allow, over beta, k and alpha.

    By bisection on alpha with the calculator, so it shares no formula with the proposition.
    """

    def rate(log_beta: float) -> float:
        def allowed(log_alpha: float) -> bool:
            report = theorem_4(
                epsilon=1.0, delta=1e-5, samples=batch * updates, batch=batch, refreshes=1, sigma=sigma,
                learning_rate=10**log_alpha, lipschitz=1.0, beta=10**log_beta, largest_reward=0.5,
            )  # fmt: skip
            return report.met

        low, high = -30.0, 10.0
        if not allowed(low):
            return 0.0
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if allowed(middle) else (low, middle)
        return updates * 10**low

    return -minimize_scalar(lambda b: -rate(float(b)), bounds=(-2, 6), method="bounded", options={"xatol": 0.02}).fun


@pytest.mark.parametrize("updates", [1, 2_000])
def test_what_can_be_learnt_at_best(updates):
    # Figure 1: batches of 50, noise at most 0.4 or, at the very most, 5.
    assert 0 < _largest_rate(0.4, 50, updates) < 0.005
    assert 0 < _largest_rate(5.0, 50, updates) / 5.0 < 0.15
    # (b) repaired is B = 1 in the formula: 1.5% and 0.01% of the largest reward.
    assert 0 < _largest_rate(5.0, 1, updates) < 0.015
    assert 0 < _largest_rate(0.4, 1, updates) < 1e-4


def test_the_printed_statement_can_be_met_by_giant_batches():
    """Not "never": the wrong 1/B of (b) lets batches of 100,000 through. What stops it then is that (b) is wrong."""
    assert _largest_rate(0.4, 100_000, 1) > 1.0
    assert _largest_rate(0.4, 1_000, 1) < 0.1


def test_lemma_10_lacks_sigma():
    """One point alone exceeds the level with probability 0.18, and exp(-u^2/2), as printed, is 0.011.

    With sigma it is exp(-u^2/(2 sigma^2)): a maximum of Gaussians of variance at most sigma^2 is that close to its mean
    (Borell; Tsirelson, Ibragimov and Sudakov), and the mean is at most 10.34 sqrt(beta) sigma.
    """
    sigma, beta, u = 5.0, 0.001, 3.0
    level = 10.34 * math.sqrt(beta) * sigma + u
    one_point = float(norm.sf(level / sigma))  # P(g(0) >= level), less than the probability of the maximum
    assert one_point > 10 * math.exp(-(u**2) / 2)
    assert one_point < math.exp(-(u**2) / (2 * sigma**2))


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="`beta` is 0.0"):
        theorem_4(**{**FIGURE, "beta": 0.0}, learning_rate=1.0)
    with pytest.raises(ValueError, match="`delta` is 1.5"):
        theorem_4(**{**FIGURE, "delta": 1.5}, learning_rate=1.0)
    with pytest.raises(ValueError, match="`batch` is 200000"):
        theorem_4(**{**FIGURE, "batch": 200_000}, learning_rate=1.0)
