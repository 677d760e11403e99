"""Choosing: the noisy maximum has exactly the law that it claims, and its cost is that of its group."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.contracts.release import Declared
from privrl.privacy.accounting.budget import Budget, BudgetError
from privrl.privacy.accounting.certificate import cost_of
from privrl.privacy.accounting.composition import calibrate, epsilon_of
from privrl.privacy.accounting.events import Event, Request
from privrl.privacy.accounting.gdp import gdp_mu
from privrl.privacy.noise.maximum import MaximumNoise, noisy_maximum
from privrl.privacy.noise.words import Words


def probabilities(scores, scale):
    """The law of the noisy maximum, by all sets of candidates that may stay."""
    stay = np.exp((np.asarray(scores, float) - max(scores)) / scale)
    law = np.zeros(len(scores))
    for kept in itertools.product((0, 1), repeat=len(scores)):
        if any(kept):
            chance = math.prod(p if k else 1.0 - p for p, k in zip(stay, kept, strict=True))
            law += chance * np.asarray(kept) / sum(kept)
    return law


def test_the_law_is_that_of_the_largest_of_exponentials():
    """Candidate j wins with density e^-x at noise x if all others are below u_j + x: integrated numerically."""
    scores, scale = np.array([3.0, 5.0, 4.5, 0.0]), 2.0
    x = (np.arange(400_000) + 0.5) * 1e-4
    for j, expected in enumerate(probabilities(scores, scale)):
        others = np.delete(scores, j)[:, None]
        below = 1.0 - np.exp(-np.maximum(scores[j] + x - others, 0.0) / scale)
        density = np.exp(-x / scale) / scale * below.prod(axis=0)
        assert density.sum() * 1e-4 == pytest.approx(expected, abs=2e-5)


def test_draws_have_this_law():
    words, scores, draws = Words(bytes(32)), np.array([7, 12, 10, 12, -40], np.int64), 4000
    found = np.bincount([int(noisy_maximum(words, scores, 5)[0]) for _ in range(draws)], minlength=5) / draws
    assert np.abs(found - probabilities(scores, 5)).max() < 4 * math.sqrt(0.25 / draws)
    assert noisy_maximum(words, np.array([2**62, -(2**62)], np.int64), 1).tolist() == [0]  # exponents beyond 64 bits


def test_no_pair_of_neighbours_is_told_apart_by_more_than_epsilon():
    """All changes of spread at most R of many score vectors."""
    rng, scale, R = np.random.default_rng(0), 3.0, 4
    worst = 0.0
    for _ in range(40):
        scores = rng.integers(-6, 7, 3)
        before = probabilities(scores, scale)
        for change in itertools.product(range(R + 1), repeat=3):
            worst = max(worst, np.abs(np.log(probabilities(scores + np.array(change), scale) / before)).max())
    assert 0.8 * R / scale < worst <= R / scale * (1 + 1e-12)


def test_seeded_noise_has_the_same_law():
    law, draws = MaximumNoise(2.0, (3,)), 20_000
    scores = jnp.asarray([1.0, 0.0, 2.5])
    white = jax.random.laplace(jax.random.key(3), (draws, 3))
    found = np.bincount(np.asarray(jax.vmap(lambda w: jnp.argmax(scores + law.scaled(w)))(white)), minlength=3) / draws
    assert np.abs(found - probabilities(np.asarray(scores), 2.0)).max() < 4 * math.sqrt(0.25 / draws)


class TestAccounting:
    """The choice has the budget's epsilon for itself, and the cost is that of the worst group."""

    requests = (
        Request("a", "gaussian", 0.3, group="learn"),
        Request("b", "gaussian", 0.7, group="learn"),
        Request("choice", "exponential", group="choose"),
        Request("c", "gaussian", group="evaluate"),
    )

    @pytest.mark.parametrize("budget", [Budget.of(epsilon=1.0, delta=1e-6), Budget.of(rho=0.1)])
    def test_the_maximum_over_groups(self, budget):
        events = calibrate(self.requests, budget)
        assert [e.name for e in events] == ["a", "b", "choice", "c"]
        without = calibrate([r for r in self.requests if r.name != "choice"], budget)
        assert [e for e in events if e.name != "choice"] == list(without)  # nobody pays for the choice of others
        choice = events[2].parameter
        assert choice == pytest.approx(1.0 if budget.rho is None else math.sqrt(0.2), rel=1e-11) and choice < 1.0
        cost = cost_of(events, 1e-6, "replace-one")
        alone = cost_of(without, 1e-6, "replace-one")
        assert cost["epsilon"] == pytest.approx(max(alone["epsilon"], choice))
        assert cost["rho"] == pytest.approx(max(alone["rho"], choice**2 / 2))
        if budget.rho is None:
            assert alone["mu"] == pytest.approx(gdp_mu(1.0, 1e-6)) and cost["epsilon"] <= 1.0

    def test_pure_budgets(self):
        events = calibrate(
            [Request("sum", "laplace", group="a"), Request("choice", "exponential", group="b")], Budget.of(epsilon=2.0)
        )
        assert epsilon_of(events, 0.0) == pytest.approx(2.0) and epsilon_of(events, 0.0) <= 2.0
        assert epsilon_of([Event("choice", "exponential", 2.0)], 1e-6) == 2.0

    def test_a_choice_is_alone(self):
        for other in (Request("sum", "gaussian"), Request("sum", "gaussian", group="choose")):
            with pytest.raises(BudgetError, match="a `group` of its own"):
                calibrate([Request("choice", "exponential", group="choose"), other], Budget.of(epsilon=1.0, delta=1e-6))
        with pytest.raises(ValueError, match="made once"):
            Declared("choice", access="choice", times=2)
