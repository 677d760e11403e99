"""An assisted policy in a finite world, and its value there; `assistance.py` defines assistance."""

import math
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from privrl.mdp.assistance import LEAST_SUPPORT, AbstractAssisted, Decisions, to_json_number
from privrl.mdp.exported_policy import ASSISTED_ON_STATES
from privrl.mdp.observations import STATE
from privrl.mdp.planning import policy_values
from privrl.mdp.rules import Rules, rules_array
from privrl.mdp.types import TabularMDP, TabularPolicy

_CHUNK = 4096  # episodes simulated at once


class AssistedPolicy(AbstractAssisted):
    """Advice for every state, given as often as `max_ratio` and `max_weight` allow, unless a rule forbids it.

    Arguments:
        advice: one action per state.
        support: b*(s), the probability with which practice takes it; 0 if it is not known accurately enough.
        max_ratio: c >= 1; the advised action is taken at most c times as often as in practice.
        max_weight: C > 1; the weight of an episode never exceeds C, and at C it is left to practice.
        rules: public rules, kept at every decision.
        strength: g of each state, in [0, 1]: how strongly advice is given there; by default 1 everywhere.
        horizon: the number of decisions of an episode that were evaluated; from there on no advice is given.
    """

    advice: Int[Array, " S"] = eqx.field(converter=jnp.asarray)
    support: Float[Array, " S"] = eqx.field(converter=jnp.asarray)
    max_ratio: float = eqx.field(static=True, converter=float, default=1.5)
    max_weight: float = eqx.field(static=True, converter=float, default=4.0)
    rules: Rules = eqx.field(static=True, default=Rules())
    strength: Float[Array, " S"] | None = None
    horizon: int = eqx.field(static=True, converter=operator.index, kw_only=True)

    def __check_init__(self) -> None:
        if self.strength is not None and self.strength.shape != self.support.shape:
            raise ValueError("`strength` and `support` must have one number for each state.")

    @classmethod
    def from_practice(
        cls,
        advice: Int[ArrayLike, " S"],
        practice: Float[ArrayLike, "S A"],
        max_ratio: float = 1.5,
        max_weight: float = 4.0,
        *,
        horizon: int,
    ) -> "AssistedPolicy":
        """Take the support from the probabilities `[S, A]` of practice."""
        advice, practice = jnp.asarray(advice), jnp.asarray(practice)
        support = practice[jnp.arange(len(advice)), advice]
        return cls(advice, support, max_ratio, max_weight, horizon=horizon)

    def choose(self, observations: Int[Array, "*n"], previous: Int[Array, "*n"] | None = None) -> Int[Array, "*n"]:
        return self.advice[jnp.maximum(self.cells(observations), 0)]

    def allows(
        self, observations: Int[Array, "*n"], actions: Int[Array, "*n"], previous: Int[Array, "*n"] | None
    ) -> Bool[Array, "*n"]:
        allowed = self.rules.mask((STATE,), jnp.asarray(observations, float)[..., None], previous)
        return jnp.take_along_axis(allowed, actions[..., None], axis=-1)[..., 0]

    def cells(self, observations: Int[Array, "*n"], previous: Int[Array, "*n"] | None = None) -> Int[Array, "*n"]:
        inside = (observations >= 0) & (observations < self.advice.shape[0])
        return jnp.where(inside, observations, -1)

    def check(self, observations: object) -> Int[Array, "*n"]:
        states, S = np.asarray(observations), len(self.advice)
        if states.dtype.kind not in "iu" or np.any((states < 0) | (states >= S)):
            raise ValueError(f"`observations` must be whole numbers in [0, {S}), each a state of the world.")
        return jnp.asarray(states, int)

    def to_json(self) -> dict[str, object]:
        """The whole policy as JSON; `ExportedPolicy` runs it without JAX."""
        return {
            "kind": ASSISTED_ON_STATES,
            "horizon": self.horizon,
            "advice": np.asarray(self.advice).tolist(),
            "support": np.asarray(self.support).tolist(),
            "strength": np.asarray(self.strengths).tolist(),
            "max_ratio": to_json_number(self.max_ratio),
            "max_weight": to_json_number(self.max_weight),
            "least_support": LEAST_SUPPORT,
            **({"num_actions": self.rules.num_actions, "rules": self.rules.to_json()} if self.rules else {}),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """The policy as named arrays, for a saved result."""
        own = ("advice", "support", "max_ratio", "max_weight", "horizon")
        found = {name: np.asarray(getattr(self, name)) for name in own} | {"strength": np.asarray(self.strengths)}
        return found | rules_array(self.rules)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "AssistedPolicy":
        """Read the output of `to_json`."""
        advice = jnp.asarray(content["advice"], int)
        support, strength = (jnp.asarray(content[name], float) for name in ("support", "strength"))
        if advice.ndim != 1 or not advice.shape == support.shape == strength.shape:
            raise ValueError("`advice`, `support` and `strength` must be lists with one entry for each state.")
        check_strength(strength)
        rules = Rules.from_json(content.get("rules", ()), content.get("num_actions", 0))
        limits = (content["max_ratio"], content["max_weight"])
        return cls(advice, support, *limits, rules, strength, horizon=content["horizon"])

    @property
    def supported(self) -> Bool[Array, " S"]:
        """Where advice can be given at all."""
        return self.support >= LEAST_SUPPORT

    @property
    def alpha(self) -> Float[Array, " S"]:
        """The probability with which advice is given in each state at the start of an episode."""
        return Decisions(self.advice, self.support, self.strengths).alpha(self.ratio_at(1.0))

    @property
    def strengths(self) -> Float[Array, " S"]:
        return jnp.ones_like(self.support) if self.strength is None else self.strength


def check_strength(strength: ArrayLike) -> None:
    """Refuse strengths from outside that are not numbers in [0, 1]."""
    g = np.asarray(strength)
    if g.dtype.kind not in "biuf" or not ((g >= 0.0) & (g <= 1.0)).all():  # also not a number
        raise ValueError("`strength` must hold numbers in [0, 1].")


class SimulatedGain(NamedTuple):
    """The gain of a policy over practice, with the standard error of the simulation, and the exact value of
    practice."""

    gain: float
    se: float
    practice: float

    @property
    def value(self) -> float:
        return self.practice + self.gain


def stationary_advice(probabilities: Float[ArrayLike, "H S A"], steps: int = 10) -> Int[np.ndarray, " S"]:
    """One action per state: the most probable one over the first `steps` steps together (the first in a tie)."""
    return np.asarray(probabilities)[:steps].sum(axis=0).argmax(axis=-1)


def simulate_gain(
    mdp: TabularMDP, practice: Float[Array, "S A"], policy: AssistedPolicy, episodes: int, *, key: PRNGKeyArray
) -> SimulatedGain:
    """Simulate the gain of an assisted policy over the exact value of practice, in a known world.

    By the performance difference lemma J(pi) - J(b) = E_pi sum_h alpha(s_h, w_h) (Q^b_h(s_h, a*) - V^b_h(s_h)).
    The estimate is the mean of that sum along simulated episodes; its variance is a small fraction of that of a return.
    """
    everywhere = TabularPolicy(jnp.broadcast_to(practice, (mdp.horizon, *practice.shape)))
    V = policy_values(mdp, everywhere)
    world = _World(
        jnp.asarray(np.cumsum(np.asarray(mdp.initial))),
        jnp.asarray(np.cumsum(np.asarray(practice), axis=-1)),
        jnp.asarray(np.cumsum(np.asarray(mdp.transition), axis=-1)),
        jnp.asarray(_advantages(mdp, policy, V)),
    )
    chunks = -(-episodes // _CHUNK)
    sums = np.concatenate([np.asarray(_added(world, policy, k)) for k in jr.split(key, chunks)])[:episodes]
    return SimulatedGain(float(sums.mean()), float(sums.std() / math.sqrt(episodes)), float(mdp.initial @ V[0]))


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
    """One chunk of episodes: the sum of alpha times the advantage of the advice over practice."""
    G, S, A, _ = world.moving.shape
    H, moving = world.advantage.shape[0], world.moving.reshape(-1, S)

    def step(carry: tuple[Array, Array, Array], x: tuple[Array, Array, Array, Array]) -> tuple[tuple, None]:
        s, w, total = carry
        number, stage, advantage, u = x
        at, ratio = policy.decisions(s), policy.ratio_at(w, number)
        alpha = at.alpha(ratio)
        total = total + alpha * advantage[s]
        a = jnp.where(u[0] < alpha, at.advice, _pick(world.acting, s, u[1]))
        w = jnp.minimum(w * at.rho(a, ratio), policy.bound)
        return (_pick(moving, (stage * S + s) * A + a, u[2]), w, total), None

    first, later = jr.split(key)
    s = _pick(world.initial[None], jnp.zeros(_CHUNK, int), jr.uniform(first, (_CHUNK,)))
    stages = jnp.arange(H) if G > 1 else jnp.zeros(H, int)
    u = jr.uniform(later, (H, 3, _CHUNK))
    start = (s, jnp.ones(_CHUNK), jnp.zeros(_CHUNK))
    (_, _, total), _ = jax.lax.scan(step, start, (jnp.arange(H), stages, world.advantage, u))
    return total
