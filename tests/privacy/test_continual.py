"""Continual release: errors, sensitivities and schedules."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from draws import record_draws
from hypothesis import given
from hypothesis import strategies as st

import privrl  # noqa: F401  (turns on float64)
from privrl.privacy.continual.mechanisms import (
    AbstractContinual,
    BinaryTree,
    Fresh,
    Honaker,
    every,
    geometric_schedule,
)
from privrl.privacy.continual.toeplitz import SquareRoot, _coefficients
from privrl.privacy.noise import sources as _sources

ALL = [Fresh, BinaryTree, Honaker, SquareRoot]


def run(continual: AbstractContinual, white: jax.Array) -> jax.Array:
    """Noise of all steps from given white noise `[steps, *shape]`, compiled."""

    def step(state: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        t, z = inputs
        return continual.step(state, lambda i: z, t)

    scan = jax.jit(lambda w: jax.lax.scan(step, continual.init(w.shape[1:]), (jnp.arange(continual.steps), w))[1])
    return scan(white)


@functools.lru_cache
def decoder(continual: AbstractContinual) -> np.ndarray:
    """The linear map B from white noise to released noise, by unit vectors."""
    return np.asarray(run(continual, jnp.eye(continual.steps)))


def mean_squared_error(continual: AbstractContinual) -> float:
    """Mean over the steps of the squared error of one entry at leaf sensitivity 1 and mu = 1."""
    return float(continual.factor**2 * jax.jit(jax.vmap(continual.variance))(jnp.arange(continual.steps)).mean())


def exact_mu(continual: AbstractContinual) -> float:
    """mu of the joint release A x + B z for one leaf moved by 1, from the covariance B B^T."""
    b, steps = decoder(continual), continual.steps
    a = np.tril(np.ones((steps, steps)))
    return math.sqrt(np.diag(a.T @ np.linalg.pinv(b @ b.T, rcond=1e-12, hermitian=True) @ a).max())


@pytest.mark.parametrize("steps", [1, 2, 7, 8, 21])
@pytest.mark.parametrize("kind", ALL)
def test_factor_is_the_privacy_of_the_whole_sequence(kind: type, steps: int) -> None:
    continual = kind(steps)
    if kind is Honaker:
        assert exact_mu(continual) <= continual.factor * (1 + 1e-9)
    else:
        assert exact_mu(continual) == pytest.approx(continual.factor, rel=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 8, 21])
@pytest.mark.parametrize("kind", ALL)
def test_noise_is_causal_and_every_release_has_fresh_noise(kind: type, steps: int) -> None:
    b = decoder(kind(steps))
    assert np.array_equal(b, np.tril(b))
    assert (np.diag(b) > 0).all()


@pytest.mark.parametrize("kind", ALL)
def test_variance_is_that_of_the_noise(kind: type) -> None:
    continual = kind(21)
    np.testing.assert_allclose(
        jax.jit(jax.vmap(continual.variance))(jnp.arange(21)), (decoder(continual) ** 2).sum(axis=1), rtol=1e-12
    )


@pytest.mark.parametrize("kind", ALL)
def test_sampled_error_matches_the_formula(kind: type) -> None:
    """Within 3%: 60,000 coordinates, at most 2 in relative variance each, so at least 5 standard errors."""
    continual = kind(50)
    noise = run(continual, jax.random.normal(jax.random.key(0), (50, 60_000)))
    assert continual.factor**2 * float((noise**2).mean()) == pytest.approx(mean_squared_error(continual), rel=0.03)


def test_mean_squared_errors_of_the_table() -> None:
    """Tree, Honaker and square root for K people, whose last policy has seen K - 1 prefixes."""
    for people, table in ((2**8, (32.1, 19.3, 7.12)), (2**12, (72.0, 40.8, 12.6)), (2**16, (128.0, 70.4, 19.7))):
        for kind, figure in zip((BinaryTree, Honaker, SquareRoot), table, strict=True):
            assert mean_squared_error(kind(people - 1)) == pytest.approx(figure, rel=5e-3)


def test_square_root_on_blocks_beats_the_tree_on_people() -> None:
    blocks = geometric_schedule(4096, 1.15)
    assert mean_squared_error(BinaryTree(4095)) / mean_squared_error(SquareRoot(len(blocks))) > 10


def test_levels_of_the_tree() -> None:
    for people in range(2, 70):
        assert BinaryTree(people - 1).factor ** 2 == pytest.approx(math.ceil(math.log2(people)))
    assert BinaryTree(64).factor ** 2 == pytest.approx(7)


def test_coefficients_match_jax_privacy() -> None:
    toeplitz = pytest.importorskip("jax_privacy.matrix_factorization.toeplitz")
    np.testing.assert_allclose(_coefficients(200), toeplitz.optimal_max_error_strategy_coefs(200), rtol=1e-12)


def test_square_root_squares_to_prefix_sums() -> None:
    c = decoder(SquareRoot(21))
    np.testing.assert_allclose(c @ c, np.tril(np.ones((21, 21))), atol=1e-13)


def test_honaker_is_the_tree_refined_from_below() -> None:
    """The covariance of the noise against an explicit tree of 8 leaves with all 15 nodes drawn."""
    v = [1.0]
    for _ in range(3):
        v.append(1 / (1 + 1 / (2 * v[-1])))

    def estimate(level: int, index: int) -> np.ndarray:
        own = np.zeros((4, 8))
        own[level, index] = 1.0
        if level == 0:
            return own
        halves = estimate(level - 1, 2 * index) + estimate(level - 1, 2 * index + 1)
        return v[level] * own + (1 - v[level]) * halves

    rows = []
    for n in range(1, 9):
        row, start = np.zeros((4, 8)), 0
        for level in reversed(range(4)):
            if n >> level & 1:
                row += estimate(level, start >> level)
                start += 1 << level
        rows.append(row.ravel())
    explicit, compressed = np.stack(rows), decoder(Honaker(8))
    np.testing.assert_allclose(compressed @ compressed.T, explicit @ explicit.T, atol=1e-13)


@pytest.mark.parametrize("kind", ALL)
def test_each_step_draws_once_under_vmap_and_scan(kind: type) -> None:
    continual = kind(6)

    def one(key: jax.Array) -> jax.Array:
        def step(state: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
            step_key = jax.random.fold_in(key, t)
            return continual.step(state, lambda i: _sources.standard_normal(jax.random.fold_in(step_key, i), (2, 3)), t)

        return jax.lax.scan(step, continual.init((2, 3)), jnp.arange(6))[1]

    with record_draws() as drawn:
        noise = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(5), 4))
    assert noise.shape == (4, 6, 2, 3)
    assert len(drawn) == len(set(drawn)) == 4 * 6


@given(
    total=st.integers(1, 10_000),
    ratio=st.floats(1.01, 4.0),
    size=st.integers(1, 3_000),
    data=st.data(),
)
def test_schedules_increase_to_the_total(total: int, ratio: float, size: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, total))
    ends = geometric_schedule(total, ratio, first)
    assert ends[0] == first
    assert ends[-1] == total
    assert (np.diff(ends) >= 1).all()
    assert (ends[1:] <= np.maximum(ends[:-1] + 1, ratio * ends[:-1])).all()
    equal = every(total, size)
    assert equal[-1] == total
    assert (np.diff(np.concatenate([[0], equal])) == size)[:-1].all()
    assert 1 <= equal[-1] - (equal[-2] if len(equal) > 1 else 0) <= size


def test_geometric_blocks_are_few() -> None:
    assert geometric_schedule(16, 2.0).tolist() == [1, 2, 4, 8, 16]
    assert len(geometric_schedule(4096, 1.15)) <= math.log(4096) / math.log(1.15) + 1
    assert every(10, 4).tolist() == [4, 8, 10]


def test_bad_arguments_are_refused() -> None:
    for kind in ALL:
        with pytest.raises(ValueError, match="`steps`"):
            kind(0)
    with pytest.raises(ValueError, match="`ratio`"):
        geometric_schedule(10, 1.0)
    with pytest.raises(ValueError, match="`first`"):
        geometric_schedule(10, 1.5, 11)
    with pytest.raises(ValueError, match="`size`"):
        every(10, 0)
