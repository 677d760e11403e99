"""More of one person in a sum than the noise was made for: every visit, or every transition."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.audit.known_bad.case import Audited, Case
from privrl.audit.known_bad.two_worlds import DELTA, EPSILON, by_counting, in_both_worlds
from privrl.mdp.types import Trajectory
from privrl.privacy.accounting.gdp import gdp_mu
from privrl.privacy.noise.laws import GaussianNoise
from privrl.privacy.noise.sources import standard_normal
from privrl.statistics.counts import Counting, VisitCounts

_STATES, _ACTIONS, _HORIZON = 12, 2, 20
_STEPS, _CLIP, _RATE, _PEOPLE = 20, 0.3, 100.0, 10_000


def _stay_put(key: PRNGKeyArray, trials: int, *, counting: Counting) -> Audited:
    """A person who spends the whole episode in state 0, or in state 1, under noise for first visits."""
    counts = VisitCounts(_STATES, _ACTIONS, _HORIZON, counting)
    paid_for = VisitCounts(_STATES, _ACTIONS, _HORIZON, "first-visit").l2("replace-one")
    law = GaussianNoise(paid_for / gdp_mu(EPSILON, DELTA), counts.shape)

    stays = jnp.broadcast_to(jnp.arange(2)[:, None], (2, _HORIZON))
    nothing = jnp.zeros_like(stays)
    people = Trajectory(stays, nothing, nothing.astype(float), stays, jnp.full(2, _HORIZON))
    tables = jax.jit(jax.vmap(lambda person: counts.contribution(person, None)))(people)

    def log_ratio(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        released = tables[world] + law.scaled(standard_normal(key, law.shape))
        return jnp.vdot(released, tables[1] - tables[0]) / law.scale**2

    return by_counting(in_both_worlds(log_ratio, key, trials))


def _stay_of_twenty_steps(key: PRNGKeyArray, trials: int, *, per_stay: bool) -> Audited:
    """20 noisy gradient steps; a stay takes one action 20 times, which is paid 0 (world 0) or 1 (world 1) each time.

    Q of that cell is public and starts at one half, so the two stays pull it in opposite directions. The attacker adds
    up the exact log ratios of the steps.
    """
    law = GaussianNoise(2 * _CLIP * _STEPS**0.5 / gdp_mu(EPSILON, DELTA), ())

    def gradient(Q: Float[Array, ""], reward: Float[Array, ""]) -> Float[Array, ""]:
        if per_stay:
            return jnp.clip(_HORIZON * (Q - reward), -_CLIP, _CLIP)
        return _HORIZON * jnp.clip(Q - reward, -_CLIP, _CLIP)  # the flaw: each transition is clipped, not the stay

    def log_ratio(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        def step(Q: Float[Array, ""], key: PRNGKeyArray) -> tuple[Float[Array, ""], Float[Array, ""]]:
            zero, one = gradient(Q, jnp.array(0.0)), gradient(Q, jnp.array(1.0))
            released = jnp.where(world == 0, zero, one) + law.scaled(standard_normal(key, ()))
            likelier = ((released - zero) ** 2 - (released - one) ** 2) / (2 * law.scale**2)
            return Q - _RATE / _PEOPLE * released, likelier

        return jax.lax.scan(step, jnp.array(0.5), jax.random.split(key, _STEPS))[1].sum()

    return by_counting(in_both_worlds(log_ratio, key, trials), detail=f"a stay of {_HORIZON} steps")


CASES = (
    Case(
        name="every-visit-for-first-visits",
        paper="practice",
        flaw="counts pool every visit of an episode, and the noise is for its first visits",
        proof="staying in one cell for H steps adds H to it: √2·H, where √(2H) was paid for",
        attack=functools.partial(_stay_put, counting="pooled"),
        trials=20_000,
        corrected=functools.partial(_stay_put, counting="first-visit"),
    ),
    Case(
        name="one-transition-as-the-unit",
        paper="practice",
        flaw="DP-SGD clips the gradient of each transition, and the certificate speaks of stays",
        proof="20 transitions of one stay pull the same way: 20 times the change paid for, ε = 36 and not 1",
        attack=functools.partial(_stay_of_twenty_steps, per_stay=False),
        trials=4_000,
        corrected=functools.partial(_stay_of_twenty_steps, per_stay=True),
    ),
)
