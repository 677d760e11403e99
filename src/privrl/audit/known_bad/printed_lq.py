"""Private control as printed: noise from half of a formula, and a radius that is published without any noise.

The system of both cases satisfies the paper's Assumption 1: A = .7 I, B = 0.1 e₁, γ = .1, Cw = .29, H = 5, so that
|A| + γ|B| + Cw <= 1 and |Θ|_F <= 1. A person whose noise pushes outwards, w = .29 x, keeps the direction of their first
state, x_{h+1} = .99 x_h. The control played is u = 0, as it is for tens of thousands of people (see the guide).
"""

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
    audit_epsilon_by_distance,
    case,
    score_both_worlds,
)
from privrl.mdp.lq import LQTrajectory
from privrl.privacy.accounting.gdp import gdp_mu
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.privacy.noise.sources import standard_normal
from privrl.statistics.lq_moments import LQCross, LQGram, from_upper

_GAMMA, _NOISE, _HORIZON, _PEOPLE = 0.1, 0.29, 5, 1_000
_SIZES = (2, 1, _HORIZON, _GAMMA)
_LEVELS = math.ceil(math.log2(_PEOPLE))
_LARGE_EPSILON = 100.0


def _people() -> LQTrajectory:
    """Two people: the state of one keeps the direction e_1, that of the other e_2."""
    states = jnp.eye(2)[:, None, :] * 0.99 ** jnp.arange(_HORIZON + 1.0)[None, :, None]
    nothing = jnp.zeros((2, _HORIZON, 1))
    return LQTrajectory(states, nothing, nothing, jnp.full(2, _HORIZON))


def _terms(statistic: LQGram | LQCross) -> Float[Array, "2 m"]:
    """What each of the two contributes, as a vector."""
    return jax.jit(jax.vmap(lambda person: statistic.contribution(person, None).ravel()))(_people())


def _printed_scales(epsilon: float) -> tuple[float, float]:
    unit = math.sqrt(8 * _LEVELS * math.log(2 / DELTA)) / epsilon  # [chowdhury-zhou-shroff IV-A] drops rho: known bad
    return unit * _HORIZON * (1 + _GAMMA) ** 2, unit * _HORIZON * (1 + _GAMMA)


def _right_scales(epsilon: float) -> tuple[float, float]:
    """By exact accounting: two trees, each with half of mu² and the sensitivity of replacing a person."""
    unit = math.sqrt(2 * _LEVELS) / gdp_mu(epsilon, DELTA)
    return unit * LQGram(*_SIZES).l2("replace-one"), unit * LQCross(*_SIZES).l2("replace-one")


@case(
    paper="chowdhury-zhou-shroff IV-A",
    trials=4_000,
    flaw="σ² = 8mΔ² ln(2/δ)/ε² solves half of ρ + 2√(ρ ln(2/δ)) = ε/2, with a Δ for adding a person",
    proof="at ε = 100 the dropped ρ is larger than what was kept, and ‖zzᵀ - z′z′ᵀ‖ reaches √2 and not 1",
)
def printed_noise_at_epsilon_100(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """The noisy partial sums that one person is in, of both counters: their state keeps the direction e₁ or e₂."""
    scales = (_printed_scales if flawed else _right_scales)(_LARGE_EPSILON)
    terms = _terms(LQGram(*_SIZES)), _terms(LQCross(*_SIZES))

    def log_ratio(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        total = jnp.array(0.0)
        for term, scale, noise_key in zip(terms, scales, jax.random.split(key), strict=True):
            noise = GaussianNoise(scale, (_LEVELS, term.shape[1]))
            sums = term[world][None] + noise.from_white(standard_normal(noise_key, noise.shape))
            total += (sums @ (term[1] - term[0])).sum() / scale**2
        return total

    return audit_epsilon_by_distance(score_both_worlds(log_ratio, key, trials), _LARGE_EPSILON, f"{_PEOPLE} people")


@case(
    paper="chowdhury-zhou-shroff L1",
    trials=4_000,
    flaw="the confidence radius β_k uses ln det of the sum without noise, and the policy is made with it",
    proof="β_k is a fixed function of raw data (the optimistic Θ lies at that distance): two sums, two radii",
)
def radius_from_the_raw_gram(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """The confidence radius after 20 people; the last of them kept the direction e₁ or e₂."""
    p, scale = 3, _right_scales(EPSILON)[0]
    others = jnp.diag(jnp.array([20.0, 40.0, 0.0]))
    upper = np.triu_indices(p)
    grams = others[upper][None] + _terms(LQGram(*_SIZES))
    noise = GaussianNoise(scale, (len(upper[0]),))
    floor = 20 * scale  # so large that the noisy matrix stays positive definite

    def radius(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        gram = grams[world] if flawed else grams[world] + noise.from_white(standard_normal(key, noise.shape))
        G = from_upper(gram, p)  # [chowdhury-zhou-shroff L1] the raw sum, as printed: known bad
        _, logdet = jnp.linalg.slogdet(jnp.eye(p) + G / floor)
        return -_NOISE * jnp.sqrt(2 * math.log(2 / 0.05) + 2 * logdet)

    return audit_by_counting(score_both_worlds(radius, key, trials))


CASES = (printed_noise_at_epsilon_100, radius_from_the_raw_gram)
