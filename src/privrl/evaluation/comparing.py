"""What every evaluator does: advice and practice in, releases about people who were not treated by it, estimates out.

    practice         mean return                                   first, since the gain is centred at it
    practice-slope   how returns depend on f                       only on measurements, for the correction of the gain
    practice-table   hits and misses of the advised action         only where practice is not known otherwise
    unsupported      share of decisions without supported advice
    changed          share of decisions that the assisted policy changes
    residuals        0 if practice follows the recorded state alone
    balance          mean weight, 1 if practice is what we think
    gain             mean of D = (w-1)(G-m), and of D^2            certified where practice is public
    influences       how strong an unrecorded influence must be
    group-...        people, practice and gain of each group       decides nothing (`reporting.py`)
    outcome-...      practice and gain of a second outcome         decides nothing either
    nuisance         sums for the model of the whole advice
    model-gain       mean of the model's psi, and of psi^2         no guarantee

Balance and gain are those of several pairs of limits, released together (`limits.py`). A gain is certified if the
probabilities of practice are public, or were logged by the program that decided. If they are estimated, errors of b*
multiply along a stay. The same means are then given without a guarantee, and with an allowance (`assisted_gain`). Where
the model is refused for want of people, its shares go to the lines that remain.

The model decides on a release only if the study states that the recorded state is complete (`markov`). The whole advice
is then one more candidate beside the pairs of limits.
"""

import abc
import math
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from privrl.contracts.learner import AbstractOfflineAnalysis, Ask
from privrl.contracts.release import Release
from privrl.evaluation.confidence import ERROR_RATE, Interval, variance_bound
from privrl.evaluation.decision import HIDDEN_INFORMATION, Basis, Bound
from privrl.evaluation.estimates import Assumption, Evaluation, PairGain, is_balanced, practice_problems
from privrl.evaluation.gain_intervals import GainEntry, GainMeasure, WeighedGain
from privrl.evaluation.influence import sensitivity_of
from privrl.evaluation.limits import WHOLE, choose_limits
from privrl.evaluation.model_gain import LEAST_STRENGTH, coefficients, model_interval
from privrl.evaluation.reporting import CLIPPED, NO_GAINS, NO_LIMITS, ChosenGain, report_groups, report_outcome
from privrl.evaluation.shares import MODEL, WEIGHED, model_mu, skip_model
from privrl.evaluation.support import Support
from privrl.mdp.assistance import AbstractAssisted
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.reported_columns import ReportedColumns
from privrl.mdp.value_features import AbstractValueFeature, TableValueFeature
from privrl.statistics.corrected_gains import ReturnSlopes, read_slope
from privrl.statistics.model_gains import ModelGains, NuisanceSums, StaySums
from privrl.statistics.off_policy import (
    CentredReturns,
    Changed,
    Influences,
    Limits,
    StayReturns,
    Unsupported,
    Weights,
)
from privrl.statistics.practice_residuals import PracticeResiduals

VARIANCES = (0.5, 0.5, 0.25)
"""Of the residuals over people: trend, continuity, arrival."""
ESTIMATED = 0.01
"""The allowance of the residuals, where the probabilities of practice are estimated."""


class AbstractEvaluator(AbstractOfflineAnalysis):
    """Compares an assisted policy, and the advice behind it, with practice.

    `people` is how many there are in the data, public; `return_range` the public smallest and largest return of a stay,
    and what is outside is cut; `max_ratio` and `max_weight` are those of the assisted policy, or `None`: the public
    pairs of `limits.py` are compared. `assumption` is what is known about who decided. With `markov`, the study states
    that what happens next depends on the recorded state and the action alone. `least_propensity` is the public number
    below which no action had a probability, if `assumption` is "randomised". `reported` are the columns by which and
    about which more is estimated.

    **Why weights are then never clipped.** Let p_min be that number, and take it for b* everywhere, so that advice
    multiplies the running weight by 1 - alpha + alpha/p_min wherever it is followed. As p >= p_min, the weight with the
    logged p is at most the running weight at every step, and so at most C. Hence its mean is 1 whatever the program
    saw, and gains may be centred at m. Because b* >= p_min, alpha is smaller than with b* itself.
    """

    people: eqx.AbstractVar[int]
    return_range: eqx.AbstractVar[tuple[float, float]]
    max_ratio: eqx.AbstractVar[float | None]
    max_weight: eqx.AbstractVar[float | None]
    assumption: eqx.AbstractVar[Assumption]
    markov: eqx.AbstractVar[bool]
    least_propensity: eqx.AbstractVar[float]
    reported: eqx.AbstractVar[ReportedColumns]

    @property
    @abc.abstractmethod
    def public(self) -> bool:
        """Whether the probabilities of practice are."""

    @property
    @abc.abstractmethod
    def value_feature(self) -> AbstractValueFeature:
        """f; 0 everywhere without values."""

    @abc.abstractmethod
    def assisted(self, ask: Ask, refused: list[str]) -> tuple[AbstractAssisted, Support | None]:
        """The assisted policy with the first pair of limits, with what is known about practice, or is asked for; and
        b* with its errors, if it is estimated."""

    @property
    def limits(self) -> Limits:
        """The pairs of a largest ratio and a largest weight that are compared."""
        return choose_limits(self.max_ratio, self.max_weight)

    @property
    def logged(self) -> bool:
        """Whether weights use the logged probabilities of what was done."""
        return self.assumption in ("logged", "randomised")

    @property
    def centred(self) -> bool:
        """Whether weights have the mean 1 exactly, so that gains may be centred at the mean return."""
        return self.assumption != "logged"

    @property
    def bounded(self) -> bool:
        """Whether weights have a bound, so that anything can be certified."""
        return all(math.isfinite(max_weight) for _, max_weight in self.limits)

    def bounds(self) -> dict[str, Any]:
        return {
            "horizon": self.horizon,
            "people": self.people,
            "reward range": [0.0, 1.0],
            "return range": list(self.return_range),
            "largest weight": max(max_weight for _, max_weight in self.limits) if self.bounded else None,
            "rewards": "estimated",
            **state_assumptions(self.assumption, self.markov, self.least_propensity),
            **self.reported.described,
        }

    def evaluate(self, ask: Ask) -> Evaluation:
        """The comparison, from releases alone; `ask` raises if more is asked for than was declared."""
        n, low, high = self.people, *self.return_range
        returns = ask("practice", StayReturns(self.return_range))
        m = float(np.clip(float(returns.value[0]) / n, 0.0, 1.0))
        refused: list[str] = []
        modelled, weighed = self._modelled(ask, returns, refused), self._weighed(ask, returns, refused)
        policy, support = self.assisted(ask, refused)
        spread = self._spread(ask, m)
        missing = ask("unsupported", Unsupported(policy))
        trend, continuity, arrival = checks = (None, None, None) if self.logged else self._residuals(ask, policy)
        biased = any(one is not None and one.evidently_not_zero for one in checks)
        pairs: tuple[PairGain, ...] = ()
        measures: tuple[GainMeasure, ...] = ()
        centre, slope = m if self.centred else 0.0, 0.0
        balances = self._balances(ask, policy) if self.bounded else ()
        if not self.bounded:
            refused.append("Without a finite `max_weight`, nothing is certified. Use a finite one.")
        elif weighed and not biased:
            slope = self._slope(ask, centre)
            measures = self._measures(policy, balances, support, spread)
            pairs = self._pair_gains(ask, policy, centre, slope, measures)
        known, gain, model = self.public or self.logged, None, None
        unlike = [one for one in balances if not is_balanced(one, public=self.public, assumption=self.assumption)]
        balance = unlike[0] if unlike else balances[0] if balances else None
        if known and unlike:
            refused.append(_UNBALANCED.format(unlike[0].words("")))
            pairs = ()
            measures = ()
        elif pairs:
            best = max(range(len(pairs)), key=lambda j: pairs[j].gain.lower)
            policy, gain = policy.with_limits(*self.limits[best]), pairs[best].gain
            balance = balance if unlike else balances[best]
        problems = practice_problems(checks, balance, public=self.public, assumption=self.assumption)
        if modelled and any(problems):
            refused.append(f"No number is given for the whole advice: {HIDDEN_INFORMATION}.")
        elif modelled:
            model = self._model(ask, policy, refused)
        if self.markov and model is not None and (gain is None or model.lower > gain.lower):
            policy, gain = policy.with_limits(*WHOLE), None
        changed = ask("changed", Changed(policy))
        sensitivity = None
        if gain is not None and self._declares("influences"):
            influences = ask("influences", Influences(policy, self.return_range))
            sensitivity = sensitivity_of(gain, influences, n, m, policy.bound)
        chosen, clipped = None, self.assumption == "logged"
        if gain is not None and not clipped:
            measure = measures[max(range(len(pairs)), key=lambda j: pairs[j].gain.lower)]
            chosen = ChosenGain(self._weighed_gain(policy, None), measure, centre, slope, self.centred)
        elif self.reported:
            refused.append(CLIPPED if clipped else NO_LIMITS if math.isinf(policy.bound) and pairs else NO_GAINS)
        groups = report_groups(ask, self.reported, self.return_range, m, chosen)
        outcome = report_outcome(ask, self.reported, n, chosen)
        unit = high - low
        return Evaluation(
            policy=policy,
            people=n,
            practice=_mean(returns, n, 1.0).scaled(unit, low),
            unsupported=_mean(missing, n, 1.0),
            balance=balance,
            gain=gain.scaled(unit) if gain is not None and known else None,
            assisted_gain=None if gain is None or known else gain.scaled(unit),
            model_gain=None if model is None else model.scaled(unit),
            trend=trend,
            continuity=continuity,
            arrival=arrival,
            changed=_mean(changed, n, 1.0),
            bound=_bound(gain, model if self.markov else None, unit, known=known),
            assumption=self.assumption,
            markov=self.markov,
            pairs=tuple(PairGain(one.max_ratio, one.max_weight, one.gain.scaled(unit)) for one in pairs),
            public=self.public,
            sensitivity=sensitivity,
            by=None if self.reported.by is None else self.reported.by.name,
            groups=groups,
            outcome=outcome,
            refused=tuple(refused),
        )

    def _spread(self, ask: Ask, m: float) -> float:
        """The standard deviation of returns, two of the noise up; 1/2 if it is not released."""
        if not self._declares("practice-spread"):
            return 0.5
        found = ask("practice-spread", CentredReturns(self.return_range, jnp.asarray(m), squared=True))
        largest = float(found.value[0]) + 2.0 * float(np.max(found.noise.std))
        return float(np.sqrt(np.clip(largest / self.people, 0.0, 0.25)))

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
        if self.public or self.logged or not self._declares("gain"):
            return self._declares("gain")
        if self._enough("The gain of the assisted policy", returns, ("practice-table",), refused):
            return True
        if returns.noise.white == "normal":
            for name in WEIGHED:
                if self._declares(name):
                    ask.skip(name, to=("practice-table",))
        return False

    def _enough(self, what: str, returns: Release, rests_on: tuple[str, ...], refused: list[str]) -> bool:
        """Whether the number of people times mu, that of some releases together, is large enough."""
        needed = math.ceil(LEAST_STRENGTH / model_mu(returns, self.declare(), rests_on))
        if self.people < needed:
            refused.append(
                f"{what} is not estimated: at this budget the estimate alone needs about {needed:,} people, and there "
                f"were {self.people:,}. Evaluate on more people, or with a larger budget."
            )
        return self.people >= needed

    def _balances(self, ask: Ask, policy: AbstractAssisted) -> tuple[Interval, ...]:
        """The mean weight for each pair of limits."""
        weights = Weights(policy, self.limits, self.logged, self.least_propensity)
        found, n, among = ask("balance", weights), self.people, len(self.limits)
        means = np.asarray(found.value, float) * weights.units / n
        return tuple(
            Interval.of(mean, variance_bound(mean, max_weight), n, found.noise, unit=unit, among=among)
            for mean, (_, max_weight), unit in zip(means.tolist(), self.limits, weights.units.tolist(), strict=True)
        )

    def _measures(
        self,
        policy: AbstractAssisted,
        balances: tuple[Interval, ...],
        support: Support | None,
        spread: float,
    ) -> tuple[GainMeasure, ...]:
        """How the gain with each pair of limits is read off releases."""
        found = []
        for balance, (max_ratio, max_weight) in zip(balances, self.limits, strict=True):
            measure = GainMeasure(max_weight, self._candidates, spread)
            if support is not None and not (self.public or self.logged):
                error = support.gain_error(self.people, max_ratio, policy.strengths, 1.0)
                scale = 1.0 / max(balance.value, 0.5)
                measure = replace(measure, error=error, scale=scale, allowance=self.allowance)
            found.append(measure)
        return tuple(found)

    def _pair_gains(
        self, ask: Ask, policy: AbstractAssisted, centre: float, slope: float, measures: tuple[GainMeasure, ...]
    ) -> tuple[PairGain, ...]:
        """What the assisted policy adds with each pair of limits, as shares of the range of returns."""
        terms, squares = self._weighed_gain(policy, self.limits).terms(centre, slope, self.return_range)
        first, second = ask("gain", terms), ask("gain-square", squares)
        found = []
        for j, (measure, pair) in enumerate(zip(measures, self.limits, strict=True)):
            entries = GainEntry.of_pair(first, j, terms), GainEntry.of_pair(second, j, squares)
            found.append(PairGain(*pair, measure.interval(*entries, self.people)))
        return tuple(found)

    @property
    def _candidates(self) -> int:
        """How many bounds share the error rate: those of the pairs, and that of the model if it may decide."""
        return (len(self.limits) if self.bounded else 0) + self.markov

    def _weighed_gain(self, policy: AbstractAssisted, limits: Limits | None) -> WeighedGain:
        """What is summed; corrected if there is a release for that (`statistics/corrected_gains.py`)."""
        feature = self.value_feature if self._declares("practice-slope") else None
        return WeighedGain(policy, limits, self.logged, self.least_propensity, feature)

    def _slope(self, ask: Ask, centre: float) -> float:
        """How returns depend on f, if gains are corrected by it."""
        if not self._declares("practice-slope"):
            return 0.0
        found = ask("practice-slope", ReturnSlopes(self.value_feature, jnp.asarray(centre), self.return_range))
        return read_slope(np.asarray(found.value, float), self.people)

    @abc.abstractmethod
    def allowance(self, deviation: float) -> float:
        """The allowance of a gain with estimated weights, as a share of the range of returns.

        `deviation`: the standard deviation of D over people.
        """

    def _model(self, ask: Ask, policy: AbstractAssisted, refused: list[str]) -> Interval | None:
        """The gain of the whole advice, in a finite world."""
        assert isinstance(policy, AssistedPolicy) and isinstance(self.value_feature, TableValueFeature)
        sums = StaySums(policy, self.value_feature, self.return_range[1] - self.return_range[0], self.logged)
        found = coefficients(ask("nuisance", NuisanceSums(sums)), self.people, self.horizon)
        if found is None:
            refused.append("The model of the whole advice is refused: noise hides how its feature varies over stays.")
            return None
        first, rest = (jnp.asarray(x) for x in found)
        mean = ask("model-gain", ModelGains(sums, first, rest))
        square = ask("model-square", ModelGains(sums, first, rest, squared=True))
        return model_interval(mean, square, self.people, self._candidates if self.markov else 1)


_UNBALANCED = (
    "The mean weight is {} and should be 1: `practice` is not how these people were treated. No gain is given."
)
WHO_DECIDED: dict[Assumption, str] = {
    "logged": "a program, which logged the probability of what it did",
    "randomised": "a program that decided at random, and logged the probability of what it did",
    "recorded": "people who saw nothing but the record, as the study team states; privrl does not verify it",
    "checked": "not stated; a release needs checks of practice to be passed",
}
"""For certificates and reports."""
COMPLETE = "it depends on the recorded state and the action alone, as the study team states; privrl does not verify it"
"""What a study states if a model may decide."""


def state_assumptions(assumption: Assumption, markov: bool, least_propensity: float) -> dict[str, Any]:
    """What a study compares, and what it states about practice, for its certificate."""
    stated: dict[str, Any] = {"compared": "the first episode of each unit", "who decided": WHO_DECIDED[assumption]}
    if assumption == "randomised":
        stated["least probability of every action"] = least_propensity
    return stated | ({"what happens next": COMPLETE} if markov else {})


def _bound(gain: Interval | None, model: Interval | None, unit: float, *, known: bool) -> Bound | None:
    """The lower bound that decides: of the assisted policy's gain or, if the whole advice was chosen, the model's."""
    basis: Basis = "model" if gain is None else "certified" if known else "estimated"
    decides = model if gain is None else gain
    return None if decides is None else Bound(unit * decides.lower, ERROR_RATE, basis)


def _mean(release: Release, people: int, largest: float) -> Interval:
    """The mean of numbers in [0, largest], whose variance is bounded by their mean."""
    mean = float(release.value[0]) / people
    return Interval.of(mean, variance_bound(mean, largest), people, release.noise)
