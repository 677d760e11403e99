"""From right and wrong guesses to the claims they refute, against brute force and closed forms."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom, norm

from privrl.audit.bounds import epsilon_lower, gdp_epsilon_lower, mu_lower, one_run_epsilon, p_values, rate_bounds
from privrl.privacy.accounting.gdp import gdp_epsilon, gdp_mu

counts = st.integers(1, 3000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n)))


@given(counts, st.floats(0.5, 0.9999))
def test_rates_are_those_of_clopper_and_pearson(case, confidence):
    n, wrong, right = case
    miss = (1 - confidence) / 2
    high = beta.isf(miss, wrong + 1, n - wrong) if wrong < n else 1.0
    low = beta.ppf(miss, right, n - right + 1) if right else 0.0
    assert rate_bounds(wrong, right, n, confidence) == pytest.approx((high, low), rel=1e-9, abs=1e-12)


@given(counts, st.floats(0.0, 0.2), st.floats(0.6, 0.999))
def test_the_mirrored_test_counts_as_well(case, delta, confidence):
    """Calling world 1 world 0, and every answer its opposite, changes nothing."""
    n, wrong, right = case
    mirrored = epsilon_lower(n - right, n - wrong, n, delta, confidence)
    assert epsilon_lower(wrong, right, n, delta, confidence) == pytest.approx(mirrored, rel=1e-9, abs=1e-12)
    assert mu_lower(wrong, right, n, confidence) == pytest.approx(
        mu_lower(n - right, n - wrong, n, confidence), abs=1e-9
    )


@pytest.mark.parametrize(("epsilon", "trials"), [(0.5, 60), (1.0, 50), (2.0, 50), (3.0, 200)])
def test_randomised_response_is_accused_no_more_often_than_promised(epsilon, trials):
    """Brute force over all outcomes: the true epsilon is exceeded with probability at most 1 - confidence."""
    confidence, p = 0.9, 1 / (1 + math.exp(-epsilon))
    outcomes = [np.flatnonzero(binom.pmf(np.arange(trials + 1), trials, rate) > 1e-12) for rate in (1 - p, p)]
    wrong_by, accused = {}, 0.0
    for wrong, right in itertools.product(*outcomes):
        if right <= wrong:
            continue
        mass = binom.pmf(wrong, trials, 1 - p) * binom.pmf(right, trials, p)
        if epsilon_lower(int(wrong), int(right), trials, 0.0, confidence) > epsilon:
            accused += mass
            wrong_by[wrong, right] = mass
    assert accused <= 1 - confidence
    assert wrong_by  # it can happen, so the count above was of something


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_randomised_response_is_found_with_many_trials(epsilon):
    n = 10**7
    p = 1 / (1 + math.exp(-epsilon))
    found = epsilon_lower(round(n * (1 - p)), round(n * p), n, 0.0)
    assert 0.99 * epsilon < found < epsilon


@pytest.mark.parametrize("mu", [0.1, 0.27, 1.0, 3.0])
def test_exact_gaussian_rates_give_back_mu(mu):
    """At the exact error rates of the best test the bound is below mu and tends to it."""
    n = 10**8
    for threshold in (-0.5, 0.0, 1.0):
        wrong, right = n * norm.sf(threshold + mu / 2), n * norm.sf(threshold - mu / 2)
        found = mu_lower(round(wrong), round(right), n)
        assert mu - 0.002 < found < mu
        assert gdp_epsilon_lower(round(wrong), round(right), n, 1e-5) == gdp_epsilon(found, 1e-5)


def test_a_test_in_the_middle_speaks_of_the_tails():
    """The same runs at epsilon = 1, delta = 1e-5: Gaussian claims are refuted by far more than claims of any kind."""
    mu, n = gdp_mu(1.0, 1e-5), 50_000
    wrong, right = round(n * norm.sf(mu / 2)), round(n * norm.sf(-mu / 2))
    assert epsilon_lower(wrong, right, n, 1e-5) < 0.25
    assert 0.8 < gdp_epsilon_lower(wrong, right, n, 1e-5) < 1.0


def test_nothing_is_refuted_without_evidence():
    assert epsilon_lower(0, 0, 10, 1e-5) == mu_lower(0, 0, 10) == 0.0
    assert epsilon_lower(10, 10, 10, 1e-5) == mu_lower(10, 10, 10) == 0.0
    assert epsilon_lower(50, 40, 100, 0.0) == 0.0


def test_p_values_are_binomial_tails_without_delta():
    for guesses, correct, epsilon in [(10, 8, 0.0), (100, 70, 0.5), (30, 30, 2.0), (50, 0, 1.0)]:
        p = 1 / (1 + math.exp(-epsilon))
        assert p_values(guesses, correct, 200, np.array([epsilon]), 0.0)[0] == pytest.approx(
            binom.sf(correct - 1, guesses, p), rel=1e-12
        )


def test_lifting_is_the_best_that_extra_hits_can_do():
    """The largest gain as a linear programme: x_j <= P(B = v - j), sum_j j x_j <= tau."""
    from scipy.optimize import linprog

    guesses, correct, canaries, epsilon, delta = 40, 30, 4000, 0.7, 1e-3
    p = 1 / (1 + math.exp(-epsilon))
    j = np.arange(1, correct + 1)
    tau = canaries * delta / (1 + math.exp(epsilon))
    best = linprog(
        -np.ones(correct),
        A_ub=j[None].astype(float),
        b_ub=[tau],
        bounds=[(0, m) for m in binom.pmf(correct - j, guesses, p)],
    )
    assert p_values(guesses, correct, canaries, np.array([epsilon]), delta)[0] == pytest.approx(
        binom.sf(correct - 1, guesses, p) - best.fun, rel=1e-9
    )


@pytest.mark.slow
def test_one_run_of_randomised_response_is_accused_no_more_often_than_promised():
    """Exactly: all coins answered by randomised response, all guessed; the bound exceeds epsilon in at most 5%."""
    for m, epsilon in [(20, 0.5), (200, 1.0), (300, 3.0)]:
        p = 1 / (1 + math.exp(-epsilon))
        accused = [v for v in range(m + 1) if one_run_epsilon(m, v, m, 0.0) > epsilon]
        assert 0.005 < binom.pmf(accused, m, p).sum() <= 0.05


def test_one_run_of_a_release_that_fails_with_delta():
    """With probability delta each coin is published outright, a (0, delta)-private release; the rest is guessed."""
    m, delta, confidence = 60, 0.02, 0.9
    lucky = [binom.pmf(np.arange(m + 1) - published, m - published, 0.5) for published in range(m + 1)]
    correct = binom.pmf(np.arange(m + 1), m, delta) @ np.array(lucky)
    accused = sum(correct[v] for v in range(m + 1) if one_run_epsilon(m, v, m, delta, confidence) > 0)
    assert correct.sum() == pytest.approx(1.0) and 0 < accused <= 1 - confidence


@settings(max_examples=40)
@given(st.integers(1, 300), st.data())
def test_one_run_bounds_are_monotone(m, data):
    guesses = data.draw(st.integers(1, m))
    correct = data.draw(st.integers(0, guesses))
    found = one_run_epsilon(guesses, correct, m, 1e-5)
    assert found >= one_run_epsilon(guesses, correct, m, 1e-3)
    assert found >= one_run_epsilon(guesses, correct, m, 1e-5, 0.99)
    if correct < guesses:
        assert one_run_epsilon(guesses, correct + 1, m, 1e-5) >= found


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: epsilon_lower(5, 3, 4, 0.0), "false_positives"),
        (lambda: epsilon_lower(1, 3, 4, 1.0), "delta"),
        (lambda: mu_lower(1, 5, 4), "true_positives"),
        (lambda: rate_bounds(1, 2, 4, 1.0), "confidence"),
        (lambda: one_run_epsilon(5, 6, 10, 0.0), "correct"),
        (lambda: one_run_epsilon(11, 6, 10, 0.0), "guesses"),
    ],
)
def test_nonsense_is_refused(call, named):
    with pytest.raises(ValueError, match=f"`{named}`"):
        call()
