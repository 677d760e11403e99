"""A local message whose size the server decides: value functions that are clipped from above only."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.audit.known_bad.case import Audited, Case
from privrl.audit.known_bad.two_worlds import DELTA, EPSILON, by_counting, in_both_worlds
from privrl.privacy.noise.laws import GaussianNoise
from privrl.privacy.noise.sources import standard_normal

_STATES, _ACTIONS, _HORIZON = 2, 2, 3
_DIM = _STATES * _ACTIONS * _STATES


def _features(V: Float[Array, " S"]) -> Float[Array, "S A d"]:
    """φ_V(s, a) = sum_s' φ(s'|s, a) V(s') of the one-hot features φ(s'|s, a) = e_(s, a, s')."""
    pairs = jnp.eye(_STATES * _ACTIONS).reshape(_STATES, _ACTIONS, -1)
    return jnp.einsum("sai,x->saix", pairs, V).reshape(_STATES, _ACTIONS, _DIM)


@functools.partial(jax.jit, static_argnames="lowest")
def _values(theta: Float[Array, "H d"], *, lowest: float) -> Float[Array, "H S"]:
    """V_1, ..., V_H that a client works out from what it was sent; the last step pays 1, the bonus is sent as 0."""
    V, all_values = jnp.zeros(_STATES), []
    for h in reversed(range(_HORIZON)):
        r = float(h == _HORIZON - 1)
        Q = jnp.minimum(_HORIZON - h, r + _features(V) @ theta[h])  # [liao-he-gu A1:6]
        V = jnp.maximum(Q.max(axis=-1), lowest)  # [liao-he-gu A1:7] without a lower clip, as printed: known bad
        all_values.append(V)
    return jnp.stack(all_values[::-1])


def _ask_for_much(key: PRNGKeyArray, trials: int, *, lowest: float) -> Audited:
    """The server sends θ of its own choice; the person is in state 0 or in state 1 at the first step.

    Only the matrix of the first step is looked at: φ_V φ_Vᵀ with V = V_2, plus noise on and above the diagonal.
    """
    sigma = 4 * _HORIZON**3 * math.sqrt(2 * math.log(2.5 * _HORIZON / DELTA)) / EPSILON  # [liao-he-gu A1:1]
    theta = jnp.zeros((_HORIZON, _DIM)).at[1].set(-1e3)
    phi = _features(_values(theta, lowest=lowest)[1])[:, 0]
    upper = np.triu_indices(_DIM)
    terms = jnp.einsum("si,sj->sij", phi, phi)[:, upper[0], upper[1]]
    law = GaussianNoise(sigma, (len(upper[0]),))

    def log_ratio(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        message = terms[world] + law.scaled(standard_normal(key, law.shape))
        return message @ (terms[1] - terms[0]) / sigma**2

    return by_counting(in_both_worlds(log_ratio, key, trials))


CASES = (
    Case(
        name="values-without-a-lower-clip",
        paper="liao-he-gu A1:6-7",
        flaw="a client clips V from above only, and nobody trusts the server that sends θ",
        proof="V = max ⟨θ, φ⟩ is as negative as the server likes, the message grows with V², the noise is for V <= H",
        attack=functools.partial(_ask_for_much, lowest=-math.inf),
        trials=4_000,
        corrected=functools.partial(_ask_for_much, lowest=0.0),
    ),
)
