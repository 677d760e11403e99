"""The consistency step against the linear programme of the paper, row by row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linprog

from privrl.learners.tabular.consistency import consistent_counts, lowered_to

closed_form, lowered = jax.jit(consistent_counts), jax.jit(lowered_to)


def by_linear_programme(row, visits, half):
    """[qiao-wang eq. 4] as it is printed: minimise t over (x, t)."""
    S = len(row)
    eye, ones = np.eye(S), np.ones((S, 1))
    A = np.block([[eye, -ones], [-eye, -ones], [np.r_[np.ones(S), 0.0]], [np.r_[-np.ones(S), 0.0]]])
    b = np.r_[row, -row, visits + half, half - visits]
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(np.r_[np.zeros(S), 1.0], A, b, bounds=[(0, None)] * (S + 1), options=tight)
    assert found.success
    return found.x[:S], found.fun


def check(row, visits, half):
    """Feasible, as near as the programme's solution, and equal to it.

    The programme has one solution: with a surplus x >= max(x' - t, 0) and these lower bounds already add up to the
    largest sum allowed; with a deficit the same holds from above; otherwise t = 0.
    """
    x = np.asarray(closed_form(jnp.asarray(row), jnp.asarray(visits), half))
    clipped, n = np.maximum(row, 0.0), max(visits, 0.0)
    expected, t = by_linear_programme(clipped, n, half)
    scale = max(1.0, clipped.max(), n)
    assert (x >= 0).all()
    assert abs(x.sum() - n) <= half + 1e-9 * scale
    assert abs(np.abs(x - clipped).max() - t) <= 1e-9 * scale
    np.testing.assert_allclose(x, expected, atol=1e-9 * scale)


ADVERSARIAL = {
    "all zero": (np.zeros(5), 3.0, 1.0),
    "no visits, no width": (np.array([1.0, 2.0, 2.0]), 0.0, 0.0),
    "no width, ties": (np.array([4.0, 4.0, 4.0, 1.0]), 6.0, 0.0),
    "one giant": (np.array([1e6, 0.0, 0.0, 1.0]), 10.0, 2.0),
    "geometric, one entry leaves at a time": (2.0 ** np.arange(20), 1.0, 0.5),
    "exactly at the upper end": (np.array([1.0, 2.0, 3.0]), 4.0, 2.0),
    "exactly at the lower end": (np.array([1.0, 2.0, 3.0]), 8.0, 2.0),
    "deficit": (np.array([0.0, 0.0, 1.0]), 50.0, 2.0),
    "negative noise": (np.array([-5.0, 3.0, -1.0, 7.0]), -2.0, 1.0),
    "one state": (np.array([9.0]), 2.0, 1.0),
}


@pytest.mark.parametrize("case", ADVERSARIAL.values(), ids=ADVERSARIAL.keys())
def test_equals_the_linear_programme_on_adversarial_rows(case):
    check(*case)


@settings(max_examples=60)
@given(
    hnp.arrays(float, 6, elements=st.floats(-20, 60)),
    st.floats(-20, 150),
    st.floats(0, 40),
)
def test_equals_the_linear_programme(row, visits, half):
    check(row, visits, half)


@pytest.mark.parametrize("half", [0.0, 3.0, 40.0])
def test_equals_the_linear_programme_on_noisy_rows(half):
    rng = np.random.default_rng(0)
    counts = rng.multinomial(80, rng.dirichlet(np.ones(40)), 6)
    for row in counts + rng.normal(0, 5, counts.shape):
        check(row, 80 + rng.normal(0, 5), half)


def test_rows_do_not_interfere():
    rng = np.random.default_rng(1)
    rows, visits = rng.normal(2, 5, (3, 4, 12)), rng.normal(15, 10, (3, 4))
    together = np.asarray(closed_form(jnp.asarray(rows), jnp.asarray(visits), 2.0))
    for i in np.ndindex(3, 4):
        alone = np.asarray(closed_form(jnp.asarray(rows[i]), jnp.asarray(visits[i]), 2.0))
        np.testing.assert_allclose(together[i], alone, atol=1e-12)


@settings(max_examples=100)
@given(hnp.arrays(float, (3, 7), elements=st.floats(-50, 50)), st.floats(0, 100))
def test_lowered_to_is_the_projection_onto_a_scaled_simplex(x, total):
    """Oracle: sort, and try every number of entries that may stay positive (negative shifts too)."""
    found = np.asarray(lowered(jnp.asarray(x), jnp.full(3, total)))
    for row, projected in zip(x, found, strict=True):
        ordered = np.sort(row)[::-1]
        shifts = [(ordered[:k].sum() - total) / k for k in range(1, 8)]
        t = max(shifts)  # sum max(x - t, 0) >= total for every shift, with equality at the largest
        np.testing.assert_allclose(projected, np.maximum(row - t, 0), atol=1e-9)
        assert abs(projected.sum() - total) <= 1e-9
