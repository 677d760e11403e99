"""Noise for a smaller change than one person can make: Gram matrices, and features that were never bounded."""

import functools
import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.audit.known_bad.case import Audited, Case
from privrl.audit.known_bad.two_worlds import DELTA, EPSILON, Scores, by_counting, in_both_worlds, rho_by_distance
from privrl.envs.synthetic import SyntheticLinear
from privrl.privacy.accounting.gdp import gdp_mu
from privrl.privacy.noise.laws import SymmetricNoise
from privrl.privacy.noise.sources import standard_normal

_RHO_0 = 0.5
_PRINTED = 1 / (4 * _RHO_0)  # [qiao-wang A2:2] and [sahu A1:1], under replacement: known bad


def _gram_scores(
    phi: Float[Array, " d"], psi: Float[Array, " d"], law: SymmetricNoise, key: PRNGKeyArray, trials: int
) -> Scores:
    """Releases of a Gram matrix where the person's feature is phi (world 0) or psi (world 1), exact log ratios.

    The density of the noise is exp(-|W|²/(2 scale²)) in Frobenius norm, so up to a constant the log ratio is the inner
    product with the difference, over scale². What others add is known to the attacker and left out.
    """
    grams = jnp.stack([jnp.outer(phi, phi), jnp.outer(psi, psi)])

    def log_ratio(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        released = grams[world] + law.scaled(standard_normal(key, law.shape))
        return jnp.vdot(released, grams[1] - grams[0]) / law.scale**2

    return in_both_worlds(log_ratio, key, trials)


def _replace_a_feature(key: PRNGKeyArray, trials: int, *, variance: float) -> Audited:
    """Two orthogonal unit features, which both papers allow, under (Z + Zᵀ)/√2 with Z of this variance."""
    e = jnp.eye(2)
    law = SymmetricNoise(math.sqrt(2 * variance), 2)
    return rho_by_distance(_gram_scores(e[0], e[1], law, key, trials), _RHO_0, "one Gram matrix")


def _take_features_as_they_are(key: PRNGKeyArray, trials: int, *, norm: float) -> Audited:
    """The two features of the papers' own simulation that are furthest apart, under noise for norm 1."""
    raw = np.asarray(SyntheticLinear().features.table).reshape(200, -1) * math.sqrt(7)
    squares = (raw**2).sum(axis=1)
    apart = squares[:, None] ** 2 + squares[None, :] ** 2 - 2 * (raw @ raw.T) ** 2
    phi, psi = (jnp.asarray(raw[i]) / norm for i in np.unravel_index(apart.argmax(), apart.shape))
    law = SymmetricNoise(math.sqrt(2) / gdp_mu(EPSILON, DELTA), raw.shape[1])
    return by_counting(_gram_scores(phi, psi, law, key, trials))


CASES = (
    Case(
        name="gram-noise-for-adding",
        paper="sahu A1:1; qiao-wang A2:2",
        flaw="Gram noise of variance 1/(4ρ₀) is enough for adding a person, and claimed for replacing one",
        proof="‖φφᵀ - ψψᵀ‖² = 2 for orthogonal unit features, not 1: ρ = 2ρ₀",
        attack=functools.partial(_replace_a_feature, variance=_PRINTED),
        trials=100_000,
        corrected=functools.partial(_replace_a_feature, variance=1 / (2 * _RHO_0)),
    ),
    Case(
        name="features-of-norm-sqrt-7",
        paper="qiao-wang Appendix G",
        flaw="features are assumed to have norm 1, those of the simulation have up to √7, and nothing clips them",
        proof="a Gram term grows with the square of the norm: its change is up to 7 times the one paid for",
        attack=functools.partial(_take_features_as_they_are, norm=1.0),
        trials=20_000,
        corrected=functools.partial(_take_features_as_they_are, norm=math.sqrt(7)),
    ),
)
