"""Running sums in epochs: against matrices written out, and against brute force over all patterns of participation."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.privacy.continual.epochs import Epochs
from privrl.privacy.continual.mechanisms import AbstractContinual, BinaryTree, Fresh
from privrl.privacy.continual.participation import Participation, pattern_norm
from privrl.privacy.continual.toeplitz import Banded, SquareRoot

KINDS = {"square-root": SquareRoot, "fresh": Fresh, "tree": BinaryTree, "banded": lambda n: Banded(n, min(n, 2))}
LENGTHS = [(8,), (2, 4), (3, 3, 2), (1, 2, 4, 1), (1,) * 6]
TREES = 1.03  # the bound over brute force of binary trees, at most


def brute(scheme: AbstractContinual, participation: Participation) -> float:
    """The largest shift of the encoding over every pattern of at most `times` participations."""
    gram = scheme.encoder().T @ scheme.encoder()
    return max(
        pattern_norm(gram, pattern)
        for m in range(1, participation.times + 1)
        for pattern in itertools.combinations_with_replacement(range(scheme.steps), m)
        if all(b - a >= participation.distance for a, b in itertools.pairwise(pattern))
    )


@pytest.mark.parametrize("forget", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_noise_is_that_of_the_matrices_written_out(lengths: tuple[int, ...], forget: float) -> None:
    """Leaves of k epochs ago weigh forget^k, in the sum and in the noise, and each epoch is normalised by itself."""
    epochs, n = Epochs.from_lengths(SquareRoot, lengths, forget), sum(lengths)
    of_leaf = np.repeat(np.arange(len(lengths)), lengths)
    sums, noise = np.zeros((n, n)), np.zeros((n, n))
    for t, j in itertools.product(range(n), repeat=2):
        if j > t:
            continue
        sums[t, j] = forget ** (of_leaf[t] - of_leaf[j])
        begin, end = np.flatnonzero(of_leaf == of_leaf[j])[[0, -1]]
        part = SquareRoot(int(end - begin + 1))
        noise[t, j] = part.factor * sums[t, j] * part.decoding[min(t, end) - j]
    np.testing.assert_allclose(epochs.sums(), sums, atol=1e-15)
    np.testing.assert_allclose(epochs.matrix(), noise, atol=1e-12)
    np.testing.assert_allclose(epochs.matrix() @ epochs.encoder(), sums, atol=1e-12)
    variances = [float(epochs.variance(t)) for t in range(n)]
    np.testing.assert_allclose(variances, (noise**2).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_one_epoch_is_the_mechanism_itself(kind: str) -> None:
    alone, epochs = KINDS[kind](5), Epochs.from_lengths(KINDS[kind], [5])
    np.testing.assert_allclose(epochs.matrix(), alone.factor * alone.matrix(), rtol=1e-12)
    np.testing.assert_allclose(epochs.encoder() * alone.factor, alone.encoder(), rtol=1e-12)


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_people_of_one_epoch_pay_nothing_for_the_others(kind: str, lengths: tuple[int, ...]) -> None:
    epochs = Epochs.from_lengths(KINDS[kind], lengths)
    assert epochs.sensitivity(Participation()) == pytest.approx(1.0, rel=1e-12)
    assert np.linalg.norm(epochs.encoder(), axis=0).max() == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("distance", [0, 1, 2, 3])
@pytest.mark.parametrize("times", [2, 3, 4])
def test_spreading_participations_over_epochs(times: int, distance: int) -> None:
    """Equal to brute force, whatever the distance and wherever epochs end; of binary trees a bound."""
    participation = Participation(times, distance)
    for kind, lengths in itertools.product(KINDS, LENGTHS):
        epochs = Epochs.from_lengths(KINDS[kind], lengths)
        found, true = epochs.sensitivity(participation), brute(epochs, participation)
        assert true * (1 - 1e-12) <= found <= true * (TREES if kind == "tree" else 1 + 1e-12), (kind, lengths)


def test_the_state_does_not_grow_with_the_number_of_epochs() -> None:
    few, many = (Epochs.from_lengths(SquareRoot, (16, *(4,) * n)) for n in (1, 1000))
    assert few.init((3,)).shape == many.init((3,)).shape == (18, 3)


def test_a_compiled_scan_equals_steps_one_by_one() -> None:
    epochs = Epochs.from_lengths(SquareRoot, (2, 4, 2), 0.5)
    white = jax.random.normal(jax.random.key(0), (8, 3))

    def step(state: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
        return epochs.step(state, lambda _: white[t], t)

    noise = jax.jit(lambda: jax.lax.scan(step, epochs.init((3,)), jnp.arange(8))[1])()
    np.testing.assert_allclose(noise, epochs.matrix() @ white, atol=1e-12)
    state = epochs.init((3,))
    for t in range(8):
        state, one = epochs.step(state, lambda _, t=t: white[t], t)
        np.testing.assert_allclose(one, noise[t], atol=1e-12)


def test_running_sums_forget_with_the_noise() -> None:
    epochs = Epochs.from_lengths(SquareRoot, (2, 3, 1), 0.25)
    leaves = np.random.default_rng(0).normal(size=6)
    running, found = jnp.zeros(()), []
    for t, leaf in enumerate(leaves):
        running = epochs.carry(running, t) + leaf
        found.append(float(running))
    np.testing.assert_allclose(found, epochs.sums() @ leaves, rtol=1e-12)


@pytest.mark.parametrize("forget", [-0.1, 1.1, float("nan")])
def test_refusals(forget: float) -> None:
    with pytest.raises(ValueError, match="`forget`"):
        Epochs.from_lengths(SquareRoot, (2,), forget)
    with pytest.raises(ValueError, match="steps"):
        Epochs((SquareRoot(2),), ())
