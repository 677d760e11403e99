"""Noise that is drawn once for many releases, drawn again for every read, or calibrated for a smaller change than one
person can make.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.audit.known_bad.case import (
    DELTA,
    EPSILON,
    Audited,
    audit_by_counting,
    audit_rho_by_distance,
    case,
    score_both_worlds,
    score_gaussian_noise,
)
from privrl.envs.tabular.synthetic import SyntheticLinear
from privrl.privacy.accounting.gdp import gdp_mu, zcdp_rho
from privrl.privacy.noise.distributions import GaussianNoise, SymmetricNoise
from privrl.privacy.noise.sources import standard_normal

_HORIZON, _READS = 20, 100
_RHO_0 = 0.5
_PRINTED = 1 / (4 * _RHO_0)  # [qiao-wang A2:2] and [sahu A1:1], under replacement: known bad


@case(
    paper="sahu A1:1,26",
    trials=1_000,
    flaw="one noise matrix is drawn, and the same one is added again for every user",
    proof="Λ(k+1) - Λ(k) = w φφᵀ + K₁ with one K₁ for all: a person who knows their own term can compute all others",
)
def noise_drawn_once(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """One run with `trials` people: the attacker is the first of them, and infers the (s, a) of every other one.

    The attacker knows their own term, so the first difference reveals K_1, and every later difference minus K_1 has
    rank one: its eigenvector is the direction of that person's feature. Nothing else is used, in particular not the
    variance weights (which are random levels below 1/H here).
    """
    table = SyntheticLinear().features.table
    features = table.reshape(-1, table.shape[-1])
    right = int(_named_rightly(features, key, trials, flawed))
    rate = right / (trials - 1)
    return Audited(1 / len(features), rate, "success rate", rate >= 0.99, f"{right} of {trials - 1} people named")


@functools.partial(jax.jit, static_argnums=(2, 3))
def _named_rightly(features: Float[Array, "F d"], key: PRNGKeyArray, trials: int, flawed: bool) -> Int[Array, ""]:
    of_pairs, of_weights, of_noise = jax.random.split(key, 3)
    pairs = jax.random.randint(of_pairs, (trials,), 0, len(features))
    weights = 1 / (_HORIZON * jax.random.uniform(of_weights, (trials,), minval=1.0, maxval=2.0))
    terms = jnp.einsum("k,ki,kj->kij", weights, features[pairs], features[pairs])
    rho_0 = zcdp_rho(EPSILON, DELTA) / (4 * _HORIZON * trials)  # [sahu A1:1]
    published = (_printed if flawed else _fresh)(terms, rho_0, of_noise)
    differences = jnp.diff(published, axis=0, prepend=0.0)
    noise = differences[0] - terms[0]
    _, vectors = jnp.linalg.eigh(differences[1:] - noise[None])
    directions = features / jnp.linalg.norm(features, axis=1, keepdims=True)
    named = jnp.abs(vectors[:, :, -1] @ directions.T).argmax(axis=1)
    return (named == pairs[1:]).sum()


def _printed(terms: Float[Array, "K d d"], rho_0: float, key: PRNGKeyArray) -> Float[Array, "K d d"]:
    noise = SymmetricNoise(math.sqrt(1 / (2 * rho_0)), terms.shape[1])
    K_1 = noise.from_white(standard_normal(key, noise.shape))  # [sahu A1:1] drawn once
    return jnp.cumsum(terms + K_1[None], axis=0)  # [sahu A1:26] as printed: the same K_1 for all people; known bad


def _fresh(terms: Float[Array, "K d d"], rho_0: float, key: PRNGKeyArray) -> Float[Array, "K d d"]:
    """Draw noise for each release, of the variance that replacing a person needs, and do not accumulate it."""
    noise = SymmetricNoise(math.sqrt(1 / rho_0), terms.shape[1])
    return jnp.cumsum(terms, axis=0) + jax.vmap(noise.from_white)(standard_normal(key, terms.shape))


@case(
    paper="practice",
    trials=4_000,
    flaw="the statistics of two steps get the same noise (one key, or one draw before the loop)",
    proof="(x + z) - (y + z) = x - y: the difference of the releases has no noise at all",
)
def reused_key(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """The Gram matrices of two steps; the person's feature is e_1 or e_2 at the first, and e_3 at the second."""
    e = jnp.eye(3)
    # Sensitivity sqrt 2, and two releases share the budget.
    noise = SymmetricNoise(math.sqrt(2) * math.sqrt(2) / gdp_mu(EPSILON, DELTA), 3)

    def difference(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        first, second = (key, key) if flawed else jax.random.split(key)
        at_first = jnp.outer(e[world], e[world]) + noise.from_white(standard_normal(first, noise.shape))
        # The one draw of the box serves every step of its loop, though the text says independent noise.
        again = noise.from_white(standard_normal(second, noise.shape))  # [qiao-wang A2:2,4] as printed: known bad
        at_second = jnp.outer(e[2], e[2]) + again
        return jnp.diagonal(at_first - at_second) @ (e[1] - e[0])

    return audit_by_counting(score_both_worlds(difference, key, trials))


@case(
    paper="practice",
    trials=4_000,
    flaw="noise is drawn again each time the value is read (or the program is restarted)",
    proof="the mean of n reads has noise σ/√n, so μ grows as √n without bound",
)
def redrawn_on_every_read(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """A histogram that is read 100 times; the person is in its first or in its second cell."""
    cells = jnp.eye(4)
    noise = GaussianNoise(math.sqrt(2) / gdp_mu(EPSILON, DELTA), (4,))

    def average(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        keys = jax.random.split(key, _READS) if flawed else jnp.broadcast_to(key, (_READS,))
        reads = jax.vmap(lambda key: cells[world] + noise.from_white(standard_normal(key, (4,))))(keys)
        return reads.mean(axis=0) @ (cells[1] - cells[0])

    return audit_by_counting(score_both_worlds(average, key, trials), detail=f"{_READS} reads")


def _grams(features: Float[Array, "2 d"]) -> Float[Array, "2 d d"]:
    """Return what the person adds to a Gram matrix in world 0 and in world 1."""
    return features[:, :, None] * features[:, None, :]


@case(
    paper="sahu A1:1; qiao-wang A2:2",
    trials=100_000,
    flaw="Gram noise of variance 1/(4ρ₀) is enough for adding a person, and claimed for replacing one",
    proof="‖φφᵀ - ψψᵀ‖² = 2 for orthogonal unit features, not 1: ρ = 2ρ₀",
)
def gram_noise_for_adding(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """Two orthogonal unit features, which both papers allow, under (Z + Zᵀ)/√2 with Z of the printed variance."""
    noise = SymmetricNoise(math.sqrt(2 * (_PRINTED if flawed else 1 / (2 * _RHO_0))), 2)
    return audit_rho_by_distance(
        score_gaussian_noise(_grams(jnp.eye(2)), noise, key, trials), _RHO_0, "one Gram matrix"
    )


@case(
    paper="qiao-wang Appendix G",
    trials=20_000,
    flaw="features are assumed to have norm 1, those of the simulation have up to √7, and nothing clips them",
    proof="a Gram term grows with the square of the norm: its change is up to 7 times the one paid for",
)
def features_of_norm_sqrt_7(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """The two features of the papers' own simulation that are furthest apart, under noise for norm 1."""
    raw = np.asarray(SyntheticLinear().features.table).reshape(200, -1) * math.sqrt(7)
    squares = (raw**2).sum(axis=1)
    apart = squares[:, None] ** 2 + squares[None, :] ** 2 - 2 * (raw @ raw.T) ** 2
    pair = raw[list(np.unravel_index(apart.argmax(), apart.shape))] / (1.0 if flawed else math.sqrt(7))
    noise = SymmetricNoise(math.sqrt(2) / gdp_mu(EPSILON, DELTA), raw.shape[1])
    return audit_by_counting(score_gaussian_noise(_grams(jnp.asarray(pair)), noise, key, trials))


CASES = (noise_drawn_once, reused_key, redrawn_on_every_read, gram_noise_for_adding, features_of_norm_sqrt_7)
