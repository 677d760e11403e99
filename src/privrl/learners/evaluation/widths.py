"""How wide the intervals of an evaluation will be, before any data are read."""

import math
from dataclasses import dataclass

import jax.numpy as jnp

from privrl.learners.evaluation.estimates import Interval, variance_bound
from privrl.learners.evaluation.model_gain import ABSOLUTE, LEAST_STRENGTH
from privrl.learners.evaluation.shares import MODEL, releases, skip_model
from privrl.mdp.assisted import AssistedPolicy
from privrl.privacy.noise.laws import GaussianNoise
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.statistics.evaluation import Gains
from privrl.statistics.model_gains import LARGEST

_MODEL_VARIANCE = 0.25  # of psi over stays, measured where advice follows practice in half of its decisions


@dataclass(frozen=True)
class Widths:
    """Expected widths of the 95% intervals, in the world's own units; `None` for a line that will be missing.

    `gain_at_most` is the width if weights vary as much as the dial and the deviation budget let them. `model_gain` is
    that of a model that finds no gain; it grows with what is found.
    """

    people: int
    practice: float
    gain: float | None
    gain_at_most: float | None
    model_gain: float | None


def plan_widths(
    people: int,
    budget: AbstractPrivatizer,
    *,
    public: bool = True,
    modelled: bool = True,
    dial: float = 1.5,
    deviation: float = 4.0,
    return_range: tuple[float, float] = (0.0, 1.0),
    practice_mean: float = 0.5,
    weight_variance: float = 1.0,
) -> Widths:
    """The widths to expect from `people` in the evaluation group.

    Arguments:
        people, budget: public; the budget has Gaussian noise.
        public, modelled: whether the probabilities of practice are public, and whether there is a value feature.
        dial, deviation, return_range: settings of the evaluation.
        practice_mean: a guess of the mean return, as a share of its range.
        weight_variance: a guess of the variance of weights; measured about 1 at a dial of 1.5, and at most cC - 1.
    """
    if budget.mechanism_of_rounds != "gaussian":
        raise PairingError("Widths are planned for Gaussian noise. Use `Central(epsilon=..., delta=...)`.")
    policy = AssistedPolicy(jnp.zeros(1, int), jnp.zeros(1), dial, deviation)
    declared = releases(public=public, bounded=math.isfinite(policy.bound), modelled=modelled)
    ledger = budget.calibrate(declared)
    mu = math.sqrt(sum(ledger.parameter(d.name) ** 2 for d in declared if d.name in MODEL))
    refused = modelled and people * mu < LEAST_STRENGTH
    practice = ledger.spend("practice")
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
    return Widths(people, width(variance_bound(m, 1.0), 1.0 / practice), gain, at_most, model)
