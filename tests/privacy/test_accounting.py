import itertools
import json
import math
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from privrl.contracts.statistic import Adjacency
from privrl.privacy.accounting.composition import calibrate, epsilon_of, mu_of, rho_of
from privrl.privacy.accounting.events import Event, Request
from privrl.privacy.accounting.gdp import gdp_epsilon, gdp_mu, log_gdp_delta, zcdp_epsilon
from privrl.privacy.accounting.losses import loss_distribution
from privrl.privacy.accounting.privacy_budget import Budget, BudgetError

# ------------------------------------------------------------------------------------------------ Gaussian, exactly


@pytest.mark.parametrize("delta", [1e-1, 1e-3, 1e-5, 1e-9, 1e-15, 1e-30, 1e-200])
@pytest.mark.parametrize("mu", [1e-3, 1e-2, 0.099, 0.101, 0.5, 1.0, 4.0, 10.0, 30.0, 100.0])
def test_gaussian_epsilon_is_that_of_dp_accounting(mu: float, delta: float) -> None:
    expected = dp_accounting.get_epsilon_gaussian(1 / mu, delta)
    assert gdp_epsilon(mu, delta) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-10])
@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 5.0, 30.0])
def test_gaussian_epsilon_is_that_of_the_loss_distribution(mu: float, delta: float) -> None:
    # At a grid of 3e-4 standard deviations of the loss the discretisation itself is off by up to some 1e-7 (times the
    # number of standard deviations per epsilon), always upwards.
    losses = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=3e-4 * mu)
    exact = gdp_epsilon(mu, delta)
    if exact == 0:
        assert losses.get_delta_for_epsilon(0.0) <= delta * (1 + 1e-6)
    else:
        assert losses.get_epsilon_for_delta(delta) == pytest.approx(exact, rel=1e-6)


def test_gaussian_delta_keeps_its_digits_everywhere() -> None:
    mpmath = pytest.importorskip("mpmath")
    checked = 0
    with mpmath.workdps(400):
        for mu in (1e-3, 0.03, 0.0999, 0.1001, 1.0, 9.9, 10.2, 100.0):
            for epsilon in (0.0, 1e-4, 1e-2, 0.5, 3.0, 50.0, 1000.0):
                m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
                exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
                if exact > 1e-300:
                    checked += 1
                    assert math.exp(log_gdp_delta(mu, epsilon)) == pytest.approx(float(exact), rel=1e-11)
                else:
                    assert log_gdp_delta(mu, epsilon) <= math.log(1e-300)
    assert checked > 30


def test_gaussian_limits() -> None:
    assert math.exp(log_gdp_delta(1.0, 0.0)) == pytest.approx(2 * norm.cdf(0.5) - 1, rel=1e-14)
    assert gdp_epsilon(0.0, 0.0) == 0
    assert gdp_epsilon(1.0, 0.0) == math.inf
    assert gdp_epsilon(math.inf, 0.5) == math.inf
    assert gdp_epsilon(1e-3, 0.1) == 0
    assert gdp_mu(0.0, 1e-9) == pytest.approx(1e-9 * math.sqrt(2 * math.pi), rel=1e-6)


@settings(max_examples=300, deadline=None)
@given(
    log_epsilon=st.floats(math.log(1e-4), math.log(1e3)),
    log_delta=st.floats(math.log(1e-300), math.log(0.5)),
)
def test_a_calibrated_gaussian_spends_the_budget_and_not_more(log_epsilon: float, log_delta: float) -> None:
    epsilon, delta = math.exp(log_epsilon), math.exp(log_delta)
    spent = gdp_epsilon(gdp_mu(epsilon, delta), delta)
    assert 0.999 * epsilon <= spent <= epsilon


@pytest.mark.parametrize(("rho", "simple", "exact"), [(0.1, 2.246, 1.760), (1.0, 7.786, 6.573), (10.0, 31.46, 28.37)])
def test_both_conversions_side_by_side(rho: float, simple: float, exact: float) -> None:
    assert float(f"{zcdp_epsilon(rho, 1e-5):.4g}") == simple
    assert float(f"{gdp_epsilon(math.sqrt(2 * rho), 1e-5):.4g}") == exact


# ------------------------------------------------------------------------------------------------------ Composition


def gaussian(mu: float, times: int = 1, group: str | None = None, sampling: float = 1.0) -> Event:
    return Event("sum", "gaussian", mu, times, group, sampling)


def delta_at(events: list[Event], epsilon: float, adjacency: Adjacency = "replace-one") -> float:
    """The delta at `epsilon` of the losses from which `epsilon_of` reads epsilon."""
    losses, slack = loss_distribution(events, adjacency)
    return float(losses.get_delta_for_epsilon(epsilon)) + slack


def test_nothing_costs_nothing_and_no_noise_costs_everything() -> None:
    assert epsilon_of([], 1e-6) == 0
    assert rho_of([]) == 0
    assert mu_of([]) == 0
    exposed = [gaussian(1.0), Event("raw", "none", math.inf)]
    assert epsilon_of(exposed, 1e-6) == math.inf
    assert epsilon_of(exposed, 0.0) == math.inf
    assert rho_of(exposed) == math.inf
    assert mu_of(exposed) is None
    assert epsilon_of([Event("still", "laplace", 0.0)], 1e-6) == 0


def test_gaussian_releases_compose_exactly() -> None:
    events = [gaussian(0.3, times=4), gaussian(0.8)]
    mu = math.sqrt(4 * 0.09 + 0.64)
    assert mu_of(events) == pytest.approx(mu, rel=1e-14)
    assert rho_of(events) == pytest.approx(mu**2 / 2, rel=1e-14)
    assert epsilon_of(events, 1e-5) == pytest.approx(dp_accounting.get_epsilon_gaussian(1 / mu, 1e-5), rel=1e-9)
    assert epsilon_of(events, math.exp(log_gdp_delta(mu, 2.0))) == pytest.approx(2.0, rel=1e-9)
    assert epsilon_of(events, 0.0) == math.inf


def test_pure_releases_add_up_at_delta_zero() -> None:
    events = [
        Event("noise", "laplace", 0.2, times=3),
        Event("answers", "randomised-response", 0.5, symbols=4),
        Event("other", "pure", 0.1),
    ]
    assert epsilon_of(events, 0.0) == pytest.approx(1.2, rel=1e-14)
    assert rho_of(events) == pytest.approx((3 * 0.04 + 0.25 + 0.01) / 2, rel=1e-14)
    assert mu_of(events) is None


def test_disjoint_groups_cost_their_maximum() -> None:
    shared, left, right = gaussian(0.5), gaussian(1.0, group="left"), gaussian(0.4, times=3, group="right")
    assert mu_of([left, shared, right]) == pytest.approx(math.sqrt(0.25 + 1.0), rel=1e-14)
    assert epsilon_of([left, shared, right], 1e-6) == epsilon_of([left, shared], 1e-6)
    assert rho_of([left, shared, right]) == pytest.approx(0.625, rel=1e-14)
    noisy = Event("noise", "laplace", 7.0, group="third")
    assert epsilon_of([left, shared, noisy], 1e-6) == epsilon_of([shared, noisy], 1e-6)
    assert epsilon_of([left, noisy], 0.0) == math.inf
    assert mu_of([left, noisy]) is None


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_mixtures_agree_with_the_accountant_of_dp_accounting(delta: float) -> None:
    events = [gaussian(0.25, times=8), Event("noise", "laplace", 0.3, times=5), Event("once", "laplace", 1.1)]
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp_accounting.GaussianDpEvent(1 / 0.25), 8)
    accountant.compose(dp_accounting.LaplaceDpEvent(1 / 0.3), 5)
    accountant.compose(dp_accounting.LaplaceDpEvent(1 / 1.1))
    epsilon = epsilon_of(events, delta)
    assert epsilon == pytest.approx(accountant.get_epsilon(delta), rel=2e-5)
    assert epsilon < gdp_epsilon(0.25 * math.sqrt(8), delta) + 2.6
    assert delta_at(events, epsilon) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("symbols", [2, 3, pytest.param(20, marks=pytest.mark.slow)])
def test_randomised_response_lies_between_the_two_roundings_of_dp_accounting(symbols: int) -> None:
    epsilon, delta, times = 0.7, 1e-5, 12
    noise = symbols / (math.exp(epsilon) + symbols - 1)  # (1 - noise) + noise/k = e^eps/(e^eps + k - 1)
    bounds = []
    for pessimistic in (False, True):
        losses = pld.from_randomized_response(noise, symbols, pessimistic, value_discretization_interval=2e-5)
        bounds.append(losses.self_compose(times).get_epsilon_for_delta(delta))
    ours = epsilon_of([Event("answers", "randomised-response", epsilon, times, symbols=symbols)], delta)
    assert bounds[1] - bounds[0] < 5e-4
    assert bounds[0] <= ours <= bounds[1]


def binomial_delta(parameter: float, times: int, epsilon: float) -> float:
    """Composition of the worst epsilon-DP pair: the loss is (2 J - n) parameter with J binomial."""
    j = np.arange(times + 1)
    loss = (2 * j - times) * parameter
    log_mass = binom.logpmf(j, times, 1 / (1 + math.exp(-parameter)))
    above = loss > epsilon
    return float(np.sum(np.exp(log_mass[above]) * -np.expm1(epsilon - loss[above])))


@pytest.mark.parametrize(
    ("parameter", "times"), [(2.0, 1), (0.5, 10), (0.01, 1000), pytest.param(1e-3, 1_000_007, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_pure_releases_with_a_delta_are_bounded_from_above_and_tightly(
    parameter: float, times: int, delta: float
) -> None:
    event = Event("any", "pure", parameter, times)
    epsilon = epsilon_of([event], delta)
    assert binomial_delta(parameter, times, epsilon) <= delta
    assert binomial_delta(parameter, times, epsilon * 0.999) > delta
    assert epsilon <= times * parameter


def test_one_laplace_release_has_its_closed_form() -> None:
    for delta in (0.1, 1e-4, 1e-8):
        exact = 1.5 + 2 * math.log1p(-delta)
        ours = epsilon_of([Event("noise", "laplace", 1.5)], delta)
        assert exact - 1e-12 <= ours <= exact * (1 + 1e-5)


def test_laplace_noise_on_a_vector_is_worst_along_one_coordinate() -> None:
    for share in (0.1, 0.5, 0.8):
        parts = [Event("first", "laplace", 2.0 * share), Event("second", "laplace", 2.0 * (1 - share))]
        for epsilon in np.linspace(0.0, 1.99, 12):
            whole = -math.expm1((epsilon - 2.0) / 2)
            assert delta_at(parts, float(epsilon)) <= whole * (1 + 1e-5)


def test_tiny_deltas_fall_back_on_basic_composition() -> None:
    events = [gaussian(0.5), Event("noise", "laplace", 0.25, times=2)]
    assert epsilon_of(events, 1e-40) == pytest.approx(gdp_epsilon(0.5, 1e-40) + 0.5, rel=1e-12)


# --------------------------------------------------------------------------------------------------------- Sampling


def hockey_stick(alpha: float, q: float, a: np.ndarray, b: np.ndarray) -> float:
    """H_alpha between (1-q) N(0, I) + q N(a, I) and the same with b, in the plane, by the midpoint rule."""
    step = 0.02
    x = np.arange(-9, 9, step) + step / 2
    normal = norm.pdf

    def mixture(c: np.ndarray) -> np.ndarray:
        centre = np.outer(normal(x), normal(x))
        return (1 - q) * centre + q * np.outer(normal(x - c[0]), normal(x - c[1]))

    return float(np.sum(np.maximum(mixture(a) - alpha * mixture(b), 0)) * step * step)


@pytest.mark.parametrize(
    ("q", "radius"), [(0.1, 1.5), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0.1, 0.5), (0.6, 1.0)))]
)
def test_opposite_terms_are_the_worst_under_replace_one(q: float, radius: float) -> None:
    one, other = np.array([radius, 0.0]), np.array([0.0, radius])
    pairs = [
        (radius * s * one / radius, radius * t * one / radius) for s in (-1, -0.4, 0.0, 0.7, 1) for t in (-1, 0.5, 1)
    ]
    pairs += [(one, other), (0.5 * one, other), (one, 0.3 * other), (one, -0.6 * one + 0.8 * other), (other, -one)]
    event = gaussian(2 * radius, sampling=q)
    for epsilon in (0.0, 0.05, 0.4, 1.2):
        alpha = math.exp(epsilon)
        worst = hockey_stick(alpha, q, one, -one)
        for a, b in pairs:
            assert hockey_stick(alpha, q, a, b) <= worst + 1e-9
        ours = delta_at([event], epsilon)
        assert ours >= worst * (1 - 1e-4) - 1e-9  # the midpoint rule is off by about 1e-5 of the value
        assert ours <= worst * (1 + 2e-3) + 1e-9


def test_the_distance_of_two_terms_alone_does_not_bound_a_sampled_release() -> None:
    # Why an event asks for twice the norm under replace-one: these terms are 1.4 apart, each of norm 2.1.
    q, half, away = 0.2, 0.7, 2.0
    a, b = np.array([half, away]), np.array([-half, away])
    at_distance = delta_at([gaussian(2 * half, sampling=q)], 0.5)
    at_norms = delta_at([gaussian(2 * math.hypot(half, away), sampling=q)], 0.5)
    assert at_distance < 0.9 * hockey_stick(math.exp(0.5), q, a, b)
    assert hockey_stick(math.exp(0.5), q, a, b) < at_norms


def add_remove_delta(mu: float, q: float, epsilon: float) -> float:
    """Closed form of the sampled Gaussian against the Gaussian, the worse of the two orders."""
    x = (math.log1p(math.expm1(epsilon) / q) + mu * mu / 2) / mu
    remove = (1 - q) * norm.sf(x) + q * norm.sf(x - mu) - math.exp(epsilon) * norm.sf(x)
    add = 0.0
    if math.exp(-epsilon) > 1 - q:
        x = (math.log1p(math.expm1(-epsilon) / q) + mu * mu / 2) / mu
        add = norm.cdf(x) - math.exp(epsilon) * ((1 - q) * norm.cdf(x) + q * norm.cdf(x - mu))
    return max(remove, add)


@pytest.mark.parametrize(("mu", "q"), [(0.5, 0.01), (1.0, 0.2), (3.0, 0.7)])
def test_sampling_under_add_remove_has_its_closed_form(mu: float, q: float) -> None:
    for epsilon in (0.01, 0.2, 1.0):
        exact = add_remove_delta(mu, q, epsilon)
        ours = delta_at([gaussian(mu, sampling=q)], epsilon, "add-remove")
        assert exact * (1 - 1e-9) <= ours <= exact * (1 + 2e-3) + 1e-12


def test_sampled_compositions_agree_with_the_accountant_of_dp_accounting() -> None:
    relation = dp_accounting.NeighboringRelation
    for adjacency, neighbours, mu in (
        ("add-remove", relation.ADD_OR_REMOVE_ONE, 0.8),
        ("replace-one", relation.REPLACE_ONE, 1.6),  # their noise multiplier is for one term of norm 1
    ):
        accountant = PLDAccountant(neighbours, value_discretization_interval=1e-4)
        step = dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(1 / 0.8))
        accountant.compose(step, 300)
        ours = epsilon_of([gaussian(mu, times=300, sampling=0.02)], 1e-6, adjacency=adjacency)
        assert ours == pytest.approx(accountant.get_epsilon(1e-6), rel=5e-4)


def test_drawing_everybody_is_not_sampling() -> None:
    for adjacency in ("replace-one", "add-remove"):
        everybody: Any = epsilon_of([gaussian(0.4, 9, sampling=1.0)], 1e-6, adjacency=adjacency)
        assert everybody == gdp_epsilon(1.2, 1e-6)
        almost = epsilon_of([gaussian(0.4, 9, sampling=1 - 1e-7)], 1e-6, adjacency=adjacency)
        assert almost == pytest.approx(everybody, rel=1e-4)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_seeing_fewer_people_costs_less(adjacency: Any) -> None:
    costs = [
        epsilon_of([gaussian(0.9, times=40, sampling=q)], 1e-6, adjacency=adjacency)
        for q in (1e-4, 1e-3, 0.01, 0.1, 0.3, 0.7, 0.95, 1.0)
    ]
    assert all(less < more for less, more in itertools.pairwise(costs))
    assert costs[0] < 0.02 * costs[-1]


def test_rho_of_a_sampled_release_is_not_amplified() -> None:
    assert rho_of([gaussian(0.9, times=2, sampling=0.1)]) == pytest.approx(0.81, rel=1e-14)
    assert mu_of([gaussian(0.9, sampling=0.1)]) is None


# ------------------------------------------------------------------------------------------------------ Calibration

shares = st.lists(
    st.tuples(st.floats(0.01, 100.0), st.integers(1, 300), st.sampled_from([None, "left", "right"])),
    min_size=1,
    max_size=6,
)


def requests_of(items: list[tuple[float, int, str | None]], mechanisms: list[str]) -> list[Request]:
    return [
        Request(
            f"r{i}",
            mechanisms[i % len(mechanisms)],  # type: ignore[arg-type]
            weight,
            times,
            group,
            symbols=5 if mechanisms[i % len(mechanisms)] == "randomised-response" else None,
        )
        for i, (weight, times, group) in enumerate(items)
    ]


def assert_shape(requests: list[Request], events: tuple[Event, ...], power: float) -> None:
    """Every parameter is the same multiple of (weight/times)^power, and nothing else changed."""
    factors = [e.parameter / (r.weight / r.times) ** power for r, e in zip(requests, events, strict=True)]
    assert factors == pytest.approx([factors[0]] * len(factors), rel=1e-12)
    for request, event in zip(requests, events, strict=True):
        assert request.at(event.parameter) == event


@settings(max_examples=60, deadline=None)
@given(items=shares, epsilon=st.floats(0.01, 50.0), log10_delta=st.floats(-12, -2))
def test_gaussian_requests_spend_an_approximate_budget(items: Any, epsilon: float, log10_delta: float) -> None:
    budget = Budget.of(epsilon=epsilon, delta=10**log10_delta)
    requests = requests_of(items, ["gaussian"])
    events = calibrate(requests, budget)
    assert_shape(requests, events, 0.5)
    assert 0.999 * epsilon <= epsilon_of(events, budget.delta) <= epsilon


@settings(max_examples=60, deadline=None)
@given(items=shares, epsilon=st.floats(0.01, 50.0))
def test_pure_requests_spend_a_pure_budget(items: Any, epsilon: float) -> None:
    requests = requests_of(items, ["laplace", "randomised-response", "pure"])
    events = calibrate(requests, Budget.of(epsilon=epsilon))
    assert_shape(requests, events, 1.0)
    assert 0.999 * epsilon <= epsilon_of(events, 0.0) <= epsilon


@settings(max_examples=60, deadline=None)
@given(items=shares, rho=st.floats(1e-4, 50.0))
def test_all_requests_spend_a_concentrated_budget(items: Any, rho: float) -> None:
    requests = requests_of(items, ["gaussian", "laplace", "pure"])
    events = calibrate(requests, Budget.of(rho=rho))
    assert_shape(requests, events, 0.5)
    assert 0.999 * rho <= rho_of(events) <= rho


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(items=shares, epsilon=st.floats(0.05, 20.0), log10_delta=st.floats(-9, -3))
def test_mixed_requests_spend_an_approximate_budget(items: Any, epsilon: float, log10_delta: float) -> None:
    budget = Budget.of(epsilon=epsilon, delta=10**log10_delta)
    requests = requests_of(items, ["laplace", "gaussian", "randomised-response"])
    events = calibrate(requests, budget)
    assert_shape(requests, events, 0.5)
    assert 0.999 * epsilon <= epsilon_of(events, budget.delta) <= epsilon


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("sampling", "times"), [pytest.param(0.01, 500, marks=pytest.mark.slow), (0.5, 10)])
def test_sampled_requests_spend_the_budget(adjacency: Any, sampling: float, times: int) -> None:
    requests = [Request("steps", "gaussian", 3.0, times, sampling=sampling), Request("counts", "gaussian")]
    events = calibrate(requests, Budget.of(epsilon=1.0, delta=1e-6), adjacency)
    assert_shape(requests, events, 0.5)
    assert 0.999 <= epsilon_of(events, 1e-6, adjacency=adjacency) <= 1.0
    unsampled = calibrate(
        [Request("steps", "gaussian", 3.0, times), Request("counts", "gaussian")], Budget.of(epsilon=1.0, delta=1e-6)
    )
    assert events[0].parameter > unsampled[0].parameter


def test_a_delta_never_makes_pure_requests_noisier() -> None:
    for times, gain in ((1, 0.9995), (400, 3.0)):
        request = [Request("answers", "pure", times=times)]
        with_delta = calibrate(request, Budget.of(epsilon=2.0, delta=1e-6))[0].parameter
        without = calibrate(request, Budget.of(epsilon=2.0))[0].parameter
        assert with_delta >= gain * without


def test_groups_are_calibrated_to_the_worst_one() -> None:
    budget = Budget.of(epsilon=1.0, delta=1e-6)
    requests = [
        Request("shared", "gaussian", 1.0),
        Request("left", "gaussian", 3.0, group="left"),
        Request("right", "gaussian", 2.0, times=2, group="right"),
    ]
    shared, left, right = calibrate(requests, budget)
    mu = gdp_mu(1.0, 1e-6)
    assert shared.parameter == pytest.approx(mu * math.sqrt(1 / 4), rel=1e-12)
    assert left.parameter == pytest.approx(mu * math.sqrt(3 / 4), rel=1e-12)
    assert right.parameter == pytest.approx(mu * math.sqrt(2 / 4 / 2), rel=1e-12)


def test_gaussian_noise_cannot_be_bought_with_a_pure_budget() -> None:
    with pytest.raises(BudgetError, match=r"`moment` requests Gaussian noise.*Give a `delta`.*Laplace"):
        calibrate([Request("moment", "gaussian")], Budget.of(epsilon=1.0))
    assert calibrate([], Budget.of(epsilon=1.0)) == ()


# ------------------------------------------------------------------------------------------------- Events as data


def test_events_survive_json() -> None:
    for event in (
        gaussian(1 / 3, times=7, group="left", sampling=0.1),
        Event("answers", "randomised-response", 1.5, symbols=4),
        Event("raw", "none", math.inf),
    ):
        content = json.loads(json.dumps(event.to_json(), allow_nan=False))
        assert Event(**content | {"parameter": float(content["parameter"])}) == event


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mechanism": "cauchy"}, "`mechanism` of event `sum` is 'cauchy'; use one of `gaussian`"),
        ({"parameter": -1.0}, "`parameter` of event `sum` is -1.0"),
        ({"parameter": math.nan}, "`parameter` of event `sum` is nan"),
        ({"mechanism": "none"}, "without noise has an infinite one"),
        ({"times": 0}, "`times` of event `sum` is 0"),
        ({"sampling": 0.0}, r"`sampling` of event `sum` is 0.0; it must lie in \(0, 1\]"),
        ({"sampling": 1.5}, "`sampling` of event `sum` is 1.5"),
        ({"mechanism": "laplace", "sampling": 0.5}, "for Gaussian noise only"),
        ({"mechanism": "randomised-response"}, "`symbols` of event `sum` is None"),
        ({"mechanism": "randomised-response", "symbols": 1}, "`symbols` of event `sum` is 1"),
        ({"symbols": 3}, "only randomised response has symbols"),
    ],
)
def test_events_that_mean_nothing_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Event(**{"name": "sum", "mechanism": "gaussian", "parameter": 1.0} | fields)


def test_requests_and_queries_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="`weight` of request `sum` is 0"):
        Request("sum", "gaussian", 0.0)
    with pytest.raises(ValueError, match="without noise, which no budget pays for"):
        Request("sum", "none")
    with pytest.raises(ValueError, match="`symbols` of event `sum` is None"):
        Request("sum", "randomised-response")
    for delta in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="`delta` is"):
            epsilon_of([gaussian(1.0)], delta)
        with pytest.raises(ValueError, match="`delta` is"):
            gdp_mu(1.0, delta)
    for epsilon in (-0.1, math.nan):
        with pytest.raises(ValueError, match="`epsilon` is"):
            gdp_mu(epsilon, 1e-6)
    with pytest.raises(ValueError, match="`mu` is -1"):
        gdp_epsilon(-1.0, 1e-6)
