"""Assistance: current practice with a bounded share of advice, whose value recorded episodes can estimate.

Given advice a*(s), the probability b*(s) = b(a*(s)|s) with which practice takes it, a largest ratio c >= 1 and a
largest weight C > 1, both public:

    alpha(s)   = min(1, (c-1) b*/(1-b*)) if b*(s) >= .05, else 0
    pi(.|s)    = (1-alpha) b(.|s) + alpha 1{a*}     the advice with probability alpha, else the clinician decides
    rho(s, a)  = 1 - alpha + alpha 1{a = a*}/b*     one-step weight against practice
    w          = the product of rho; once w >= C, the rest of the episode is left to practice (alpha = 0, rho = 1)

c = 1 is practice itself; an infinite c follows all advice that practice supports. b* is kept in a table: one number for
each state of a finite world, or for each cell of similar observations.

**Formal guarantee.** If a ~ b(.|s), then E[rho | s] = 1 - alpha + alpha b*/b* = 1. rho lies in [0, c], since rho(s, a*)
= 1 + alpha (1-b*)/b* <= 1 + (c-1). A factor is multiplied only while w < C, so w lies in [0, cC] without any clipping,
and by the first statement w is a martingale of mean 1 under practice: the likelihood ratio of a proper policy, which
depends on the episode so far through w. `untouched`, the product of 1 - alpha over the same steps, is the probability
that no advice is drawn along these steps; untouched <= w, since each rho >= 1 - alpha. The ranges of rho and w hold for
every record, whatever the advice and the stated b* are. Their means are 1 only if b* is right.
"""

import abc
import math
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from privrl.contracts.policy import AbstractPolicy

LEAVE = -1
"""The answer "leave it to the clinician"."""
LEAST_SUPPORT = 0.05
"""Advice that practice takes with a smaller probability is never given."""


class Decisions(NamedTuple):
    """The advice at some observations, and b*, the probability with which practice takes it. b* is 0 if it is not known
    accurately enough, and outside the world."""

    advice: Int[Array, "*n"]
    support: Float[Array, "*n"]

    @property
    def supported(self) -> Bool[Array, "*n"]:
        """Where advice can be given at all."""
        return self.support >= LEAST_SUPPORT

    def alpha(self, max_ratio: float) -> Float[Array, "*n"]:
        """The probability with which advice is given while the weight of the episode is below C."""
        b = jnp.clip(jnp.where(self.supported, self.support, 1.0), LEAST_SUPPORT, 1.0)
        share = jnp.where(b < 1.0, (max_ratio - 1.0) * b / jnp.where(b < 1.0, 1.0 - b, 1.0), 1.0)
        return jnp.where(self.supported & (max_ratio > 1.0), jnp.minimum(share, 1.0), 0.0)

    def rho(self, actions: Int[Array, "*n"], max_ratio: float) -> Float[Array, "*n"]:
        """The one-step weights."""
        alpha, b = self.alpha(max_ratio), jnp.clip(self.support, LEAST_SUPPORT, 1.0)
        rho = 1.0 - alpha + jnp.where(actions == self.advice, alpha / b, 0.0)
        return jnp.clip(rho, 0.0, max_ratio)


class AbstractAssisted(AbstractPolicy):
    """Advice, given as often as `max_ratio` and `max_weight` allow.

    `support` is b* of each cell, 0 if it is not known accurately enough. `max_ratio` is c >= 1: the advised action is
    taken at most c times as often as in practice. `max_weight` is C > 1: an episode whose weight has reached C is left
    to practice.
    """

    support: eqx.AbstractVar[Float[Array, " K"]]
    max_ratio: eqx.AbstractVar[float]
    max_weight: eqx.AbstractVar[float]

    def __check_init__(self) -> None:
        if not self.max_ratio >= 1.0:
            raise ValueError(f"`max_ratio` is {self.max_ratio}; it must be at least 1, which is practice itself.")
        if not self.max_weight > 1.0:
            raise ValueError(
                f"`max_weight` is {self.max_weight}; it must be above 1, the weight at the start of an episode."
            )

    @abc.abstractmethod
    def advise(self, observations: Array) -> Int[Array, "*n"]:
        """The advice at any observations, inside or outside the world."""

    @abc.abstractmethod
    def cells(self, observations: Array) -> Int[Array, "*n"]:
        """The position of b* in `support`; -1 outside the world."""

    @abc.abstractmethod
    def check(self, observations: object) -> Array:
        """Convert observations from outside for `decisions`; raises `ValueError` if they do not belong to this
        world."""

    @abc.abstractmethod
    def to_json(self) -> dict[str, object]:
        """Plain JSON, from which the same policy can be read again."""

    def decisions(self, observations: Array) -> Decisions:
        """Advice and b* at any observations, inside or outside the world."""
        cell = self.cells(observations)
        return Decisions(self.advise(observations), jnp.where(cell >= 0, self.support[jnp.maximum(cell, 0)], 0.0))

    def with_limits(self, max_ratio: float, max_weight: float) -> "AbstractAssisted":
        """The same advice with another `max_ratio` and `max_weight`."""
        settings: dict[str, Any] = {"max_ratio": max_ratio, "max_weight": max_weight}
        return replace(self, **settings)

    def without_advice(self) -> "AbstractAssisted":
        """The same policy without support: no advice is given, and practice makes every decision."""
        return eqx.tree_at(lambda policy: policy.support, self, jnp.zeros_like(self.support))

    @property
    def is_silent(self) -> bool:
        """Whether no advice is given anywhere."""
        return not bool((self.support >= LEAST_SUPPORT).any())

    @property
    def entries(self) -> int:
        """Roughly how many numbers a decision at one observation computes; 0 means few."""
        return 0

    @property
    def bound(self) -> float:
        """cC, the largest weight of an episode."""
        return self.max_ratio * self.max_weight

    def rho(self, observations: Array, actions: Int[Array, "*n"]) -> Float[Array, "*n"]:
        """The one-step weights; 1 outside the world."""
        return self.decisions(observations).rho(actions, self.max_ratio)

    def weigh(
        self, observations: Array, actions: Int[Array, " H"], counted: Bool[Array, " H"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The weight w of one recorded episode, and `untouched`; steps that are not `counted` change neither."""
        at = self.decisions(observations)
        rho, left = at.rho(actions, self.max_ratio), 1.0 - at.alpha(self.max_ratio)

        def step(carry: tuple[Array, Array], x: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
            w, untouched = carry
            on = x[2] & (w < self.max_weight)
            return (jnp.where(on, w * x[0], w), jnp.where(on, untouched * x[1], untouched)), None

        (w, untouched), _ = jax.lax.scan(step, (jnp.ones(()), jnp.ones(())), (rho, left, counted))
        w = jnp.clip(w, 0.0, self.bound)
        return w, jnp.minimum(untouched, w)

    def __call__(self, observations: object) -> Int[np.ndarray, "*n"]:
        """The advice at these observations, or -1 to leave the decision to the clinician."""
        advice, alpha, _, _ = _decided(self, self.check(observations))
        return np.where(np.asarray(alpha) > 0, np.asarray(advice), LEAVE)

    def start_episode(self, *, key: PRNGKeyArray | None = None) -> "AssistedEpisode":
        """Start to advise in one episode, decision by decision. Without `key`, the operating system supplies
        randomness."""
        seed = None if key is None else [int(word) for word in np.asarray(jr.key_data(key)).ravel()]
        return AssistedEpisode(self, np.random.default_rng(seed))


class AssistedEpisode:
    """One episode under an assisted policy: call `advise` before and `record` after every decision."""

    def __init__(self, policy: AbstractAssisted, generator: np.random.Generator) -> None:
        self._policy, self._generator = policy, generator
        self._at: tuple[float, ...] | None = None
        self.weight = 1.0

    def advise(self, observation: object) -> int:
        """The action to take, or -1 to leave the decision to the clinician."""
        self._at = tuple(float(x) for x in _decided(self._policy, self._policy.check(observation)))
        drawn = self._generator.random() < self._at[1]
        return int(self._at[0]) if drawn and self.weight < self._policy.max_weight else LEAVE

    def record(self, action: int) -> None:
        """Record the action that was taken, by advice or by the clinician."""
        if self._at is None:
            raise ValueError("`record` was called without `advise`. Call `advise(observation)` before every decision.")
        advice, _, taken, left = self._at
        if self.weight < self._policy.max_weight:
            self.weight *= taken if int(action) == advice else left
        self._at = None


def to_json_number(number: float) -> float | str:
    """A number for JSON; numbers that are not finite become text."""
    return number if math.isfinite(number) else repr(number)


@eqx.filter_jit
def _decided(policy: AbstractAssisted, observations: Array) -> tuple[Array, Array, Array, Array]:
    """Advice, alpha, and rho if the advice is taken and if it is not."""
    at = policy.decisions(observations)
    taken, left = (at.rho(actions, policy.max_ratio) for actions in (at.advice, jnp.full_like(at.advice, LEAVE)))
    return at.advice, at.alpha(policy.max_ratio), taken, left
