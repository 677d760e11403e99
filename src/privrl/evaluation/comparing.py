"""What every evaluator does: advice and practice in, releases about people who were not treated by it, estimates out.

    practice         mean return                                   first, since the gain is centred at it
    practice-table   hits and misses of the advised action         only where practice is not known otherwise
    unsupported      share of decisions without supported advice
    residuals        0 if practice follows the recorded state alone
    balance          mean weight, 1 if practice is what we think
    gain             mean of D = (w-1)(G-m), and of D^2            certified where practice is public
    influences       how strong an unrecorded influence must be
    nuisance         sums for the model of the whole advice
    model-gain       mean of the model's psi, and of psi^2         no guarantee

With estimated probabilities of practice nothing is certified: errors of b* multiply along a stay, and measured lower
bounds covered far less than they say. Where they are estimated in a few cells, the same mean, divided by the mean
weight, is given without a guarantee, and with an allowance (`assisted_gain`). Where the model is refused for want of
people, its shares go to the lines that remain.
"""

import abc
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from privrl.contracts.learner import AbstractOfflineAnalysis, Ask
from privrl.contracts.release import Release
from privrl.evaluation.estimates import Evaluation, Interval, variance_bound
from privrl.evaluation.influence import sensitivity_of
from privrl.evaluation.model_gain import LEAST_STRENGTH, coefficients, model_interval
from privrl.evaluation.shares import MODEL, model_mu, skip_model
from privrl.mdp.assistance import AbstractAssisted
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.value_features import AbstractValueFeature, TableValueFeature
from privrl.statistics.model_gains import ModelGains, NuisanceSums, StaySums
from privrl.statistics.off_policy import Gains, Influences, StayReturns, Unsupported, Weights
from privrl.statistics.practice_residuals import PracticeResiduals

VARIANCES = (0.5, 0.5, 0.25)
"""Of the residuals over people: trend, continuity, arrival."""
ESTIMATED = 0.01
"""The allowance of the residuals, where the probabilities of practice are estimated."""
FITTED = 0.04
"""The allowance of a gain with estimated weights, as a share of the range of returns."""


class AbstractEvaluator(AbstractOfflineAnalysis):
    """Compares an assisted policy, and the advice behind it, with practice.

    `people` is how many there are in the data, public; `return_range` the public smallest and largest return of a stay,
    and what is outside is cut; `max_ratio` and `max_weight` are those of the assisted policy.
    """

    people: eqx.AbstractVar[int]
    return_range: eqx.AbstractVar[tuple[float, float]]
    max_ratio: eqx.AbstractVar[float]
    max_weight: eqx.AbstractVar[float]

    @property
    @abc.abstractmethod
    def public(self) -> bool:
        """Whether the probabilities of practice are."""

    @property
    @abc.abstractmethod
    def value_feature(self) -> AbstractValueFeature:
        """f; 0 everywhere without values."""

    @abc.abstractmethod
    def assisted(self, ask: Ask, refused: list[str]) -> AbstractAssisted:
        """The assisted policy, with what is known about practice, or is asked for."""

    @property
    def bounded(self) -> bool:
        """Whether weights have a bound, so that anything can be certified."""
        return math.isfinite(self.max_ratio * self.max_weight)

    def bounds(self) -> dict[str, Any]:
        return {
            "horizon": self.horizon,
            "people": self.people,
            "reward range": [0.0, 1.0],
            "return range": list(self.return_range),
            "largest weight": self.max_ratio * self.max_weight if self.bounded else None,
            "rewards": "estimated",
        }

    def evaluate(self, ask: Ask) -> Evaluation:
        """The comparison, from releases alone; `ask` raises if more is asked for than was declared."""
        n, low, high = self.people, *self.return_range
        returns = ask("practice", StayReturns(self.return_range))
        m = float(np.clip(float(returns.value[0]) / n, 0.0, 1.0))
        refused: list[str] = []
        modelled, weighed = self._modelled(ask, returns, refused), self._weighed(ask, returns, refused)
        policy = self.assisted(ask, refused)
        missing = ask("unsupported", Unsupported(policy))
        trend, continuity, arrival = checks = self._residuals(ask, policy)
        biased = any(one is not None and one.evidently_not_zero for one in checks)
        gain, sensitivity, balance = None, None, None
        if self.bounded:
            balance = _mean(ask("balance", Weights(policy)), n, policy.bound)
        else:
            refused.append("Without a finite `max_ratio` and `max_weight`, nothing is certified.")
        if self.public and balance is not None and not balance.low <= 1.0 <= balance.high:
            refused.append(
                f"The mean weight is {balance.words('')} and should be 1: `practice` is not how these people were "
                "treated. No gain is given."
            )
        elif weighed and balance is not None and not biased:
            gain = self._gain(ask, policy, m, balance)
        if gain is not None and self.public:
            influences = ask("influences", Influences(policy, self.return_range))
            sensitivity = sensitivity_of(gain, influences, n, m, policy.bound)
        model = self._model(ask, policy, refused) if modelled and not biased else None
        return Evaluation(
            policy=policy,
            people=n,
            practice=_mean(returns, n, 1.0).scaled(high - low, low),
            unsupported=_mean(missing, n, 1.0),
            balance=balance,
            gain=gain.scaled(high - low) if gain is not None and self.public else None,
            assisted_gain=None if gain is None or self.public else gain.scaled(high - low),
            model_gain=None if model is None else model.scaled(high - low),
            trend=trend,
            continuity=continuity,
            arrival=arrival,
            public=self.public,
            sensitivity=sensitivity,
            refused=tuple(refused),
        )

    def _declares(self, name: str) -> bool:
        return any(declared.name == name for declared in self.declare())

    def _residuals(self, ask: Ask, policy: AbstractAssisted) -> tuple[Interval | None, ...]:
        """What practice does beyond the recorded state: trend, continuity, and arrival where b* is public.

        The variance over people is taken to be .5 for the sums, about the largest that worlds of the zoo have where
        they have mean 0; that of the first decision is at most 1/4. Where b* is estimated its errors do not average
        out: the intervals have an allowance, and nothing is checked where people arrive (in ICU-Sepsis, where practice
        follows the state, the first decision would seem not to).
        """
        found = ask("residuals", PracticeResiduals(policy, self.value_feature, arrival=self.public))
        n, allowance = self.people, 0.0 if self.public else ESTIMATED
        means = (float(x) / n for x in found.value)
        seen = [Interval.of(x, v, n, found.noise, allowance) for x, v in zip(means, VARIANCES, strict=False)]
        return (*seen, None) if len(seen) < len(VARIANCES) else tuple(seen)

    def _modelled(self, ask: Ask, returns: Release, refused: list[str]) -> bool:
        """Whether the model is made; if there are too few people for it, its shares go elsewhere."""
        if not self._declares("nuisance"):
            return False
        if self._enough("The model of the whole advice", returns, tuple(MODEL), refused):
            return True
        if returns.noise.white == "normal":  # other noise cannot trade
            skip_model(ask, self.declare())
        return False

    def _weighed(self, ask: Ask, returns: Release, refused: list[str]) -> bool:
        """Whether the assisted policy's gain is estimated by weights; with estimated ones, that takes people too."""
        if self.public or not self._declares("gain"):
            return self._declares("gain")
        if self._enough("The gain of the assisted policy", returns, ("practice-table",), refused):
            return True
        if returns.noise.white == "normal":
            for name in ("gain", "gain-square"):
                ask.skip(name, to=("practice-table",))
        return False

    def _enough(self, what: str, returns: Release, rests_on: tuple[str, ...], refused: list[str]) -> bool:
        """Whether the number of people times mu, that of some releases together, is large enough."""
        strength, needed = self.people * model_mu(returns, self.declare(), rests_on), LEAST_STRENGTH
        if strength < needed:
            refused.append(
                f"{what} is refused: people times its share of mu is {strength:.0f}, and it needs {needed:.0f}. "
                "Evaluate on more people, or with a larger budget."
            )
        return strength >= needed

    def _gain(self, ask: Ask, policy: AbstractAssisted, m: float, balance: Interval) -> Interval:
        """What the assisted policy adds, as a share of the range of returns.

        With estimated weights it is E[w (G-m)]/E[w], as if they had the mean 1, and the interval has an allowance.
        """
        n, centre = self.people, jnp.asarray(m)
        first = ask("gain", Gains(policy, centre, self.return_range))
        second = ask("gain-square", Gains(policy, centre, self.return_range, squared=True))
        gain = certified_interval(first, second, n, policy.bound)
        return gain if self.public else gain.scaled(1.0 / max(balance.value, 0.5)).wider(FITTED)

    def _model(self, ask: Ask, policy: AbstractAssisted, refused: list[str]) -> Interval | None:
        """The gain of the whole advice, in a finite world."""
        assert isinstance(policy, AssistedPolicy) and isinstance(self.value_feature, TableValueFeature)
        sums = StaySums(policy, self.value_feature, self.return_range[1] - self.return_range[0])
        found = coefficients(ask("nuisance", NuisanceSums(sums)), self.people, self.horizon)
        if found is None:
            refused.append("The model of the whole advice is refused: noise hides how its feature varies over stays.")
            return None
        first, rest = (jnp.asarray(x) for x in found)
        mean = ask("model-gain", ModelGains(sums, first, rest))
        return model_interval(mean, ask("model-square", ModelGains(sums, first, rest, squared=True)), self.people)


def certified_interval(first: Release, second: Release, people: int, largest: float) -> Interval:
    """Value +- z sqrt(v/n + sigma^2), v the released second moment minus mean^2 (if positive) plus one standard
    deviation of its noise, and plus largest^2 ln(20)/n: a rare stay of weight `largest` may be in nobody's record, and
    where there is no noise nothing else would allow for it."""
    value = float(first.value[0]) / people
    noise = float(np.max(second.noise.std)) / people
    rare = largest**2 * math.log(20.0) / people
    variance = max(float(second.value[0]) / people - value**2, 0.0) + noise + rare
    return Interval.of(value, variance, people, first.noise)


def _mean(release: Release, people: int, largest: float) -> Interval:
    """The mean of numbers in [0, largest], whose variance is bounded by their mean."""
    mean = float(release.value[0]) / people
    return Interval.of(mean, variance_bound(mean, largest), people, release.noise)
