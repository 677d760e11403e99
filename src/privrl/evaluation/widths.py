"""How wide the intervals of an evaluation will be, and how many people it needs, before any data are read."""

import math
from bisect import bisect_left
from dataclasses import dataclass

import jax.numpy as jnp

from privrl.evaluation.comparing import ESTIMATED, VARIANCES
from privrl.evaluation.estimates import NEGLIGIBLE, Interval, variance_bound
from privrl.evaluation.model_gain import ABSOLUTE, LEAST_STRENGTH
from privrl.evaluation.shares import MODEL, releases, skip_model
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.value_features import TableValueFeature
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.statistics.model_gains import LARGEST
from privrl.statistics.off_policy import Gains
from privrl.statistics.practice_residuals import PracticeResiduals

_MODEL_VARIANCE = 0.25  # of psi over stays, measured where advice follows practice in half of its decisions


@dataclass(frozen=True)
class Widths:
    """Expected widths of the 95% intervals, in the world's own units; `None` for a line that will be missing.

    `gain_at_most` is the width if weights vary as much as `max_ratio` and `max_weight` let them. `model_gain` is
    that of a model that finds no gain; it grows with what is found.

    With fewer than `least_people` the assisted policy is held back whatever they show, since the intervals around what
    practice does beyond the recorded state are too wide, or a model is needed and refused. From `enough_people` on,
    where practice follows the recorded state alone, each of these intervals is narrow enough in about 95% of studies.
    `None`: no number of people is enough.
    """

    people: int
    practice: float
    gain: float | None
    gain_at_most: float | None
    model_gain: float | None
    least_people: int | None
    enough_people: int | None


def plan_widths(
    people: int,
    budget: AbstractPrivatizer,
    *,
    public: bool = True,
    modelled: bool = True,
    max_ratio: float = 1.5,
    max_weight: float = 4.0,
    return_range: tuple[float, float] = (0.0, 1.0),
    practice_mean: float = 0.5,
    weight_variance: float = 1.0,
) -> Widths:
    """The widths to expect from `people` in the evaluation group, and how many are needed.

    Arguments:
        people, budget: public; the budget has Gaussian noise.
        public, modelled: whether the probabilities of practice are public, and whether there is a value feature.
        max_ratio, max_weight, return_range: settings of the evaluation.
        practice_mean: a guess of the mean return, as a share of its range.
        weight_variance: a guess of the variance of weights; about 1 at a `max_ratio` of 1.5, and at most cC - 1.
    """
    if budget.mechanism_of_rounds != "gaussian":
        raise PairingError("Widths are planned for Gaussian noise. Use `Central(epsilon=..., delta=...)`.")
    policy = AssistedPolicy(jnp.zeros(1, int), jnp.zeros(1), max_ratio, max_weight)
    declared = releases(public=public, bounded=math.isfinite(policy.bound), modelled=modelled)
    ledger = budget.calibrate(declared)
    mu = math.sqrt(sum(ledger.parameter(d.name) ** 2 for d in declared if d.name in MODEL))
    refused = modelled and people * mu < LEAST_STRENGTH
    practice, residuals = ledger.spend("practice"), ledger.spend("residuals")
    if refused:
        skip_model(ledger, declared)
    unit, m = return_range[1] - return_range[0], practice_mean

    def width(variance: float, deviation: float, allowance: float = 0.0) -> float:
        interval = Interval.of(0.0, variance, people, GaussianNoise(deviation, (1,)), allowance)
        return unit * (interval.high - interval.low)

    gain = at_most = model = None
    if any(d.name == "gain" for d in declared):
        first, second = (Gains(policy, jnp.asarray(m), squared=squared).l2("replace-one") for squared in (False, True))
        first, second = first / ledger.spend("gain"), second / ledger.spend("gain-square") / people
        largest = policy.bound - 1.0
        gain, at_most = (
            width(weights * variance_bound(m, 1.0) + second, first)
            for weights in (min(weight_variance, largest), largest)
        )
    if modelled and not refused:
        square = LARGEST**2 / ledger.spend("model-square") / people
        model = width(_MODEL_VARIANCE + square, 2.0 * LARGEST / ledger.spend("model-gain"), ABSOLUTE)
    needed: list[int | None] = [None, None]
    if gain is not None or modelled:  # without either, nothing is ever handed out
        sums = PracticeResiduals(policy, TableValueFeature(1, 1, (), jnp.zeros(1)), arrival=public)
        noise = GaussianNoise(sums.l2("replace-one") / residuals, sums.shape)
        for_model = 1 if gain is not None else math.ceil(LEAST_STRENGTH / mu)
        needed = [max(for_model, _people_needed(noise, public, chance)) for chance in (0.0, 1.0)]
    return Widths(people, width(variance_bound(m, 1.0), 1.0 / practice), gain, at_most, model, *needed)


def _people_needed(noise: GaussianNoise, public: bool, chance: float) -> int:
    """The fewest people with whom residuals that are 0 but for chance, in half widths, are seen to be negligible."""
    allowance = 0.0 if public else ESTIMATED

    def enough(people: int) -> bool:
        found = Interval.of(0.0, max(VARIANCES), people, noise, allowance)
        return found.upper + chance * (found.half - allowance) <= NEGLIGIBLE

    return 1 + bisect_left(range(1, 10**15), True, key=enough)
