"""An assisted policy: practice with a bounded share of advice, so that practice's stays can say what it is worth.

Given advice a*(s), how often practice takes it, b*(s) = b(a*(s)|s), a public dial c >= 1 and a deviation budget C > 1:

    alpha(s)   = min(1, (c-1) b*/(1-b*)) where b*(s) >= .05, else 0
    pi(.|s)    = (1-alpha) b(.|s) + alpha 1{a*}     the advice with probability alpha, else the clinician
    rho(s, a)  = 1 - alpha + alpha 1{a = a*}/b*     one-step weight against practice
    w          = the product of rho; once w >= C, the rest of the stay is left to practice (alpha = 0, rho = 1)

c = 1 is practice; an infinite c follows all advice that practice supports.

**Formal guarantee.** If a ~ b(.|s), then E[rho | s] = 1 - alpha + alpha b*/b* = 1. rho lies in [0, c], since
rho(s, a*) = 1 + alpha (1-b*)/b* <= 1 + (c-1). A factor is multiplied only while w < C, so w lies in [0, cC] without any
clipping, and by the first statement w is a martingale of mean 1 under practice: the likelihood ratio of a proper
policy, which depends on the stay so far through w. `untouched`, the product of 1 - alpha over the same steps, is the
probability that no advice is drawn along these steps; untouched <= w, since each rho >= 1 - alpha.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from privrl.mdp.planning import policy_values
from privrl.mdp.types import TabularMDP, TabularPolicy

LEAVE = -1
"""The answer "leave it to the clinician"."""
LEAST_SUPPORT = 0.05
"""Advice that practice takes more rarely is never given."""
_CHUNK = 4096  # simulated stays at once


class AssistedPolicy(eqx.Module):
    """Advice for every state, given as often as the dial and the deviation budget allow.

    Arguments:
        advice: one action per state.
        support: b*(s), the probability with which practice takes it; 0 where that is not known well enough.
        dial: c >= 1; the advised action is taken at most c times as often as in practice.
        deviation: C > 1; a stay whose weight has reached C is left to practice.
    """

    advice: Int[Array, " S"] = eqx.field(converter=jnp.asarray)
    support: Float[Array, " S"] = eqx.field(converter=jnp.asarray)
    dial: float = eqx.field(static=True, converter=float, default=1.5)
    deviation: float = eqx.field(static=True, converter=float, default=4.0)

    def __check_init__(self) -> None:
        if not self.dial >= 1.0:
            raise ValueError(f"`dial` is {self.dial}; it must be at least 1, which is practice itself.")
        if not self.deviation > 1.0:
            raise ValueError(f"`deviation` is {self.deviation}; it must be above 1, the weight at the start of a stay.")

    @classmethod
    def of(
        cls,
        advice: Int[ArrayLike, " S"],
        practice: Float[ArrayLike, "S A"],
        dial: float = 1.5,
        deviation: float = 4.0,
    ) -> "AssistedPolicy":
        """With practice's own probabilities."""
        advice, practice = jnp.asarray(advice), jnp.asarray(practice)
        return cls(advice, practice[jnp.arange(len(advice)), advice], dial, deviation)

    def silent(self) -> "AssistedPolicy":
        """The same without support: no advice is given, and every decision is left to practice."""
        return AssistedPolicy(self.advice, jnp.zeros_like(self.support), self.dial, self.deviation)

    @property
    def bound(self) -> float:
        """cC, the largest weight of a stay."""
        return self.dial * self.deviation

    @property
    def supported(self) -> Bool[Array, " S"]:
        """Where advice can be given at all."""
        return self.support >= LEAST_SUPPORT

    @property
    def alpha(self) -> Float[Array, " S"]:
        """The probability with which advice is given while the stay's weight is below C."""
        b = jnp.clip(jnp.where(self.supported, self.support, 1.0), LEAST_SUPPORT, 1.0)
        share = jnp.where(b < 1.0, (self.dial - 1.0) * b / jnp.where(b < 1.0, 1.0 - b, 1.0), 1.0)
        return jnp.where(self.supported & (self.dial > 1.0), jnp.minimum(share, 1.0), 0.0)

    def rho(self, states: Int[Array, "*n"], actions: Int[Array, "*n"]) -> Float[Array, "*n"]:
        """The one-step weights; 1 outside the world."""
        S = self.advice.shape[0]
        inside = (states >= 0) & (states < S)
        s = jnp.where(inside, states, 0)
        alpha, b = jnp.where(inside, self.alpha[s], 0.0), jnp.clip(self.support[s], LEAST_SUPPORT, 1.0)
        rho = 1.0 - alpha + jnp.where(actions == self.advice[s], alpha / b, 0.0)
        return jnp.clip(rho, 0.0, self.dial)

    def followed(
        self, states: Int[Array, " H"], actions: Int[Array, " H"], counted: Bool[Array, " H"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The weight w of one recorded stay, and `untouched`; steps that are not `counted` change neither."""
        S = self.advice.shape[0]
        inside = (states >= 0) & (states < S)
        rho = self.rho(states, actions)
        left = 1.0 - jnp.where(inside, self.alpha[jnp.where(inside, states, 0)], 0.0)

        def step(carry: tuple[Array, Array], x: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
            w, untouched = carry
            on = x[2] & (w < self.deviation)
            return (jnp.where(on, w * x[0], w), jnp.where(on, untouched * x[1], untouched)), None

        (w, untouched), _ = jax.lax.scan(step, (jnp.ones(()), jnp.ones(())), (rho, left, counted))
        w = jnp.clip(w, 0.0, self.bound)
        return w, jnp.minimum(untouched, w)

    def __call__(self, observations: Int[ArrayLike, "*n"]) -> Int[np.ndarray, "*n"]:
        """The advice for these states, or -1 where there is none: leave it to the clinician."""
        states = np.asarray(observations)
        advice, alpha = np.asarray(self.advice), np.asarray(self.alpha)
        if states.dtype.kind not in "iu" or np.any((states < 0) | (states >= len(advice))):
            raise ValueError(f"`observations` must be whole numbers in [0, {len(advice)}), the states of the world.")
        return np.where(alpha[states] > 0, advice[states], LEAVE)

    def stay(self, *, key: PRNGKeyArray | None = None) -> "Stay":
        """Advice for one stay, decision by decision; without `key`, randomness comes from the operating system."""
        seed = None if key is None else [int(word) for word in np.asarray(jr.key_data(key)).ravel()]
        return Stay(self, np.random.default_rng(seed))


class Stay:
    """One stay under an assisted policy: call `advise` before and `took` after every decision."""

    def __init__(self, policy: AssistedPolicy, generator: np.random.Generator) -> None:
        self._policy, self._generator, self._advice = policy, generator, np.asarray(policy.advice)
        states = jnp.arange(policy.advice.shape[0])
        self._alpha, self._state = np.asarray(policy.alpha), LEAVE
        self._taken, self._left = (np.asarray(policy.rho(states, a)) for a in (policy.advice, states * 0 + LEAVE))
        self.weight = 1.0

    def advise(self, observation: int) -> int:
        """The action to take, or -1: leave it to the clinician."""
        if not 0 <= int(observation) < len(self._advice):
            raise ValueError(f"`observation` must be a whole number in [0, {len(self._advice)}), a state of the world.")
        self._state = int(observation)
        drawn = self._generator.random() < self._alpha[self._state]
        return int(self._advice[self._state]) if drawn and self.weight < self._policy.deviation else LEAVE

    def took(self, action: int) -> None:
        """What was done in the end, whoever decided it."""
        if self._state == LEAVE:
            raise ValueError("`took` without `advise`: every decision begins with `advise(observation)`.")
        if self.weight < self._policy.deviation:
            advised = int(action) == int(self._advice[self._state])
            self.weight *= float((self._taken if advised else self._left)[self._state])
        self._state = LEAVE


class SimulatedGain(NamedTuple):
    """What a policy is worth beyond practice, with the standard error of the simulation; and practice's exact value."""

    gain: float
    se: float
    practice: float

    @property
    def value(self) -> float:
        return self.practice + self.gain


def stationary_advice(probabilities: Float[ArrayLike, "H S A"], steps: int = 10) -> Int[np.ndarray, " S"]:
    """One action per state: the most probable one over the first `steps` steps together (the first in a tie)."""
    return np.asarray(probabilities)[:steps].sum(axis=0).argmax(axis=-1)


def simulated_gain(
    mdp: TabularMDP, practice: Float[Array, "S A"], policy: AssistedPolicy, stays: int, *, key: PRNGKeyArray
) -> SimulatedGain:
    """The value of an assisted policy in a known world, by simulation of what it adds to practice's exact value.

    By the performance difference lemma J(pi) - J(b) = E_pi sum_h alpha(s_h) 1{w_h < C} (Q^b_h(s_h, a*) - V^b_h(s_h)).
    What is averaged is that sum along simulated stays, whose variance is a small fraction of that of a return.
    """
    everywhere = TabularPolicy(jnp.broadcast_to(practice, (mdp.horizon, *practice.shape)))
    V = policy_values(mdp, everywhere)
    world = _World(
        jnp.asarray(np.cumsum(np.asarray(mdp.initial))),
        jnp.asarray(np.cumsum(np.asarray(practice), axis=-1)),
        jnp.asarray(np.cumsum(np.asarray(mdp.transition), axis=-1)),
        jnp.asarray(_advantages(mdp, policy, V)),
    )
    chunks = -(-stays // _CHUNK)
    sums = np.concatenate([np.asarray(_added(world, policy, k)) for k in jr.split(key, chunks)])[:stays]
    return SimulatedGain(float(sums.mean()), float(sums.std() / math.sqrt(stays)), float(mdp.initial @ V[0]))


class _World(eqx.Module):
    """Distribution functions of first states, of practice and of next states, and the advantage of the advice."""

    initial: Float[Array, " S"]
    acting: Float[Array, "S A"]
    moving: Float[Array, "G S A S"]
    advantage: Float[Array, "H S"]


def _advantages(mdp: TabularMDP, policy: AssistedPolicy, V: Float[Array, "H_plus_1 S"]) -> Float[np.ndarray, "H S"]:
    """Q^b_h(s, a*(s)) - V^b_h(s)."""
    P, r = np.asarray(mdp.transition), np.asarray(mdp.reward)
    s, advice, values = np.arange(mdp.num_states), np.asarray(policy.advice), np.asarray(V)
    stages = [h if len(P) > 1 else 0 for h in range(mdp.horizon)]
    return np.stack([r[g, s, advice] + P[g, s, advice] @ values[h + 1] - values[h] for h, g in enumerate(stages)])


def _pick(cumulative: Float[Array, "rows K"], row: Int[Array, " n"], u: Float[Array, " n"]) -> Int[Array, " n"]:
    """The outcome at which a row's distribution function passes u times its total, by bisection."""
    K = cumulative.shape[-1]
    target = u * cumulative[row, K - 1]
    low, high = jnp.zeros_like(row), jnp.full_like(row, K - 1)
    for _ in range(K.bit_length()):
        middle = (low + high) // 2
        above = cumulative[row, middle] > target
        low, high = jnp.where(above | (low == high), low, middle + 1), jnp.where(above, middle, high)
    return high


@eqx.filter_jit
def _added(world: _World, policy: AssistedPolicy, key: PRNGKeyArray) -> Float[Array, " n"]:
    """One chunk of stays: the sum of alpha times the advantage of the advice over practice, where it was on offer."""
    G, S, A, _ = world.moving.shape
    H, alpha, moving = world.advantage.shape[0], policy.alpha, world.moving.reshape(-1, S)

    def step(carry: tuple[Array, Array, Array], x: tuple[Array, Array, Array]) -> tuple[tuple, None]:
        s, w, total = carry
        stage, advantage, u = x
        on = w < policy.deviation
        total = total + jnp.where(on, alpha[s] * advantage[s], 0.0)
        a = jnp.where(on & (u[0] < alpha[s]), policy.advice[s], _pick(world.acting, s, u[1]))
        w = jnp.where(on, w * policy.rho(s, a), w)
        return (_pick(moving, (stage * S + s) * A + a, u[2]), w, total), None

    first, later = jr.split(key)
    s = _pick(world.initial[None], jnp.zeros(_CHUNK, int), jr.uniform(first, (_CHUNK,)))
    stages = jnp.arange(H) if G > 1 else jnp.zeros(H, int)
    u = jr.uniform(later, (H, 3, _CHUNK))
    start = (s, jnp.ones(_CHUNK), jnp.zeros(_CHUNK))
    (_, _, total), _ = jax.lax.scan(step, start, (stages, world.advantage, u))
    return total
