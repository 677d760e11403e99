import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privrl.mdp.multinomial import _stirling_correction, binomial, multinomial

DRAWS = 100_000
LEVEL = 1e-6  # of each chi-square test below: about 12 of them, so a right sampler fails once in 1e5 suites
draw = jax.jit(lambda key, n, p: binomial(key, jnp.full(DRAWS, n), jnp.full(DRAWS, p)))


@pytest.mark.parametrize(
    ("n", "p"),
    [
        (1, 0.3),
        (5, 0.5),
        (20, 0.5),
        (21, 0.5),
        (30, 0.4),
        (50, 0.75),
        (100, 0.1),
        (1000, 0.0101),
        (10**7, 1e-6),
        (10**7, 0.3),
    ],
)
def test_binomial_has_the_right_law(n: int, p: float) -> None:
    """Inversion and rejection, on both sides of n p = 10 and of p = 1/2, against scipy's distribution function."""
    x = np.asarray(draw(jr.key(n), float(n), p))
    assert np.all((x >= 0) & (x <= n) & (x == np.floor(x)))
    edges = np.unique(stats.binom.ppf(np.linspace(0.002, 0.998, 40), n, p))
    edges = edges[edges < n]
    expected = DRAWS * np.diff(np.concatenate([[0.0], stats.binom.cdf(edges, n, p), [1.0]]))
    observed = np.diff(np.concatenate([[0], [(x <= e).sum() for e in edges], [DRAWS]]))
    assert stats.chisquare(observed, expected).pvalue > LEVEL


def test_binomial_edge_cases_are_exact() -> None:
    n = jnp.array([0.0, 0.0, 0.0, 5.0, 5.0, 1e7, 1e7])
    p = jnp.array([0.0, 1.0, 0.4, 0.0, 1.0, 0.0, 1.0])
    np.testing.assert_array_equal(binomial(jr.key(0), n, p), [0, 0, 0, 0, 5, 0, 1e7])


def test_stirling_correction_completes_the_factorial() -> None:
    k = np.arange(0.0, 200.0)
    from scipy.special import gammaln

    exact = gammaln(k + 1) - ((k + 0.5) * np.log(k + 1) - (k + 1) + 0.5 * np.log(2 * np.pi))
    np.testing.assert_allclose(_stirling_correction(jnp.asarray(k)), exact, atol=3e-13)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 10**7),
    st.integers(0, 2**31),
    st.lists(st.sampled_from([0.0, 1e-9, 0.1, 1.0]), min_size=6, max_size=6),
)
def test_multinomial_adds_up_and_never_fills_an_impossible_cell(n: int, seed: int, weights: list[float]) -> None:
    p = np.array(weights) + np.array([0.0, 0, 0, 1e-3, 0, 0])
    counts = np.asarray(jax.jit(multinomial)(jr.key(seed), jnp.asarray([n]), jnp.asarray(p / p.sum())[None]))[0]
    assert counts.sum() == n and np.all(counts >= 0) and np.all(counts == np.floor(counts))
    assert not counts[p == 0].any()


def test_multinomial_has_the_right_covariance() -> None:
    """Five outcomes (not a power of two), 20,000 draws of 50 trials: every entry within 4.5 standard errors."""
    p = np.array([0.05, 0.4, 0.0, 0.25, 0.3])
    N, n = 20_000, 50
    x = np.asarray(jax.jit(multinomial)(jr.key(1), jnp.full(N, n), jnp.broadcast_to(p, (N, 5))))
    centred = x - n * p
    exact = n * (np.diag(p) - np.outer(p, p))
    product = centred[:, :, None] * centred[:, None, :]
    error = product.std(axis=0) / np.sqrt(N) + 1e-12
    assert np.abs((product.mean(axis=0) - exact) / error).max() < 4.5
    assert np.abs(x.mean(axis=0) - n * p)[p > 0].max() < 4.5 * np.sqrt(n * 0.25 / N)
