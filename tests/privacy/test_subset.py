"""Subset selection: every output by brute force, in both renderings, and the distribution of what is counted."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import privrl  # noqa: F401  (turns on float64)
from privrl.privacy.noise.discrete import select
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.privacy.noise.random_words import Words
from privrl.privacy.noise.sources import uniform
from privrl.privacy.noise.subset import SubsetSelection, best_size, variance_of_sums

CASES = [(k, d, e) for k in (2, 3, 5) for d in range(1, k) for e in (0.1, 1.0, 4.0)]


def sets(k: int, d: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(k), d))


def distribution(response: SubsetSelection) -> np.ndarray:
    """Probability of every set (columns) under every true symbol (rows), from the definition."""
    k, d, p = response.num_symbols, int(response.size), float(response.keep_probability)
    inside, outside = p / math.comb(k - 1, d - 1), (1 - p) / math.comb(k - 1, d)
    return np.array([[inside if x in z else outside for z in sets(k, d)] for x in range(k)])


@pytest.mark.parametrize(("k", "d", "epsilon"), CASES)
def test_every_output_has_the_ratio_and_reaches_it(k: int, d: int, epsilon: float) -> None:
    rows = distribution(SubsetSelection(k, epsilon, d))
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)
    ratio = rows[:, None, :] / rows[None, :, :]
    assert ratio.max() == pytest.approx(math.exp(epsilon), rel=1e-12)
    assert set(np.round(np.unique(np.log(ratio)) / epsilon, 9)) <= {-1.0, 0.0, 1.0}


@pytest.mark.parametrize(("k", "d", "epsilon"), CASES)
def test_counts_are_unbiased_with_the_stated_variances(k: int, d: int, epsilon: float) -> None:
    response = SubsetSelection(k, epsilon, d)
    rows, held = distribution(response), np.array([[j in z for j in range(k)] for z in sets(k, d)], float)
    p, q = float(response.keep_probability), float(response.wrong_probability)
    assert p - q == pytest.approx(1 / float(response.width), rel=1e-12)
    assert 1 - p == pytest.approx(float(response.lie_probability), rel=1e-9)
    debiased = np.asarray(jax.jit(jax.vmap(lambda z: response.debias(z, jnp.ones(k))))(jnp.asarray(held)))
    np.testing.assert_allclose(rows @ debiased, np.eye(k), atol=1e-11 * float(response.width))
    variance = rows @ debiased**2 - (rows @ debiased) ** 2
    expected = np.where(np.eye(k) > 0, float(response.variance_true), float(response.variance))
    np.testing.assert_allclose(variance, expected, rtol=1e-9)
    # The last symbol is "none of these": the sum of the others, under a person of each kind.
    total = debiased[:, :-1].sum(axis=1)
    exact = rows @ total**2 - (rows @ total) ** 2
    stated = response.noise(jnp.zeros(k - 1), jnp.ones(k - 1))
    assert float(variance_of_sums(stated)) >= exact.min() * (1 - 1e-9)
    assert exact.max() <= max(float(response.variance), float(response.variance_true)) * (1 + 1e-9)
    assert exact[-1] == pytest.approx(float(response.variance_true), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("k", [2, 3, 5, 6, 11, 26, 40])
def test_the_size_is_the_best_of_all(k: int, epsilon: float) -> None:
    variances = [float(SubsetSelection(k, epsilon, d).variance) for d in range(1, k)]
    size = best_size(k, epsilon)
    assert variances[size - 1] <= min(variances) * (1 + 1e-9)
    assert abs(size - k / (math.exp(epsilon) + 1)) < 1 or size == 1
    assert int(jax.jit(lambda e: SubsetSelection(k, e).size)(epsilon)) == size


@pytest.mark.parametrize(("k", "d"), [(4, 1), (4, 2), (5, 3)])
def test_both_renderings_have_the_distribution(k: int, d: int) -> None:
    """A chi-squared test of all sets, at level 1e-6 each."""
    response, trials = SubsetSelection(k, 1.0, d), 30_000
    keys = jax.random.split(jax.random.key(k), trials)
    held = np.asarray(jax.jit(jax.vmap(lambda key: response.respond(2, uniform(key, (k + 1,)))))(keys))
    stream = Words(bytes(32))
    exact = np.zeros((3_000, k), bool)
    for row in exact:
        row[select(stream, 2, k, d, 1.0)] = True
    for answers in (held, exact):
        assert (answers.sum(axis=1) == d).all()
        codes = np.array([sum(1 << j for j in z) for z in sets(k, d)])
        counts = np.array([(answers @ (1 << np.arange(k)) == code).sum() for code in codes])
        assert stats.chisquare(counts, distribution(response)[2] * len(answers)).pvalue > 1e-6


def test_tied_scores_still_give_a_set_of_the_right_size() -> None:
    response = SubsetSelection(6, 1.0, 3)
    for coin, truth in ((0.0, False), (0.999, True)):
        held = np.asarray(response.respond(4, jnp.concatenate([jnp.array([coin]), jnp.full(6, 0.5)])))
        assert held.sum() == 3 and held[4] == truth


def test_a_lie_is_possible_however_large_epsilon_is() -> None:
    response = SubsetSelection(3, 60.0)
    for smallest in (0.0, 2.0**-53):  # of JAX's uniforms and of the operating system's
        assert not response.respond(0, np.array([smallest, 0.9, 0.5, 0.7]))[0]
    assert response.respond(0, np.array([2.0**-52, 0.9, 0.5, 0.7]))[0]


def test_infinite_epsilon_is_the_identity() -> None:
    response = SubsetSelection(5, math.inf)
    assert int(response.size) == 1
    assert float(response.variance) == float(response.variance_true) == 0.0
    assert np.array_equal(response.respond(3, np.zeros(6)), np.eye(5, dtype=bool)[3])
    assert np.array_equal(response.debias(jnp.eye(5)[3], jnp.ones(5)), np.eye(5)[3])
    assert select(Words(), 3, 5, 1, math.inf).tolist() == [3]


def test_epsilons_can_be_swept_in_one_program() -> None:
    def share(epsilon: jax.Array, key: jax.Array) -> jax.Array:
        response = SubsetSelection(8, epsilon)
        draw = jax.jit(jax.vmap(lambda key: response.respond(1, uniform(key, (9,)))))(jax.random.split(key, 4_000))
        return jnp.stack([draw[:, 1].mean(), draw.sum(axis=1).min().astype(float), response.keep_probability])

    epsilons = jnp.array([0.1, 1.0, 3.0])
    found = np.asarray(jax.jit(jax.vmap(share, (0, 0)))(epsilons, jax.random.split(jax.random.key(0), 3)))
    np.testing.assert_array_equal(found[:, 1], [best_size(8, float(e)) for e in epsilons])
    z = (found[:, 0] - found[:, 2]) / np.sqrt(found[:, 2] * (1 - found[:, 2]) / 4_000)
    assert np.abs(z).max() < 4.5


def test_sums_of_independent_noise_add_up() -> None:
    np.testing.assert_allclose(variance_of_sums(GaussianNoise(2.0, (3, 5))), np.full(3, 20.0))


def test_the_noise_of_answers_keeps_its_bounds() -> None:
    """The largest of 4 debiased counts of 60 reports, 2,000 times: above `max_bound(0.05)` at most 5% of the time."""
    response = SubsetSelection(5, 1.0)
    keys = jax.random.split(jax.random.key(3), (2_000, 60))
    held = jax.jit(jax.vmap(jax.vmap(lambda key: response.respond(4, uniform(key, (6,))))))(keys)
    hits = held.sum(axis=1)[:, :4].astype(float)
    errors = np.asarray(response.debias(hits, jnp.full(hits.shape, 60.0)))
    noise = response.noise(jnp.zeros(4), jnp.full(4, 60.0))
    assert (np.abs(errors).max(axis=1) > float(noise.max_bound(0.05))).mean() <= 0.05
    assert errors.std() == pytest.approx(float(noise.std[0]), rel=4.5 / math.sqrt(2 * 2_000))
    assert errors.sum(axis=1).std() == pytest.approx(math.sqrt(60 * float(response.variance_true)), rel=0.08)
    assert errors.sum(axis=1).std() < math.sqrt(float(noise.sums)) * 1.08
    assert float(noise.norm_bound(0.05)) == pytest.approx(2 * float(noise.max_bound(0.05)))
    with pytest.raises(TypeError, match="reports"):
        noise.from_white(np.zeros(4))


def test_bad_arguments_are_refused() -> None:
    for epsilon in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="`epsilon`"):
            SubsetSelection(3, epsilon)
    with pytest.raises(ValueError, match="`num_symbols`"):
        SubsetSelection(1, 1.0)
    for size in (0, 3):
        with pytest.raises(ValueError, match="`size`"):
            SubsetSelection(3, 1.0, size)
        with pytest.raises(ValueError, match="`size`"):
            select(Words(), 0, 3, size, 1.0)
