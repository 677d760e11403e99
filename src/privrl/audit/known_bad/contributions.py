"""Releases that contain more of one person than their noise covers: a value without a lower clip, every visit, or
every transition.
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
    case,
    score_both_worlds,
    score_gaussian_noise,
)
from privrl.mdp.types import Trajectory
from privrl.privacy.accounting.gdp import gdp_mu
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.privacy.noise.sources import standard_normal
from privrl.statistics.counts import VisitCounts

_VALUE_STATES, _VALUE_ACTIONS, _VALUE_HORIZON = 2, 2, 3
_DIM = _VALUE_STATES * _VALUE_ACTIONS * _VALUE_STATES
_STATES, _ACTIONS, _HORIZON = 12, 2, 20
_STEPS, _CLIP, _RATE, _PEOPLE = 20, 0.3, 100.0, 10_000


def _features(V: Float[Array, " S"]) -> Float[Array, "S A d"]:
    """Return φ_V(s, a) = sum_s' φ(s'|s, a) V(s') of the one-hot features φ(s'|s, a) = e_(s, a, s')."""
    pairs = jnp.eye(_VALUE_STATES * _VALUE_ACTIONS).reshape(_VALUE_STATES, _VALUE_ACTIONS, -1)
    return jnp.einsum("sai,x->saix", pairs, V).reshape(_VALUE_STATES, _VALUE_ACTIONS, _DIM)


@functools.partial(jax.jit, static_argnames="lowest")
def _values(theta: Float[Array, "H d"], *, lowest: float) -> Float[Array, "H S"]:
    """Compute V_1, ..., V_H as a client does from what it was sent; the last step pays 1, the bonus is sent as 0."""
    V, all_values = jnp.zeros(_VALUE_STATES), []
    for h in reversed(range(_VALUE_HORIZON)):
        r = float(h == _VALUE_HORIZON - 1)
        Q = jnp.minimum(_VALUE_HORIZON - h, r + _features(V) @ theta[h])  # [liao-he-gu A1:6]
        V = jnp.maximum(Q.max(axis=-1), lowest)  # [liao-he-gu A1:7] without a lower clip, as printed: known bad
        all_values.append(V)
    return jnp.stack(all_values[::-1])


@case(
    paper="liao-he-gu A1:6-7",
    trials=4_000,
    flaw="a client clips V from above only, and the server that sends θ is not trusted",
    proof="V = max ⟨θ, φ⟩ is as negative as the server likes, the message grows with V², the noise is for V <= H",
)
def values_without_a_lower_clip(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """The server sends θ of its own choice; the person is in state 0 or in state 1 at the first step.

    Only the matrix of the first step is looked at: φ_V φ_Vᵀ with V = V_2, plus noise on and above the diagonal.
    """
    sigma = 4 * _VALUE_HORIZON**3 * math.sqrt(2 * math.log(2.5 * _VALUE_HORIZON / DELTA)) / EPSILON  # [liao-he-gu A1:1]
    theta = jnp.zeros((_VALUE_HORIZON, _DIM)).at[1].set(-1e3)
    phi = _features(_values(theta, lowest=-math.inf if flawed else 0.0)[1])[:, 0]
    upper = np.triu_indices(_DIM)
    terms = jnp.einsum("si,sj->sij", phi, phi)[:, upper[0], upper[1]]
    return audit_by_counting(score_gaussian_noise(terms, GaussianNoise(sigma, (len(upper[0]),)), key, trials))


@case(
    paper="practice",
    trials=20_000,
    flaw="counts pool every visit of an episode, and the noise is for its first visits",
    proof="staying in one cell for H steps adds H to it: √2·H, where √(2H) was paid for",
)
def every_visit_for_first_visits(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """A person who spends the whole episode in state 0, or in state 1, under noise for first visits."""
    counts = VisitCounts(_STATES, _ACTIONS, _HORIZON, "pooled" if flawed else "first-visit")
    paid_for = VisitCounts(_STATES, _ACTIONS, _HORIZON, "first-visit").l2("replace-one")
    stays = jnp.broadcast_to(jnp.arange(2)[:, None], (2, _HORIZON))
    nothing = jnp.zeros_like(stays)
    people = Trajectory(stays, nothing, nothing.astype(float), stays, jnp.full(2, _HORIZON))
    tables = jax.jit(jax.vmap(lambda person: counts.contribution(person, None)))(people)
    noise = GaussianNoise(paid_for / gdp_mu(EPSILON, DELTA), counts.shape)
    return audit_by_counting(score_gaussian_noise(tables, noise, key, trials))


@case(
    paper="practice",
    trials=4_000,
    flaw="DP-SGD clips the gradient of each transition, and the certificate promises privacy for episodes",
    proof="20 transitions of one episode pull the same way: 20 times the change paid for, ε = 36 and not 1",
)
def one_transition_as_the_unit(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """20 noisy gradient steps; an episode repeats one action 20 times, with reward 0 (world 0) or 1 (world 1) each
    time.

    Q of that cell is public and starts at one half, so the two episodes pull it in opposite directions. The
    attacker adds up the exact log ratios of the steps.
    """
    noise = GaussianNoise(2 * _CLIP * _STEPS**0.5 / gdp_mu(EPSILON, DELTA), ())

    def gradient(Q: Float[Array, ""], reward: float) -> Float[Array, ""]:
        if flawed:  # each transition is clipped, not the episode
            return _HORIZON * jnp.clip(Q - reward, -_CLIP, _CLIP)
        return jnp.clip(_HORIZON * (Q - reward), -_CLIP, _CLIP)

    def log_ratio(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        def step(Q: Float[Array, ""], key: PRNGKeyArray) -> tuple[Float[Array, ""], Float[Array, ""]]:
            zero, one = gradient(Q, 0.0), gradient(Q, 1.0)
            released = jnp.where(world == 0, zero, one) + noise.from_white(standard_normal(key, ()))
            likelier = ((released - zero) ** 2 - (released - one) ** 2) / (2 * noise.scale**2)
            return Q - _RATE / _PEOPLE * released, likelier

        return jax.lax.scan(step, jnp.array(0.5), jax.random.split(key, _STEPS))[1].sum()

    return audit_by_counting(score_both_worlds(log_ratio, key, trials), detail=f"an episode of {_HORIZON} steps")


CASES = (values_without_a_lower_clip, every_visit_for_first_visits, one_transition_as_the_unit)
