"""The evaluator: advice and practice in, releases about people who were not treated by it, an `Evaluation` out.

    practice         mean return                                   first, since the gain is centred at it
    practice-table   hits and misses of the advised action         only where practice is not public
    unsupported      share of decisions without supported advice
    residuals        0 if practice follows the recorded state alone
    balance          mean weight, 1 if practice is what we think
    gain             mean of D = (w-1)(G-m), and of D^2            certified; only where practice is public
    influences       how strong an unrecorded influence must be
    nuisance         sums for the model of the whole advice
    model-gain       mean of the model's psi, and of psi^2         no guarantee

With an estimated table the certified line is withheld: errors of b* multiply along a stay, and measured lower bounds
covered far less than they say. Where the model is refused for want of people, its shares go to the lines that remain.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from privrl.contracts.learner import AbstractOfflineLearner, Ask
from privrl.contracts.release import Declared, Release
from privrl.learners.evaluation.estimates import Evaluation, Interval, variance_bound
from privrl.learners.evaluation.influence import sensitivity_of
from privrl.learners.evaluation.model_gain import LEAST_STRENGTH, coefficients, model_interval, standard_feature
from privrl.learners.evaluation.support import estimated_support
from privrl.mdp.assisted import AssistedPolicy, stationary_advice
from privrl.statistics.evaluation import Gains, Influences, StayReturns, Unsupported, Weights, check_range
from privrl.statistics.model_gains import ModelGains, NuisanceSums, StaySums
from privrl.statistics.practice_residuals import PracticeResiduals
from privrl.statistics.practice_table import PracticeTable
from privrl.statistics.settings import check_array, check_sizes, check_terminal

_ALWAYS = {"practice": 4.0, "unsupported": 2.0, "residuals": 20.0}
_BOUNDED = {"balance": 3.0}
# Noise in the square only widens the interval, by little where noise in the gain itself does: its share is small.
_CERTIFIED = {"gain": 36.0, "gain-square": 2.0, "influences": 6.0}
_TABLE = {"practice-table": 44.0}
_VARIANCE = 0.5  # of the residuals over people
_ESTIMATED = 0.01  # of the residuals, where the probabilities of practice are estimated
MODEL = {"nuisance": 8.0, "model-gain": 13.5, "model-square": 5.5}


def releases(*, public: bool, bounded: bool, modelled: bool) -> tuple[Declared, ...]:
    """What is released, with its share of mu^2 in percent.

    `public`: the probabilities of practice are; `bounded`: weights are, so the dial is finite; `modelled`: there is a
    value feature. What is not released leaves its share to the others.
    """
    shares = dict(_ALWAYS)
    shares |= _BOUNDED if bounded else {}
    shares |= (_CERTIFIED if bounded else {}) if public else _TABLE
    shares |= MODEL if modelled else {}
    return tuple(Declared(name, weight=share) for name, share in shares.items())


def skip_model(ledger: Any, declared: tuple[Declared, ...]) -> None:
    """Gives up the model's releases in favour of the gain, or of the table of practice, if there is either."""
    names = {d.name for d in declared}
    to = {"nuisance": "gain-square"} if "gain" in names else {}
    rest = next((name for name in ("gain", "practice-table") if name in names), None)
    for name in MODEL:
        if rest is not None:
            ledger.skip(name, to=(to.get(name, rest),))


def _actions(advice: ArrayLike) -> Int[Array, " S"]:
    """Actions as they are; of probabilities `[H, S, A]` the most probable one."""
    return jnp.asarray(stationary_advice(advice) if np.ndim(advice) == 3 else advice)


class Evaluator(AbstractOfflineLearner):
    """Compares an assisted policy, and the advice behind it, with practice.

    Arguments:
        num_states, num_actions, horizon: the size of the world, public.
        people: how many there are in the data, public.
        advice: an action per state, or probabilities `[H, S, A]`, of which the most probable action counts.
        practice: public probabilities `[S, A]` of practice, or `None`: they are estimated, and nothing is certified.
        feature: a number per state from the *learn* group, roughly linear in how well people fare from there, in any
            unit; `None` for no model.
        terminal: public states whose entry ends a stay.
        return_range: the public smallest and largest return of a stay; what is outside is cut.
        dial, deviation: of the assisted policy.
    """

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    people: int = eqx.field(static=True)
    advice: Int[Array, " S"] = eqx.field(converter=_actions)
    practice: Float[Array, "S A"] | None = None
    feature: Float[Array, " S"] | None = None
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    return_range: tuple[float, float] = eqx.field(static=True, default=(0.0, 1.0))
    dial: float = eqx.field(static=True, default=1.5)
    deviation: float = eqx.field(static=True, default=4.0)

    def __check_init__(self) -> None:
        sizes = {"num_states": self.num_states, "num_actions": self.num_actions, "horizon": self.horizon}
        check_sizes(**sizes, people=self.people)
        check_terminal(self.terminal, self.num_states)
        check_range(*self.return_range)
        check_array("advice", self.advice, (self.num_states,), low=0, high=self.num_actions - 1)
        if self.practice is not None:
            check_array("practice", self.practice, (self.num_states, self.num_actions), low=0.0, high=1.0)
            if float(jnp.abs(self.practice.sum(axis=-1) - 1.0).max()) > 1e-6:
                raise ValueError("`practice` has rows that do not add up to 1; give a probability for every action.")
        if self.feature is not None:
            check_array("feature", self.feature, (self.num_states,))
        self._assisted(jnp.zeros(self.num_states))  # refuses a dial or a deviation that is none

    @property
    def space(self) -> tuple[int, int]:
        return self.num_states, self.num_actions

    @property
    def bounded(self) -> bool:
        """Whether weights have a bound, so that anything can be certified."""
        return math.isfinite(self.dial * self.deviation)

    def bounds(self) -> dict[str, Any]:
        return {
            "horizon": self.horizon,
            "people": self.people,
            "reward range": [0.0, 1.0],
            "return range": list(self.return_range),
            "largest weight": self.dial * self.deviation if self.bounded else None,
            "terminal states": list(self.terminal),
            "rewards": "estimated",
        }

    def declare(self) -> tuple[Declared, ...]:
        public, modelled = self.practice is not None, self.feature is not None
        return releases(public=public, bounded=self.bounded, modelled=modelled)

    def fit(self, ask: Ask) -> Evaluation:
        n, low, high = self.people, *self.return_range
        returns = ask("practice", StayReturns(self.return_range))
        m = float(np.clip(float(returns.value[0]) / n, 0.0, 1.0))
        refused: list[str] = []
        modelled = self._modelled(ask, returns, refused)
        policy = self._assisted(self._support(ask, refused))
        missing = ask("unsupported", Unsupported(policy))
        trend, continuity = self._residuals(ask, policy)
        biased = trend.evidently_not_zero or continuity.evidently_not_zero
        gain, sensitivity, balance = None, None, None
        if self.bounded:
            balance = _mean(ask("balance", Weights(policy)), n, policy.bound)
        else:
            refused.append("Without a finite dial and deviation budget, nothing is certified.")
        if self.practice is not None and balance is not None:
            gain, sensitivity = self._certified(ask, policy, m, balance, biased, refused)
        model = self._model(ask, policy, refused) if modelled and not biased else None
        return Evaluation(
            policy=policy,
            people=n,
            practice=_mean(returns, n, 1.0).scaled(high - low, low),
            unsupported=_mean(missing, n, 1.0),
            balance=balance,
            gain=None if gain is None else gain.scaled(high - low),
            model_gain=None if model is None else model.scaled(high - low),
            trend=trend,
            continuity=continuity,
            public=self.practice is not None,
            sensitivity=sensitivity,
            refused=tuple(refused),
        )

    def _residuals(self, ask: Ask, policy: AssistedPolicy) -> tuple[Interval, Interval]:
        """What practice does beyond the recorded state.

        The variance over people is taken to be .5, the largest that worlds of the zoo have where the sums have mean 0.
        Where b* is estimated its errors do not average out, and the intervals have an allowance.
        """
        found = ask("residuals", PracticeResiduals(policy, self._feature))
        n, allowance = self.people, 0.0 if self.practice is not None else _ESTIMATED
        first, second = (float(x) / n for x in found.value)
        return tuple(Interval.of(x, _VARIANCE, n, found.noise, allowance) for x in (first, second))  # type: ignore[return-value]

    @property
    def _feature(self) -> Float[Array, " S"]:
        """f in [-1, 1]; 0 everywhere without values of states."""
        return jnp.zeros(self.num_states) if self.feature is None else standard_feature(self.feature, self.terminal)

    def _assisted(self, support: Float[Array, " S"]) -> AssistedPolicy:
        return AssistedPolicy(self.advice, support, self.dial, self.deviation)

    def _modelled(self, ask: Ask, returns: Release, refused: list[str]) -> bool:
        """Whether the model is made; if there are too few people for it, its shares go elsewhere."""
        if self.feature is None:
            return False
        strength = self.people * model_mu(returns, self.declare())
        if strength >= LEAST_STRENGTH:
            return True
        refused.append(
            f"The model of the whole advice is refused: people times its share of mu is {strength:.0f}, and it needs "
            f"{LEAST_STRENGTH:.0f}. Evaluate on more people, or with a larger budget."
        )
        if returns.noise.white == "normal":  # other noise cannot trade
            skip_model(ask, self.declare())
        return False

    def _support(self, ask: Ask, refused: list[str]) -> Float[Array, " S"]:
        """b*, public or estimated."""
        if self.practice is not None:
            return self.practice[jnp.arange(self.num_states), self.advice]
        refused.append("The probabilities of practice are estimated, not public: the certified gain is withheld.")
        table = ask("practice-table", PracticeTable(self.num_states, self.num_actions, self.advice))
        return jnp.asarray(estimated_support(table))

    def _certified(
        self, ask: Ask, policy: AssistedPolicy, m: float, balance: Interval, biased: bool, refused: list[str]
    ) -> tuple[Interval | None, float | None]:
        """The gain and its sensitivity, as shares of the range of returns."""
        if not balance.low <= 1.0 <= balance.high:
            refused.append(
                f"The mean weight is {balance.words('')} and should be 1: `practice` is not how these people were "
                "treated. No gain is given."
            )
        if biased or not balance.low <= 1.0 <= balance.high:
            return None, None
        n, centre = self.people, jnp.asarray(m)
        first = ask("gain", Gains(policy, centre, self.return_range))
        second = ask("gain-square", Gains(policy, centre, self.return_range, squared=True))
        gain = certified_interval(first, second, n, policy.bound)
        influences = ask("influences", Influences(policy, self.return_range))
        return gain, sensitivity_of(gain, influences, n, m, policy.bound)

    def _model(self, ask: Ask, policy: AssistedPolicy, refused: list[str]) -> Interval | None:
        unit = self.return_range[1] - self.return_range[0]
        world = (self.num_actions, self.horizon, self.terminal, self.advice)
        sums = StaySums(*world, policy.support, self._feature, unit)
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


def model_mu(returns: Release, declared: tuple[Declared, ...]) -> float:
    """mu of the model's releases together, from the noise in the mean return, whose sensitivity is 1."""
    std = float(np.max(returns.noise.std))
    weights = {d.name: d.weight for d in declared}
    times = sum(weights[name] for name in MODEL) / weights["practice"]
    return math.inf if std == 0.0 else math.sqrt(times) / std


def _mean(release: Release, people: int, largest: float) -> Interval:
    """The mean of numbers in [0, largest], whose variance is bounded by their mean."""
    mean = float(release.value[0]) / people
    return Interval.of(mean, variance_bound(mean, largest), people, release.noise)
