"""What one person says about a policy that was not used on them: returns, weights, and their products.

G in [0, 1] is a stay's return, as a share of a public range; w in [0, W] its weight under an assisted policy
(`mdp/assistance.py`), W = C; m in [0, 1] a released mean of G. Everything here is about **a person's first stay**, so a
person counts once, and n is the number of people. How many stays follow, and whether they do, may depend on the
treatment. With K stays, (w_k - 1)/K would not have mean 0: advice that harms and prevents a second stay would seem to
help, although E w = 1.

    StayReturns           G                              practice's mean
    CentredReturns        G - m                          how far people of a group are from all people
      (squared=True)      (G-m)^2                        at least the variance of G
    Weights               w                              mean 1, if the probabilities of practice are right
    Unsupported           share of decisions without supported advice
    Changed               share of decisions that the assisted policy changes
    Gains                 D = (w-1)(G-m)                 E D = E[w G] - E[G] = J(pi) - J(b), whatever m is, as E w = 1
                          D = sum (w_t - 1) dG_t         if probabilities were logged; see below
    Gains(squared=True)   D^2
    Influences            ((w-v) G, (w-v) (1-G))         v = `untouched`; for unrecorded influences on treatment

**Formal guarantee** (for all records, whatever they say). Rewards are clipped to [0, 1] one by one (0 where they are
not finite) and G to [0, 1]; w lies in [0, W] by construction. An empty first stay contributes 0, which lies in each of
the intervals below. Replace-one costs the length of the interval, and add-remove its largest absolute value.

- G and a share: [0, 1]. w: [0, W]. G - m: [-m, 1-m]. (G-m)^2: [0, max(m, 1-m)^2].
- D is bilinear in (w, G) on [0, W] x [0, 1], so its extremes are those of the corners: m - 1 and m at w = 0,
  -(W-1) m and (W-1)(1-m) at w = W. Hence D lies in [-max(1-m, (W-1) m), max(m, (W-1)(1-m))]: length W - 1 where
  (W-1) min(m, 1-m) >= max(m, 1-m). D^2 lies in [0, (max(1, W-1) max(m, 1-m))^2].
- `Gains` and `Weights` may hold several pairs of a largest ratio and a largest weight: one entry for each pair j, in
  an interval of length L_j, divided by u_j = sqrt(W_j) (W_j for squares). Entry j moves by at most L_j/u_j, so all of
  them together by at most the root of sum (L_j/u_j)^2 in L2, and by sum L_j/u_j in L1: one release. As L_j is about
  W_j, its noise in D_j grows with sqrt(W_j), as the standard deviation of D_j does. The bound is met: if all weights
  are at their limits and G is 0 in one record and 1 in the other, every entry moves by its whole length.
- With logged probabilities of what was done, and no least one, w_t is the weight after step t, clipped to [0, W]
  whatever they are, and dG_t >= 0 is what step t adds to G. What a step pays depends on the decisions until then alone,
  so later ones need not add to its variance. As the dG_t add up to at most 1, D lies in [-1, W - 1], the interval of
  m = 0. E[w_t dG_t] is at most what step t pays under the policy: clipping, and advice that the program never takes,
  can only lower the estimate.
- Influences: both entries are non-negative and add up to w - v in [0, W]. Two points x, y of that triangle:
  |x - y|^2 = |x|^2 + |y|^2 - 2 <x, y> <= 2 W^2, and |x - y|_1 <= 2 W; one alone has |x| <= |x|_1 <= W.

m is an earlier release, so it is public.
"""

import abc
import math
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from privrl.contracts.statistic import AbstractStatistic, Adjacency, SumHints
from privrl.mdp.assistance import AbstractAssisted, EpisodeWeights, previous_actions
from privrl.mdp.types import Trajectory
from privrl.statistics.setting_checks import check_array


def stay_return(stay: Trajectory, low: float, high: float) -> Float[Array, ""]:
    """G: the return of one stay as a share of [low, high]."""
    return jnp.clip((paid(stay).sum() - low) / (high - low), 0.0, 1.0)


def return_steps(stay: Trajectory, low: float, high: float) -> Float[Array, " H"]:
    """dG: how much each step adds to G. It is never negative, because rewards are not."""
    sums = jnp.concatenate([jnp.zeros(1), jnp.cumsum(paid(stay))])
    return jnp.diff(jnp.clip((sums - low) / (high - low), 0.0, 1.0))


def paid(stay: Trajectory) -> Float[Array, " H"]:
    """The rewards of one stay, each in [0, 1] whatever was recorded, and 0 after its end."""
    counted = stay.valid.astype(float)
    rewards = stay.rewards * counted
    return jnp.clip(jnp.where(jnp.isfinite(rewards), rewards, 0.0), 0.0, counted)


def of_first_stay(of_stay: Callable[[Trajectory], PyTree], person: Trajectory) -> PyTree:
    """What is said of a person's first stay; 0 if it is empty, and in place of entries that are not finite."""
    stay = jax.tree.map(lambda x: jnp.asarray(x)[0], person)
    there = jnp.asarray(stay.length) > 0
    return jax.tree.map(lambda value: jnp.where(there & jnp.isfinite(value), value, 0.0), of_stay(stay))


def check_range(low: float, high: float) -> None:
    """A public range of returns."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"`return_range` is ({low}, {high}); give two finite public numbers, the smaller one first.")


class AbstractStayMean(AbstractStatistic):
    """One number per person, that of their first stay, in a public interval that holds 0."""

    per_person: ClassVar[bool] = True
    shape: tuple[int, ...] = eqx.field(static=True, default=(1,), init=False)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    @abc.abstractmethod
    def of_stay(self, stay: Trajectory) -> Float[Array, ""]:
        """The number of one stay."""

    @abc.abstractmethod
    def interval(self) -> tuple[float, float]:
        """The smallest and the largest number of a person."""

    def contribution(self, record: Trajectory, query: None) -> Float[Array, " 1"]:
        del query
        return of_first_stay(self.of_stay, record)[None]

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True)

    def l2(self, adjacency: Adjacency) -> float:
        low, high = self.interval()
        return high - low if adjacency == "replace-one" else max(-low, high)

    def l1(self, adjacency: Adjacency) -> float:
        return self.l2(adjacency)


class StayReturns(AbstractStayMean):
    """The return G. Arguments: the public `return_range`."""

    return_range: tuple[float, float] = eqx.field(static=True, default=(0.0, 1.0))

    def __check_init__(self) -> None:
        check_range(*self.return_range)

    def of_stay(self, stay: Trajectory) -> Float[Array, ""]:
        return stay_return(stay, *self.return_range)

    def interval(self) -> tuple[float, float]:
        return 0.0, 1.0


class CentredReturns(AbstractStayMean):
    """G - m of the return G, or its square.

    The mean of the square is the variance of returns, plus the square of what m is wrong by.

    Arguments:
        return_range: public.
        centre: m, from an earlier release.
        squared: the square instead.
    """

    return_range: tuple[float, float] = eqx.field(static=True)
    centre: Float[Array, ""]
    squared: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        check_range(*self.return_range)
        check_array("centre", self.centre, (), low=0.0, high=1.0)

    def of_stay(self, stay: Trajectory) -> Float[Array, ""]:
        apart = stay_return(stay, *self.return_range) - jnp.clip(self.centre, 0.0, 1.0)
        return apart**2 if self.squared else apart

    def interval(self) -> tuple[float, float]:
        m = float(self.centre)
        return (0.0, max(m, 1.0 - m) ** 2) if self.squared else (-m, 1.0 - m)


Limits = tuple[tuple[float, float], ...]
"""Pairs of a largest ratio and a largest weight."""


class AbstractPairMeans(AbstractStatistic):
    """One number per person for each of several pairs of limits: that of their first stay, in public units."""

    policy: eqx.AbstractVar[AbstractAssisted]
    limits: eqx.AbstractVar[Limits | None]
    logged: eqx.AbstractVar[bool]
    least_propensity: eqx.AbstractVar[float]
    per_person: ClassVar[bool] = True
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        for _, max_weight in self.pairs:
            if not math.isfinite(max_weight):
                raise ValueError(
                    f"`max_weight` is {max_weight}, so weights have no bound. Use a finite number above 1."
                )

    @abc.abstractmethod
    def of_weights(self, w: EpisodeWeights, stay: Trajectory) -> Float[Array, " pairs"]:
        """The numbers of one stay."""

    @abc.abstractmethod
    def interval(self, max_weight: float) -> tuple[float, float]:
        """The smallest and the largest number of a person, for a pair with this largest weight; 0 lies between."""

    @property
    def pairs(self) -> Limits:
        """The limits, by default those of the policy alone."""
        return ((self.policy.max_ratio, self.policy.max_weight),) if self.limits is None else self.limits

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.pairs),)

    @property
    def units(self) -> Float[np.ndarray, " pairs"]:
        """u_j: what was divided by."""
        return np.sqrt([max_weight for _, max_weight in self.pairs])

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True, working_entries=lambda steps: steps * (self.policy.entries + len(self.pairs)))

    def contribution(self, record: Trajectory, query: None) -> Float[Array, " pairs"]:
        del query

        def of_stay(stay: Trajectory) -> Float[Array, " pairs"]:
            p = stay.propensities if self.logged else None
            p = None if p is None else jnp.maximum(jnp.asarray(p), self.least_propensity)
            acted = (jnp.asarray(stay.states), jnp.asarray(stay.actions), stay.valid)
            w = self.policy.weigh(*acted, self.pairs, p)
            return self.of_weights(w, stay)

        return of_first_stay(of_stay, record) / jnp.asarray(self.units)

    def l2(self, adjacency: Adjacency) -> float:
        return math.hypot(*self._largest(adjacency))

    def l1(self, adjacency: Adjacency) -> float:
        return sum(self._largest(adjacency))

    def _largest(self, adjacency: Adjacency) -> list[float]:
        """How far one person can move each entry."""
        ends = [self.interval(max_weight) for _, max_weight in self.pairs]
        moved = [high - low if adjacency == "replace-one" else max(-low, high) for low, high in ends]
        return [float(x) for x in np.array(moved) / self.units]


class Weights(AbstractPairMeans):
    """The weights w under an assisted policy, for one or several pairs of limits.

    Arguments:
        policy: an assisted policy.
        limits: the pairs; by default those of the policy.
        logged: weights use the logged probabilities of what was done.
        least_propensity: smaller probabilities count as this.
    """

    policy: AbstractAssisted
    limits: Limits | None = eqx.field(static=True, default=None)
    logged: bool = eqx.field(static=True, default=False)
    least_propensity: float = eqx.field(static=True, default=0.0)

    def of_weights(self, w: EpisodeWeights, stay: Trajectory) -> Float[Array, " pairs"]:
        return w.last

    def interval(self, max_weight: float) -> tuple[float, float]:
        return 0.0, max_weight


class Unsupported(AbstractStayMean):
    """The share of a stay's decisions at which the assisted policy has no supported advice."""

    policy: AbstractAssisted

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True, working_entries=lambda steps: steps * self.policy.entries)

    def of_stay(self, stay: Trajectory) -> Float[Array, ""]:
        states, before = jnp.asarray(stay.states), previous_actions(jnp.asarray(stay.actions))
        without = ~self.policy.decisions(states, before).supported
        return (stay.valid & without).sum() / jnp.maximum(stay.valid.sum(), 1)

    def interval(self) -> tuple[float, float]:
        return 0.0, 1.0


class Changed(AbstractStayMean):
    """The share of a stay's decisions that the assisted policy changes: the mean of alpha 1{a != a*}.

    Advice is drawn with probability alpha, and it changes the decision if practice did something else. Alpha falls as
    the weight of the policy's own actions comes near C. Every term lies in [0, 1], so their mean does.
    """

    policy: AbstractAssisted

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True, working_entries=lambda steps: steps * self.policy.entries)

    def of_stay(self, stay: Trajectory) -> Float[Array, ""]:
        changed = self.policy.changed_decisions(jnp.asarray(stay.states), jnp.asarray(stay.actions), stay.valid)
        return jnp.clip(changed.sum() / jnp.maximum(stay.valid.sum(), 1), 0.0, 1.0)

    def interval(self) -> tuple[float, float]:
        return 0.0, 1.0


class Gains(AbstractPairMeans):
    """D = (w-1)(G-m), or its square, for one or several pairs of limits.

    Arguments:
        policy: an assisted policy.
        centre: m, from an earlier release; 0 with `logged`, unless there is a `least_propensity`.
        return_range: public.
        squared: the square of D instead.
        limits: the pairs; by default those of the policy.
        logged: weights use the logged probabilities of what was done.
        least_propensity: smaller probabilities count as this. The study states that there are none, and that no weight
            is clipped (`AbstractEvaluator`).
    """

    policy: AbstractAssisted
    centre: Float[Array, ""]
    return_range: tuple[float, float] = eqx.field(static=True, default=(0.0, 1.0))
    squared: bool = eqx.field(static=True, default=False)
    limits: Limits | None = eqx.field(static=True, default=None)
    logged: bool = eqx.field(static=True, default=False)
    least_propensity: float = eqx.field(static=True, default=0.0)

    def __check_init__(self) -> None:
        check_range(*self.return_range)
        check_array("centre", self.centre, (), low=0.0, high=0.0 if self._clipped else 1.0)

    @property
    def _clipped(self) -> bool:
        """Whether weights may be clipped, so that returns count from their lower bound."""
        return self.logged and self.least_propensity == 0.0

    @property
    def units(self) -> Float[np.ndarray, " pairs"]:
        return super().units ** (2 if self.squared else 1)

    def of_weights(self, w: EpisodeWeights, stay: Trajectory) -> Float[Array, " pairs"]:
        if self._clipped:
            D = return_steps(stay, *self.return_range) @ (w.steps - 1.0)
        else:
            D = (w.last - 1.0) * (stay_return(stay, *self.return_range) - jnp.clip(self.centre, 0.0, 1.0))
        return D**2 if self.squared else D

    def interval(self, max_weight: float) -> tuple[float, float]:
        m, W = float(self.centre), max_weight
        low, high = -max(1.0 - m, (W - 1.0) * m), max(m, (W - 1.0) * (1.0 - m))
        return (0.0, max(-low, high) ** 2) if self.squared else (low, high)


class Influences(AbstractStatistic):
    """How much of a person's weight comes from advice, split by how they fared: (w-v) G and (w-v)(1-G).

    Write A and B for the two means. The true weight of a stay is v + (w-v) g, where g is the factor by which an
    unrecorded influence u changed the odds of the advised treatment along the stay (see `evaluation`).
    """

    policy: AbstractAssisted
    return_range: tuple[float, float] = eqx.field(static=True, default=(0.0, 1.0))
    per_person: ClassVar[bool] = True
    shape: tuple[int, ...] = eqx.field(static=True, default=(2,), init=False)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        _check_bounded(self.policy)
        check_range(*self.return_range)

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True, working_entries=lambda steps: steps * self.policy.entries)

    def contribution(self, record: Trajectory, query: None) -> Float[Array, " 2"]:
        del query

        def of_stay(stay: Trajectory) -> Float[Array, " 2"]:
            w = self.policy.weigh(jnp.asarray(stay.states), jnp.asarray(stay.actions), stay.valid)
            G = stay_return(stay, *self.return_range)
            return (w.last - w.untouched) * jnp.stack([G, 1.0 - G])

        return of_first_stay(of_stay, record)

    def l2(self, adjacency: Adjacency) -> float:
        return self.policy.bound * (math.sqrt(2.0) if adjacency == "replace-one" else 1.0)

    def l1(self, adjacency: Adjacency) -> float:
        return self.policy.bound * (2.0 if adjacency == "replace-one" else 1.0)


def _check_bounded(policy: AbstractAssisted) -> None:
    if not math.isfinite(policy.bound):
        raise ValueError(f"`max_weight` is {policy.max_weight}, so weights have no bound. Use a finite number above 1.")
