"""The attack on floating-point noise: sums that a world cannot produce, and what is left of it on the lattice.

Two worlds, whose sums are 0 and `shift`, add noise with sigma = 1. The attacker knows the program. Frequencies are
compared with what is expected at |z| < 4.5.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from privrl.privacy.noise.discrete import discrete_gaussian
from privrl.privacy.noise.random_words import Words

S = 2**32  # sigma / g
G = 2.0**-32
N = 10**6


def ziggurat(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.Generator(np.random.Philox(1)).standard_normal(shape)


def box_muller(shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.Generator(np.random.Philox(2))
    return np.sqrt(-2 * np.log1p(-rng.random(shape))) * np.cos(2 * np.pi * rng.random(shape))


def lattice(shape: tuple[int, ...]) -> np.ndarray:
    return G * discrete_gaussian(Words(bytes(32)), S, shape)


def reachable(y: np.ndarray, total: float) -> np.ndarray:
    """Whether some float64 z gives total + z == y; if one does, it is among the floats next to y - total."""
    z = y - total
    return np.logical_or.reduce([total + x == y for x in (z, np.nextafter(z, -np.inf), np.nextafter(z, np.inf))])


def expected_impossible(lowest: float = -math.inf) -> float:
    """The share of N(0, 1) draws y, y > lowest, in full float64 precision, that 1 + z cannot be.

    Floats near y are multiples of ulp(y), and z near y - 1 is a multiple of ulp(y - 1). If that is the finer one, some
    z is rounded to y. If not, 1 + z is exact, and one in ulp(y - 1) / ulp(y) floats can be reached.
    """
    edges = np.unique(np.r_[-(2.0 ** np.arange(-40.0, 4)), 1 - 2.0 ** np.arange(-40.0, 4), 2.0 ** np.arange(-40.0, 4)])
    middle = (edges[1:] + edges[:-1]) / 2
    chance = np.minimum(1.0, np.spacing(np.abs(middle)) / np.spacing(np.abs(middle - 1)))
    return float((np.diff(stats.norm.cdf(edges)) * (1 - chance))[middle > lowest].sum())


@pytest.mark.parametrize("noise", [ziggurat, box_muller])
def test_float64_noise_betrays_the_sum(noise: Callable) -> None:
    """43% of the outputs of a sum of 0 cannot come from a sum of 1; 36% by those above -1 alone."""
    y = noise((N,))
    impossible = ~reachable(y, 1.0)
    assert reachable(1.0 + y, 1.0).all()  # the attacker never accuses wrongly
    for lowest, share in ((-math.inf, 0.43), (-1.0, 0.36)):
        found = (impossible & (y > lowest)).mean()
        assert found == pytest.approx(share, abs=0.01)
        expected = expected_impossible(lowest)
        assert abs(found - expected) < 4.5 * math.sqrt(expected * (1 - expected) / N)


@pytest.mark.slow
def test_float32_noise_betrays_nearly_every_sum() -> None:
    """`jax.random.normal` in float32 makes 2^23 numbers; nine in ten of them are no sum of 1 and another."""
    draws = np.asarray(jax.random.normal(jax.random.key(0), (N,), jnp.float32))
    bits = jnp.arange(2**23, dtype=jnp.uint32) | jnp.uint32(0x3F800000)
    unit = jax.lax.bitcast_convert_type(bits, jnp.float32) - jnp.float32(1)
    low = jnp.nextafter(jnp.float32(-1), jnp.float32(0))
    uniform = jnp.maximum(low, unit * (jnp.float32(1) - low) + low)
    support = np.asarray(jnp.float32(math.sqrt(2)) * jax.lax.erf_inv(uniform))

    def among(values: np.ndarray) -> np.ndarray:
        assert (np.diff(values) >= 0).all()
        return values[np.minimum(np.searchsorted(values, draws), len(values) - 1)] == draws

    assert among(support).all()  # we know the program
    assert 1 - among(np.float32(1) + support).mean() == pytest.approx(0.89, abs=0.01)


def test_every_lattice_output_is_possible_in_both_worlds() -> None:
    noise = discrete_gaussian(Words(), S, (N,))
    for total, other in ((0, S), (S, 0)):
        y = G * (total + noise)
        needed = (y - G * other) / G  # what the other world must have drawn: an integer, and all integers can be drawn
        np.testing.assert_array_equal(needed, np.round(needed))
        assert reachable(y, G * other).all()
    # No residue is drawn more often than another, so integers do not differ but by their size.
    for bits in (1, 8, 16):
        assert stats.chisquare(np.bincount(noise & (2**bits - 1), minlength=2**bits)).pvalue > 1e-6


def float_spacing(y: np.ndarray, total: float) -> np.ndarray:
    """How far apart the outputs of a world are around y: the coarser of the sum's and the noise's spacing."""
    return np.maximum(np.spacing(np.abs(y)), np.spacing(np.abs(y - total)))


def lattice_spacing(y: np.ndarray, total: float) -> np.ndarray:
    return np.full_like(y, G)


def attack(noise: Callable, spacing: Callable, trials: int, shift: float) -> float:
    """How often the attacker is right over vectors of 100 coordinates. He takes the likelier world: an output that a
    world cannot produce has probability 0 there, another one the normal density times the spacing of outputs."""
    truth = np.arange(trials) % 2 == 1
    y = noise((trials, 100)) + shift * truth[:, None]
    logs = [
        np.where(reachable(y, total), stats.norm.logpdf(y, total) + np.log(spacing(y, total)), -np.inf).sum(axis=1)
        for total in (0.0, shift)
    ]
    return float(((logs[1] > logs[0]) == truth).mean())


def test_over_a_hundred_coordinates() -> None:
    """mu = 1.25 in all, so differential privacy allows to be right with probability Phi(mu / 2) = 0.73 at best."""
    trials, shift = 5_000, 0.125
    for noise in (ziggurat, box_muller):
        assert attack(noise, float_spacing, trials, shift) == 1.0
    best = stats.norm.cdf(shift * math.sqrt(100) / 2)
    found = attack(lattice, lattice_spacing, trials, shift)
    assert abs(found - best) < 4.5 * math.sqrt(best * (1 - best) / trials)
