"""Evaluations whose noise covers less than one stay can move: several pairs of limits, and logged probabilities."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from privrl.audit.known_bad.case import DELTA, EPSILON, Audited, audit_epsilon_by_distance, case, score_gaussian_noise
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.types import Trajectory
from privrl.privacy.accounting.gdp import gdp_mu
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.statistics.off_policy import Gains, Weights

_SUPPORT, _LOGGED = 0.3, 0.2
_STEPS = 4
_PAIRS = ((1.5, 4.0), (2.0, 6.0), (3.0, 10.0), (3.0, 20.0), (5.0, 20.0))
_POLICY = AssistedPolicy(jnp.zeros(1, int), jnp.full(1, _SUPPORT), horizon=_STEPS)
"""One state, in which practice takes the advised action 0 in 3 of 10 decisions."""


def _people(paid: tuple[float, float], done: tuple[int, int]) -> Trajectory:
    """Two people with one stay each: what the last step pays, and what was done at every step."""
    actions = np.broadcast_to(np.array(done)[:, None, None], (2, 1, _STEPS))
    rewards = np.zeros((2, 1, _STEPS))
    rewards[:, 0, -1] = paid
    states = np.zeros_like(actions)
    return Trajectory(states, actions, rewards, states, np.full((2, 1), _STEPS), np.full(actions.shape, _LOGGED))


def _terms(statistic: Gains | Weights, people: Trajectory) -> Float[Array, "2 pairs"]:
    return jax.vmap(lambda person: statistic.contribution(person, None))(jax.tree.map(jnp.asarray, people))


@case(
    paper="practice",
    trials=10_000,
    flaw="gains of five pairs of limits are released together, with the noise of the largest one",
    proof="a stay at the limits of all pairs moves every gain by its whole length: the root of the sum of squares",
)
def gains_with_the_noise_of_the_largest(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """Two stays whose weights are at all limits; one is paid nothing, the other everything."""
    statistic = Gains(_POLICY, jnp.asarray(0.5), limits=_PAIRS)
    terms = _terms(statistic, _people((0.0, 1.0), (0, 0)))
    each = [high - low for low, high in (statistic.interval(max_weight) for _, max_weight in statistic.pairs)]
    paid_for = max(np.array(each) / statistic.units) if flawed else statistic.l2("replace-one")
    noise = GaussianNoise(paid_for / gdp_mu(EPSILON, DELTA), statistic.shape)
    return audit_epsilon_by_distance(score_gaussian_noise(terms, noise, key, trials), EPSILON, f"{len(_PAIRS)} pairs")


@case(
    paper="practice",
    trials=10_000,
    flaw="weights are products of one over the logged probability, and the noise is for the limit of the policy",
    proof="the table says what the probability was: a product of small ones exceeds every limit that is not enforced",
)
def logged_weights_without_a_limit(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """Two stays: one has the advised action at every step, logged with probability .2, and one never has it."""
    statistic = Weights(_POLICY, logged=True)
    people = _people((0.0, 0.0), (0, 1))
    terms = _terms(statistic, people)
    if flawed:
        alpha = float(_POLICY.alpha[0])
        product = (1.0 - alpha + jnp.where(people.actions == 0, alpha / _LOGGED, 0.0)).prod(axis=-1)
        terms = product / jnp.asarray(statistic.units)[None]
    noise = GaussianNoise(statistic.l2("replace-one") / gdp_mu(EPSILON, DELTA), statistic.shape)
    return audit_epsilon_by_distance(score_gaussian_noise(terms, noise, key, trials), EPSILON, f"{_STEPS} steps")


CASES = (gains_with_the_noise_of_the_largest, logged_weights_without_a_limit)
