"""The optimistic step against brute force, and its projections against what defines them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.learners.control import optimism as _optimism
from privrl.learners.control.optimism import ConfidenceSet, most_optimistic, starting_points
from privrl.mdp.riccati import optimal_cost

SIZE = jnp.asarray(1.0)
around = jax.jit(ConfidenceSet.around)
contains = jax.jit(lambda within, turned: within.contains(turned))
stretched = jax.jit(lambda within, D: jax.vmap(within._towards_centre)(within.centre[None] + 10 * D))


def cost_of(n, d, R=0.1, horizon=5):
    def cost(Theta):
        W = 0.05**2 / n * jnp.eye(n)
        return optimal_cost(Theta[:n].T, Theta[n:].T, jnp.eye(n), R * jnp.eye(d), jnp.eye(n) / n, W, horizon)

    return cost


def rotation(rng, p):
    return np.linalg.qr(rng.normal(size=(p, p)))[0]


def random_set(rng, p, n, spread=(0.0, 4.0), radius=(-0.5, 1.5), reach=1.2):
    """An estimate that may lie outside the unit ball, a badly conditioned V, and radii from tiny to all-embracing."""
    U = rotation(rng, p)
    V = U @ np.diag(10.0 ** rng.uniform(*spread, p)) @ U.T
    estimate = rng.normal(size=(p, n))
    estimate *= reach * rng.uniform() / np.linalg.norm(estimate)
    return jnp.asarray(estimate), jnp.asarray((V + V.T) / 2), jnp.asarray(10.0 ** rng.uniform(*radius))


def members(rng, within, count):
    """Points of a set: random directions from its centre, stretched to the boundary or inside it."""
    p, n = within.centre.shape
    D = rng.normal(size=(count, p, n)) / np.sqrt(np.asarray(within.metric))[:, None]
    points = np.asarray(stretched(within, jnp.asarray(D)))
    share = rng.uniform(size=(count, 1, 1)) ** 0.2
    return np.asarray(within.centre) + share * (points - np.asarray(within.centre))


def solver(n, d, **settings):
    cost = cost_of(n, d, **settings)

    @jax.jit
    def solve(estimate, V, radius):
        within = ConfidenceSet.around(estimate, V, radius, SIZE)
        Theta = most_optimistic(cost, within, n)
        return Theta, cost(Theta), within.contains(within.turned(Theta)), within.parameters(within.centre)

    return solve


@pytest.fixture(scope="module")
def scalar():
    return solver(1, 1)


@pytest.fixture(scope="module")
def grid():
    """Every scalar system on a grid of the unit disc, and its cost. Inputs are cheap, so that B matters."""
    a, b = np.meshgrid(np.linspace(-1, 1, 401), np.linspace(-1, 1, 401), indexing="ij")
    points = np.stack([a.ravel(), b.ravel()], axis=1)
    points = points[np.linalg.norm(points, axis=1) <= 1]
    return points, np.asarray(jax.jit(jax.vmap(cost_of(1, 1)))(jnp.asarray(points)[:, :, None]))


def scalar_instances(count=100):
    """Half of them anything; half a set that is long in B and crosses B = 0 with A changing on the way.

    Then the estimate of B has the wrong sign as often as not, and the best member may be at either end.
    """
    rng = np.random.default_rng(7)
    for i in range(count):
        estimate, V, radius = random_set(rng, 2, 1)
        if i % 2:
            angle, long = rng.uniform(-0.7, 0.7), 10.0 ** rng.uniform(0.0, 2.0)
            U = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
            V = jnp.asarray(U @ np.diag([1e4, long]) @ U.T)
            estimate = jnp.asarray([[rng.uniform(0.4, 0.8)], [rng.uniform(-0.2, 0.2)]])
            radius = jnp.asarray(np.sqrt(long) * rng.uniform(0.2, 0.9))
        yield estimate, V, radius


def gaps(solve, grid):
    """How much dearer than the cheapest grid point the solution is, relative to it, on random instances."""
    points, costs = grid
    found = []
    for estimate, V, radius in scalar_instances():
        _, cost, member, centre = solve(estimate, V, radius)
        assert member
        x, y = (points - np.asarray(centre)[:, 0]).T
        (a, b), (_, c) = np.asarray(V)
        inside = a * x**2 + 2 * b * x * y + c * y**2 <= float(radius) ** 2
        if inside.any():
            found.append(float(cost) / costs[inside].min() - 1.0)
    assert len(found) > 80
    return np.array(found)


def test_within_a_thousandth_of_brute_force_on_scalar_instances(scalar, grid):
    assert gaps(scalar, grid).max() < 1e-3


@pytest.mark.slow
def test_without_flipped_signs_it_would_not_be(grid, monkeypatch):
    """The instances are hard enough to need more starts than the estimate, 0 and the estimate without A."""
    monkeypatch.setattr(_optimism, "starting_points", lambda *given: starting_points(*given)[:3])
    assert gaps(solver(1, 1), grid).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d"), [(2, 1), (2, 2)])
def test_no_sampled_member_is_cheaper(n, d):
    rng = np.random.default_rng(3)
    solve, costs = solver(n, d, R=0.65), jax.jit(jax.vmap(cost_of(n, d, R=0.65)))
    for _ in range(12):
        given = random_set(rng, n + d, n, spread=(0.0, 3.0))
        within = around(*given, SIZE)
        sampled = np.asarray(within.basis) @ members(rng, within, 4000)
        assert float(solve(*given)[1]) <= float(costs(jnp.asarray(sampled)).min()) * (1 + 1e-3)


def test_eight_starts_at_least_with_the_ones_that_matter():
    estimate = jnp.asarray([[0.5, 0.1], [0.2, 0.4], [0.3, -0.2]])
    V = random_set(np.random.default_rng(0), 3, 2)[1]
    within = around(estimate, V, jnp.asarray(0.5), SIZE)
    points = np.asarray(within.basis) @ np.asarray(starting_points(within, 2))
    assert len(points) >= 8
    A, B = np.asarray(estimate[:2]), np.asarray(estimate[2:])
    for wanted in ((A, B), (0 * A, 0 * B), (0 * A, B), (A, -B)):
        assert any(np.allclose(point, np.concatenate(wanted)) for point in points)


def test_zero_is_the_answer_wherever_it_is_allowed(scalar):
    V = jnp.diag(jnp.asarray([50.0, 3.0]))
    estimate = jnp.asarray([[0.4], [-0.2]])
    length = float(jnp.sqrt((estimate * (V @ estimate)).sum()))
    np.testing.assert_array_equal(scalar(estimate, V, jnp.asarray(1.01 * length))[0], np.zeros((2, 1)))
    assert float(jnp.abs(scalar(estimate, V, jnp.asarray(0.99 * length))[0]).max()) > 1e-3


def test_an_input_that_was_never_tried_is_tried(scalar):
    """At B = 0 the slope in B is zero; the best member of a set that is wide in B is not there."""
    Theta, *_ = scalar(jnp.asarray([[0.8], [0.0]]), jnp.diag(jnp.asarray([1e4, 1.0])), jnp.asarray(0.3))
    assert 0.29 < abs(float(Theta[1, 0])) <= 0.3 * (1 + 1e-9)


@pytest.mark.parametrize(("p", "n"), [(2, 1), (3, 2), (6, 4)])
def test_projections_are_the_nearest_members(p, n):
    """P is the projection of Y exactly if <Y - P, Z - P> <= 0 in the metric for all members Z."""
    rng = np.random.default_rng(p)
    project = jax.jit(lambda given, Y: ConfidenceSet.around(*given, SIZE).project(Y))
    for _ in range(25):
        given = random_set(rng, p, n)
        within = around(*given, SIZE)
        Y = jnp.asarray(rng.normal(size=(p, n)) * 10.0 ** rng.uniform(-1, 1))
        P = project(given, Y)
        assert contains(within, P)
        Z = members(rng, within, 300)
        g = np.asarray(within.metric)[:, None]
        away = np.asarray(Y - P)
        angle = (g * away * (Z - np.asarray(P))).sum(axis=(1, 2))
        assert angle.max() <= 0.02 * np.sqrt((g * away**2).sum()) + 1e-9
        np.testing.assert_allclose(project(given, P), P, atol=1e-6)


def test_an_estimate_outside_the_ball_loses_no_parameter():
    """Whatever is in the ball and near the estimate is as near to the centre, which is in the ball."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        estimate, V, _ = random_set(rng, 3, 2, reach=4.0)
        within = around(estimate, V, jnp.asarray(1.0), SIZE)
        centre = np.asarray(within.parameters(within.centre))
        assert np.linalg.norm(centre) <= 1 + 1e-9
        truth = rng.normal(size=(200, 3, 2))
        truth /= np.maximum(np.linalg.norm(truth, axis=(1, 2), keepdims=True), 1.0)
        before, after = (np.einsum("kpn,pq,kqn->k", truth - c, V, truth - c) for c in (np.asarray(estimate), centre))
        assert (after <= before * (1 + 1e-6)).all()
