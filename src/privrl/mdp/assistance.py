"""Assistance: current practice with a bounded share of advice, whose value recorded episodes can estimate.

Given advice a*(s), the probability b*(s) = b(a*(s)|s) with which practice takes it, a strength g(s) in [0, 1], a
largest ratio c >= 1 and a largest weight C > 1, all public:

    k          = 1 + g(s) (min(c, C/w) - 1)         the factor at this decision; w is the weight of the episode so far
    alpha(s)   = min(1, (k-1) b*/(1-b*)) if b*(s) >= .05, else 0
    pi(.|s)    = (1-alpha) b(.|s) + alpha 1{a*}     the advice with probability alpha, else the clinician decides
    rho(s, a)  = 1 - alpha + alpha 1{a = a*}/b*     one-step weight against practice
    w          = the product of rho; once w = C, the rest of the episode is left to practice (k = 1, alpha = 0, rho = 1)

c = 1 is practice itself; an infinite c follows all advice that practice supports, until w = C. From decision `horizon`
on, nothing was evaluated, and practice decides (k = 1), even if an episode goes on. b* is kept in a table:
one number for each state of a finite world, or for each cell of similar observations.

The variance of w is what an evaluation pays for. One decision adds about alpha^2 (1-b*)/b* to it and alpha A to the
gain, with A the advantage of the advice over practice. For a given variance, the gain is largest if k - 1, which is
alpha (1-b*)/b*, is in proportion to A. Hence g is the estimated advantage, in the units of `advice_strength` and cut at
1. It is 1 if there is no estimate.

**Formal guarantee.** If a ~ b(.|s), then E[rho | s] = 1 - alpha + alpha b*/b* = 1. rho lies in [0, k], since rho(s, a*)
= 1 + alpha (1-b*)/b* <= 1 + (k-1), and k <= C/w. So w rho <= w k <= C: w lies in [0, C] without any clipping, and by
the first statement w is a martingale of mean 1 under practice: the likelihood ratio of a proper policy, which depends
on the episode so far through w. `untouched`, the product of 1 - alpha over the same steps, is the probability that no
advice is drawn along these steps; untouched <= w, since each rho >= 1 - alpha. The ranges of rho and w hold for every
record, whatever the advice and the stated b* are. Their means are 1 only if b* is right.
"""

import abc
import math
from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from privrl.contracts.policy import AbstractPolicy
from privrl.mdp.exported_policy import LEAVE, Advice, Episode, ExportedPolicy, Observation
from privrl.mdp.rules import NO_ACTION, Rules

_LEAST_LOGGED, _HUGE = 1e-12, 1e100  # smaller probabilities and larger products count as these, which lowers weights
LEAST_SUPPORT = 0.05
"""Advice that practice takes with a smaller probability is never given."""
_DRAWS = 32  # of the weights of an episode under the policy


class Decisions(NamedTuple):
    """The advice at some observations, b*, the probability with which practice takes it, and g, how strongly it is
    given. b* is 0 if it is not known accurately enough, and outside the world."""

    advice: Int[Array, "*n"]
    support: Float[Array, "*n"]
    strength: Float[Array, "*n"]

    @property
    def supported(self) -> Bool[Array, "*n"]:
        """Where advice can be given at all."""
        return self.support >= LEAST_SUPPORT

    def alpha(self, max_ratio: ArrayLike) -> Float[Array, "*shape"]:
        """The probability with which advice is given, if it may be taken `max_ratio` times as often as in practice."""
        b = jnp.clip(jnp.where(self.supported, self.support, 1.0), LEAST_SUPPORT, 1.0)
        ratio = self.ratio(max_ratio)
        share = jnp.where(b < 1.0, (ratio - 1.0) * b / jnp.where(b < 1.0, 1.0 - b, 1.0), 1.0)
        return jnp.where(self.supported & (ratio > 1.0), jnp.minimum(share, 1.0), 0.0)

    def rho(self, actions: Int[Array, "*n"], max_ratio: ArrayLike) -> Float[Array, "*shape"]:
        """The one-step weights."""
        alpha, b = self.alpha(max_ratio), jnp.clip(jnp.where(self.supported, self.support, 1.0), LEAST_SUPPORT, 1.0)
        rho = 1.0 - alpha + jnp.where(actions == self.advice, alpha / b, 0.0)
        return jnp.clip(rho, 0.0, self.ratio(max_ratio))

    def largest_change(self, max_ratio: ArrayLike) -> Float[Array, "*shape"]:
        """The largest |rho - 1| of any action: alpha if another one is taken, alpha (1-b*)/b* if the advised one is."""
        b = jnp.clip(jnp.where(self.supported, self.support, 1.0), LEAST_SUPPORT, 1.0)
        return self.alpha(max_ratio) * jnp.maximum(1.0, (1.0 - b) / b)

    def ratio(self, max_ratio: ArrayLike) -> Float[Array, "*shape"]:
        """1 + g (k - 1): how many times as often as in practice the advice may be taken here."""
        g = jnp.clip(self.strength, 0.0, 1.0)
        return 1.0 + jnp.where(g > 0.0, g * (jnp.asarray(max_ratio, float) - 1.0), 0.0)


def ratio_at(weight: ArrayLike, max_ratio: ArrayLike, max_weight: ArrayLike) -> Float[Array, "*n"]:
    """k = min(c, C/w): how many times as often as in practice the advice may be taken at this weight."""
    w = jnp.asarray(weight, float)
    w = jnp.where(jnp.isinf(jnp.asarray(max_weight)), 0.0, w)  # there is no limit, even if a product overflows
    return jnp.clip(jnp.where(w > 0.0, max_weight / jnp.where(w > 0.0, w, 1.0), jnp.inf), 1.0, max_ratio)


class EpisodeWeights(NamedTuple):
    """The weights of one recorded episode, for every pair of a largest ratio and a largest weight.

    `steps` are those after each step, `last` is the one at the end. `untouched` is the part of `last` along which no
    advice is drawn. `reach` is how far each step can move the weight, whatever is done at it: known before the action.
    """

    last: Float[Array, "*pairs"]
    untouched: Float[Array, "*pairs"]
    steps: Float[Array, "H *pairs"]
    reach: Float[Array, "H *pairs"]


def weigh_episode(
    at: Decisions,
    actions: Int[Array, " H"],
    counted: Bool[Array, " H"],
    max_ratio: Float[Array, "*pairs"],
    max_weight: Float[Array, "*pairs"],
    logged: Float[Array, " H"] | None = None,
) -> EpisodeWeights:
    """The weights of one recorded episode.

    With `logged`, the probabilities with which the recorded actions were taken, the weight is the product of
    1 - alpha + alpha 1{a = a*}/p, clipped to [0, C]; alpha still follows the released support, as at the bedside.
    """
    p = None if logged is None else jnp.clip(jnp.where(jnp.isfinite(logged), logged, 1.0), _LEAST_LOGGED, 1.0)

    def step(carry: tuple[Array, ...], x: tuple[Decisions, Array, Array, Array | None]) -> tuple[tuple, tuple]:
        (running, untouched, w), (here, action, on, taken) = carry, x
        ratio = ratio_at(running, max_ratio, max_weight)
        alpha, rho = here.alpha(ratio), here.rho(action, ratio)
        factor = rho if taken is None else 1.0 - alpha + jnp.where(action == here.advice, alpha / taken, 0.0)
        after = jnp.minimum(running * rho, max_weight), untouched * (1.0 - alpha), jnp.minimum(w * factor, _HUGE)
        kept = tuple(jnp.where(on, new, old) for new, old in zip(after, carry, strict=True))
        return kept, (weight_of(*kept), jnp.where(on, running * here.largest_change(ratio), 0.0))

    def weight_of(running: Array, untouched: Array, w: Array) -> Array:
        return running if p is None else jnp.minimum(w, max_weight)

    ones = jnp.ones(max_ratio.shape)
    kept, (steps, reach) = jax.lax.scan(step, (ones, ones, ones), (at, actions, counted, p))
    last = weight_of(*kept)
    return EpisodeWeights(last, jnp.minimum(kept[1], last), steps, reach)


def _public_draws(steps: int) -> Float[np.ndarray, "steps draws"]:
    """The same evenly spread draws from [0, 1] in another order at each step, whatever the records are."""
    rng = np.random.default_rng(0)
    return np.stack([(rng.permutation(_DRAWS) + 0.5) / _DRAWS for _ in range(steps)])


def previous_actions(actions: Int[Array, " H"]) -> Int[Array, " H"]:
    """The action before each step of one recorded episode; -1 before the first."""
    return jnp.concatenate([jnp.full(1, NO_ACTION, actions.dtype), actions[:-1]])


class AbstractAssisted(AbstractPolicy):
    """Advice, given as often as `max_ratio` and `max_weight` allow.

    `support` is b* of each cell, 0 if it is not known accurately enough. `max_ratio` is c >= 1: the advised action is
    taken at most c times as often as in practice. `max_weight` is C > 1: the weight of an episode never exceeds C, and
    an episode that has reached it is left to practice. `rules` are public, and kept at every decision. `horizon` is the
    number of decisions that were evaluated; later ones are left to practice.
    """

    support: eqx.AbstractVar[Float[Array, " K"]]
    max_ratio: eqx.AbstractVar[float]
    max_weight: eqx.AbstractVar[float]
    rules: eqx.AbstractVar[Rules]
    horizon: eqx.AbstractVar[int]

    def __check_init__(self) -> None:
        if not self.max_ratio >= 1.0:
            raise ValueError(f"`max_ratio` is {self.max_ratio}; it must be at least 1, which is practice itself.")
        if not self.max_weight > 1.0:
            raise ValueError(
                f"`max_weight` is {self.max_weight}; it must be above 1, the weight at the start of an episode."
            )
        if not self.horizon >= 1:
            raise ValueError(f"`horizon` is {self.horizon}; it must be the number of decisions of an episode, above 0.")

    @abc.abstractmethod
    def choose(self, observations: Array, previous: Int[Array, "*n"] | None = None) -> Int[Array, "*n"]:
        """The advice at any observations, inside or outside the world.

        `previous` are the previous actions, -1 at the first decision of an episode. Without them, rules that depend on
        the previous action are left out.
        """

    @abc.abstractmethod
    def allows(
        self, observations: Array, actions: Int[Array, "*n"], previous: Int[Array, "*n"] | None
    ) -> Bool[Array, "*n"]:
        """Whether rules allow these actions, if there are rules."""

    @abc.abstractmethod
    def cells(self, observations: Array, previous: Int[Array, "*n"] | None = None) -> Int[Array, "*n"]:
        """The position of b* in `support`; -1 outside the world."""

    @abc.abstractmethod
    def check(self, observations: object) -> Array:
        """Convert observations from outside for `decisions`; raises `ValueError` if they do not belong to this
        world."""

    @abc.abstractmethod
    def to_json(self) -> dict[str, object]:
        """Plain JSON, from which the same policy can be read again."""

    def decisions(self, observations: Array, previous: Int[Array, "*n"] | None = None) -> Decisions:
        """Advice and b* at any observations, inside or outside the world, `previous` as in `choose`.

        Where a rule forbids the advice, b* is 0: the decision is left to the clinician.
        """
        cell, advice = self.cells(observations, previous), self.choose(observations, previous)
        support = jnp.where(cell >= 0, self.support[jnp.maximum(cell, 0)], 0.0)
        if self.rules:
            support = jnp.where(self.allows(observations, advice, previous), support, 0.0)
        return Decisions(advice, support, self.strength_at(observations, advice, cell))

    def with_limits(self, max_ratio: float, max_weight: float) -> "AbstractAssisted":
        """The same advice with another `max_ratio` and `max_weight`."""
        settings: dict[str, object] = {"max_ratio": max_ratio, "max_weight": max_weight}
        return replace(self, **settings)

    def without_advice(self) -> "AbstractAssisted":
        """The same policy without support: no advice is given, and practice makes every decision."""
        return eqx.tree_at(lambda policy: policy.support, self, jnp.zeros_like(self.support))

    @property
    def strengths(self) -> Float[Array, " K"]:
        """The largest g of each cell, in [0, 1]."""
        return jnp.ones_like(self.support)

    def strength_at(self, observations: Array, advice: Int[Array, "*n"], cell: Int[Array, "*n"]) -> Float[Array, "*n"]:
        """g at any observations."""
        return self.strengths[jnp.maximum(cell, 0)]

    @property
    def is_silent(self) -> bool:
        """Whether no advice is given anywhere."""
        return not bool(((self.support >= LEAST_SUPPORT) & (self.strengths > 0.0)).any())

    @property
    def entries(self) -> int:
        """Roughly how many numbers a decision at one observation computes; 0 means few."""
        return 0

    @property
    def bound(self) -> float:
        """C, the largest weight of an episode."""
        return self.max_weight

    def ratio_at(self, weight: ArrayLike, step: ArrayLike = 0) -> Float[Array, "*n"]:
        """How many times as often as in practice the advice may be taken at this weight and step of the episode."""
        return jnp.where(jnp.asarray(step) < self.horizon, ratio_at(weight, self.max_ratio, self.max_weight), 1.0)

    def rho(self, observations: Array, actions: Int[Array, "*n"]) -> Float[Array, "*n"]:
        """The one-step weights at the start of an episode; 1 outside the world."""
        return self.decisions(observations).rho(actions, self.max_ratio)

    def weigh(
        self,
        observations: Array,
        actions: Int[Array, " H"],
        counted: Bool[Array, " H"],
        limits: tuple[tuple[float, float], ...] | None = None,
        logged: Float[Array, " H"] | None = None,
    ) -> EpisodeWeights:
        """The weights of one recorded episode; steps that are not `counted` do not change them.

        With `limits`, pairs of a largest ratio and a largest weight in place of the policy's own, there is one entry
        for each pair. `logged`: see `weigh_episode`.
        """
        ratio, weight = jnp.asarray((self.max_ratio, self.max_weight) if limits is None else limits, float).T
        at = self.decisions(observations, previous_actions(actions))
        at = at._replace(support=jnp.where(jnp.arange(len(actions)) < self.horizon, at.support, 0.0))
        return weigh_episode(at, actions, counted, ratio, weight, logged)

    def changed_decisions(
        self, observations: Array, actions: Int[Array, " H"], counted: Bool[Array, " H"]
    ) -> Float[Array, " H"]:
        """The probability that the policy changes the decision, at each step of one recorded episode; 0 at steps that
        are not `counted`.

        It is alpha where practice did something else, and 0 where practice took the advised action. It is averaged over
        public draws of the policy's own actions, on which the weight depends: the policy takes the advised action with
        probability alpha, and else the recorded one. b* is used for alpha alone.
        """

        def step(w: Array, x: tuple[Decisions, Array, Array, Array, Array]) -> tuple[Array, Array]:
            here, recorded, draw, on, number = x
            ratio = self.ratio_at(w, number)
            alpha = here.alpha(ratio)
            action = jnp.where(draw < alpha, here.advice, recorded)
            after = jnp.minimum(w * here.rho(action, ratio), self.max_weight)
            changed = jnp.where(recorded == here.advice, 0.0, alpha.mean())
            return jnp.where(on, after, w), jnp.where(on, changed, 0.0)

        at = self.decisions(observations, previous_actions(actions))
        draws = jnp.asarray(_public_draws(len(actions)))
        steps = jnp.arange(len(actions))
        return jax.lax.scan(step, jnp.ones(_DRAWS), (at, actions, draws, counted, steps))[1]

    def __call__(self, observations: object) -> Int[np.ndarray, "*n"]:
        """The advice at the first decision of an episode if it is certain to be given at these observations, else -1.

        Advice with a probability below 1 must be drawn, as `start_episode` does. `advise` states the probability.
        """
        checked = self.check(observations)
        cells = jax.eval_shape(self.cells, checked)
        advice, alpha = _decided(self, checked, jnp.full(cells.shape, NO_ACTION))
        return np.where(np.asarray(alpha) >= 1.0, np.asarray(advice), LEAVE)

    def advise(self, observation: Observation, *, previous: int | None = None) -> Advice:
        """The advice at the first decision of an episode, the probability with which to give it, and what is unusual
        about the observation.

        Nothing is drawn, so there is no `action` unless the probability is 1: a program that always followed the advice
        would exceed the limits that were evaluated. `start_episode` draws, and is for later decisions too.

        Arguments:
            observation: one observation, in the form that `check` takes.
            previous: the action that was taken before, if it is known; only rules use it.
        """
        return ExportedPolicy(self.to_json()).advise(observation, previous=previous)

    def start_episode(self, *, key: PRNGKeyArray | None = None) -> Episode:
        """Start to advise in one episode, decision by decision. Without `key`, the operating system supplies
        randomness."""
        if key is None:
            return ExportedPolicy(self.to_json()).start_episode()
        seed = [int(word) for word in np.asarray(jr.key_data(key)).ravel()]
        return ExportedPolicy(self.to_json()).start_episode(draw=np.random.default_rng(seed).random)


def to_json_number(number: float) -> float | str:
    """A number for JSON; numbers that are not finite become text."""
    return number if math.isfinite(number) else repr(number)


@eqx.filter_jit
def _decided(policy: AbstractAssisted, observations: Array, previous: Array) -> tuple[Array, Array]:
    """Advice, and alpha at the start of an episode."""
    at = policy.decisions(observations, previous)
    return at.advice, at.alpha(policy.ratio_at(1.0))
