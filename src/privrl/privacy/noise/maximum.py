"""Noisy maximum, drawn exactly: releases which of several sums is the largest, and nothing else about them.

Candidates j = 1, ..., k have scores u_j, sums over people. Add independent exponential noise E_j of scale s to each
score, and release the number of the largest. (The exponential mechanism is the same with Gumbel noise, and errs more.)

**Formal guarantee.** Let neighbours' scores differ by d, with spread max d - min d <= R. The release is
(R/s)-differentially private, whatever the number of candidates. *Proof.* Fix the noise of all candidates but j, and let
t = max over i != j of (u_i + E_i), minus u_j: j is released if E_j > t, up to ties of probability 0. In the other
world t' <= t + max d - d_j <= t + R. Now P(E_j > t) = min(1, exp(-t/s)), so P(E_j > t') >= P(E_j > t + R) >=
exp(-R/s) P(E_j > t). Average over the noise of the others.

**Exactly.** Let u* be the largest score. Candidate j *stays* if u_j + E_j >= u*: with probability exp(-(u* - u_j)/s),
independently of the others, and certainly if u_j = u*. Hence a candidate that stays has the largest noisy score.
Exponential noise has no memory: given which candidates stay, their excesses u_j + E_j - u* are independent exponentials
of scale s, so each of them is the largest with the same probability. It is thus enough to decide for each candidate
with probability exp(-(u* - u_j)/s) whether it stays, and to draw one uniformly among those that stay. Scores and s are
whole numbers, so exponents are fractions, and all draws have exactly these distributions (`discrete.py`,
`random_words.py`): nothing is rounded, and there are no ties. The time of a draw depends on the scores and is not
hidden.
"""

import math
from fractions import Fraction
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int64

from privrl.contracts.noise_distribution import AbstractNoise, White
from privrl.privacy.noise.discrete import draw_bernoulli_exp
from privrl.privacy.noise.random_words import Words


class MaximumNoise(AbstractNoise):
    """Exponential noise of one `scale`, less its mean, which was added to scores before the largest was taken.

    The released value is the number of a candidate, not a noisy score.
    """

    scale: Float[Array, ""]
    shape: tuple[int, ...] = eqx.field(static=True)
    white: ClassVar[White] = "laplace"

    @property
    def variance(self) -> Float[Array, ""]:
        return self.scale**2

    def norm_bound(self, failure: float) -> Float[Array, ""]:
        return math.sqrt(math.prod(self.shape)) * self.max_bound(failure)

    def spectral_bound(self, failure: float) -> Float[Array, ""]:
        raise ValueError("`spectral_bound` is for matrices; scores of candidates are a vector. Use `max_bound`.")

    def max_bound(self, failure: float) -> Float[Array, ""]:
        """E/s - 1 is at least -1, and above x with probability exp(-1 - x)."""
        return self.scale * max(1.0, math.log(math.prod(self.shape) / failure) - 1.0)

    def from_white(self, white: ArrayLike) -> Float[Array, "..."]:
        """The absolute value of a Laplace number is exponential."""
        return self.scale * (jnp.abs(jnp.asarray(white)) - 1.0)

    def probabilities(self, scores: Float[Array, " k"]) -> Float[Array, " k"]:
        """The probability that each candidate is released. Use it for up to twenty: alternating sums lose digits.

        With p_i the probability that candidate i stays, j wins with probability p_j E prod over i != j of
        (1 - p_i e^-X), X its excess; the product is a polynomial in e^-X, and E e^(-m X) = 1/(m + 1).
        """
        k = scores.shape[0]
        p = jnp.exp((scores - scores.max()) / self.scale)

        def wins(j: int) -> Array:
            polynomial = jnp.ones(1)
            for i in range(k):
                if i != j:
                    polynomial = jnp.append(polynomial, 0.0) - p[i] * jnp.insert(polynomial, 0, 0.0)
            return p[j] * (polynomial / jnp.arange(1, k + 1)).sum()

        return jnp.stack([wins(j) for j in range(k)])


def noisy_maximum(words: Words, scores: Int64[np.ndarray, " k"], scale: int) -> Int64[np.ndarray, " 1"]:
    """The number of the largest score after exponential noise of an integer `scale`, with exactly this distribution."""
    exact = [int(score) for score in scores]  # differences of 64-bit numbers may need more bits
    best = max(exact)
    stays = np.flatnonzero([draw_bernoulli_exp(words, Fraction(best - score, scale)) for score in exact])
    return stays[words.below(len(stays), 1)].astype(np.int64)
