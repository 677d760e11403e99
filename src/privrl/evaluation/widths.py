"""How wide the intervals of an evaluation will be, and how many people it needs, before any data are read."""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import jax.numpy as jnp
import numpy as np

from privrl.contracts.release import Declared
from privrl.evaluation.comparing import ESTIMATED, VARIANCES
from privrl.evaluation.confidence import ERROR_RATE, Interval, variance_bound
from privrl.evaluation.estimates import FITTED, FITTED_STATES, NEGLIGIBLE, Assumption
from privrl.evaluation.limits import PAIRS, choose_limits
from privrl.evaluation.model_gain import ABSOLUTE, LEAST_STRENGTH
from privrl.evaluation.shares import MODEL, releases, skip_model
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.reported_columns import UNREPORTED, ReportedColumns
from privrl.mdp.value_features import TableValueFeature
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.statistics.corrected_gains import CorrectedGains
from privrl.statistics.model_gains import LARGEST
from privrl.statistics.off_policy import AbstractPairMeans, Gains, Limits
from privrl.statistics.practice_residuals import PracticeResiduals

_SLOPE = 0.15  # of returns against the value feature, on measurements
_MODEL_VARIANCE = 0.25  # of psi over stays, measured where advice follows practice in half of its decisions


@dataclass(frozen=True)
class PeopleNeeded:
    """How many people an evaluation needs before a policy can be released; public numbers alone decide it.

    Attributes:
        estimate: with fewer, there is no estimate of a gain, or its noise alone hides the largest gain that the limits
            allow.
        least: with fewer, the policy is withheld whatever the data show: the same, or the checks of practice stay
            inconclusive.
        enough: with this many, each check of practice is passed in about 95% of studies, if practice follows the
            recorded state alone.
    """

    estimate: int
    least: int
    enough: int


@dataclass(frozen=True)
class Widths:
    """Expected widths of the 95% intervals, in the world's own units; `None` for a line that will be missing.

    `gain_at_most` is the width if weights vary as much as `max_ratio` and `max_weight` let them. `model_gain` is
    that of a model that finds no gain; it grows with what is found. `needed` is how many people a release needs;
    `None`: no number of people is enough.
    """

    people: int
    practice: float
    gain: float | None
    gain_at_most: float | None
    model_gain: float | None
    needed: PeopleNeeded | None


def plan_widths(
    people: int,
    budget: AbstractPrivatizer,
    *,
    public: bool = True,
    modelled: bool = True,
    in_cells: bool = False,
    max_ratio: float | None = None,
    max_weight: float | None = None,
    return_range: tuple[float, float] = (0.0, 1.0),
    practice_mean: float = 0.5,
    weight_variance: float = 1.0,
    assumption: Assumption = "checked",
    markov: bool = False,
    reported: ReportedColumns = UNREPORTED,
) -> Widths:
    """The widths to expect from `people` in the evaluation group, and how many are needed.

    Arguments:
        people, budget: public; the budget has Gaussian noise.
        public, modelled: whether the probabilities of practice are public, and whether there is a value feature.
        in_cells: whether the policy is on measurements; practice is then estimated, and no model is made.
        max_ratio, max_weight, return_range: settings of the evaluation. By default several pairs of limits are
            compared, and widths are those of the smallest pair.
        practice_mean: a guess of the mean return, as a share of its range.
        weight_variance: a guess of the variance of weights; about 1 at a `max_ratio` of 1.5, and at most cC - 1.
        assumption: what is known about who decided.
        markov: the study states that the recorded state is complete, so that the model may decide.
        reported: columns by which and about which more is estimated; they take a share of the budget.
    """
    if budget.mechanism_of_rounds != "gaussian":
        raise PairingError("Widths are planned for Gaussian noise. Use `Central(epsilon=..., delta=...)`.")
    limits = choose_limits(max_ratio, max_weight)
    policy = AssistedPolicy(jnp.zeros(1, int), jnp.zeros(1), *limits[0], horizon=1)
    public, modelled = public and not in_cells, modelled and not in_cells
    markov = markov and modelled
    settings = {"bounded": math.isfinite(policy.bound), "modelled": modelled, "in_cells": in_cells, "markov": markov}
    declared = releases(public=public, assumption=assumption, reported=reported, **settings)
    known, checked = public or assumption in ("logged", "randomised"), assumption == "checked"
    ledger, names = budget.calibrate(declared), {d.name for d in declared}
    mu = math.sqrt(sum(ledger.parameter(d.name) ** 2 for d in declared if d.name in MODEL))
    modelled = modelled and mu > 0.0
    refused = modelled and people * mu < LEAST_STRENGTH
    needed = people_needed(
        declared, budget, public=known, checked=checked, markov=markov, limits=limits, logged=assumption == "logged"
    )
    practice = ledger.spend("practice")
    if refused:
        skip_model(ledger, declared)
    unit, m = return_range[1] - return_range[0], practice_mean

    def width(variance: float, deviation: float, allowance: float = 0.0, among: int = 1) -> float:
        interval = Interval.of(0.0, variance, people, GaussianNoise(deviation, (1,)), allowance, among=among)
        return unit * (interval.high - interval.low)

    gain = at_most = model = None
    among = len(limits) + markov
    counted = "gain" in names and (known or people * ledger.parameter("practice-table") >= LEAST_STRENGTH)
    if counted:
        logged = assumption == "logged"
        corrected, centre = in_cells and not known, 0.0 if logged else m
        both = (_gains(policy, centre, limits, squared, corrected, logged) for squared in (False, True))
        first, second = (one.l2("replace-one") * float(one.units[0]) for one in both)
        first, second = first / ledger.spend("gain"), second / ledger.spend("gain-square") / people
        largest, spread = policy.bound - 1.0, m if logged else variance_bound(m, 1.0)
        gain, at_most = (
            width(variance, first, _allowance(variance, known, in_cells), among)
            for variance in (weights * spread + second for weights in (min(weight_variance, largest), largest))
        )
    if modelled and not refused:
        square = LARGEST**2 / ledger.spend("model-square") / people
        noise = 2.0 * LARGEST / ledger.spend("model-gain")
        model = width(_MODEL_VARIANCE + square, noise, ABSOLUTE, among if markov else 1)
    return Widths(people, width(variance_bound(m, 1.0), 1.0 / practice), gain, at_most, model, needed)


def _gains(
    policy: AssistedPolicy, m: float, limits: Limits, squared: bool, corrected: bool, logged: bool
) -> AbstractPairMeans:
    """What is released of the gain; if it is corrected, with a guess of the slope of returns."""
    if not corrected:
        return Gains(policy, jnp.asarray(m), squared=squared, limits=limits, logged=logged)
    feature = TableValueFeature(1, 1, (), jnp.zeros(1))
    return CorrectedGains(policy, feature, jnp.asarray(m), jnp.asarray(_SLOPE), squared=squared, limits=limits)


def _allowance(variance: float, known: bool, in_cells: bool) -> float:
    """For what the estimate of practice misses."""
    if known:
        return 0.0
    return FITTED * math.sqrt(variance) if in_cells else FITTED_STATES


def people_needed(
    declared: tuple[Declared, ...],
    budget: AbstractPrivatizer,
    *,
    public: bool,
    checked: bool = True,
    markov: bool = False,
    limits: Limits = PAIRS,
    logged: bool = False,
) -> PeopleNeeded | None:
    """How many people a release needs; `None` if no number is enough.

    Arguments:
        declared: what the evaluator releases.
        budget: of the evaluation, with Gaussian noise.
        public: whether the probabilities of practice are.
        checked: whether a release needs checks of practice that are conclusive.
        markov: whether a model of the whole advice may decide.
        limits: the pairs of limits that are compared.
        logged: whether returns count from their lower bound, because weights are clipped.
    """
    ledger = budget.calibrate(declared)
    mu = {d.name: ledger.parameter(d.name) for d in declared}
    return people_needed_at(mu, public=public, checked=checked, markov=markov, limits=limits, logged=logged)


def people_needed_at(
    mu: Mapping[str, float],
    *,
    public: bool,
    checked: bool = True,
    markov: bool = False,
    limits: Limits = PAIRS,
    logged: bool = False,
) -> PeopleNeeded | None:
    """The same from mu of each release of the evaluator, by name; releases without checks of practice need none."""
    names = mu.keys()
    ways: list[int] = []
    if "gain" in names:
        table = 1 if public else math.ceil(LEAST_STRENGTH / mu["practice-table"])
        ways.append(max(table, _people_beyond_noise(mu, limits, markov, logged)))
    if "nuisance" in names and markov:
        ways.append(math.ceil(LEAST_STRENGTH / math.hypot(*(mu[name] for name in MODEL))))
    if not ways:
        return None
    estimate = max(min(ways), 1)
    if not checked or "residuals" not in names:
        return PeopleNeeded(estimate, estimate, estimate)
    policy = AssistedPolicy(jnp.zeros(1, int), jnp.zeros(1), horizon=1)
    sums = PracticeResiduals(policy, TableValueFeature(1, 1, (), jnp.zeros(1)), arrival=public)
    noise = GaussianNoise(sums.l2("replace-one") / mu["residuals"], sums.shape)
    return PeopleNeeded(estimate, *(max(estimate, _people_needed(noise, public, chance)) for chance in (0.0, 1.0)))


def _people_beyond_noise(mu: Mapping[str, float], limits: Limits, markov: bool, logged: bool) -> int:
    """The fewest people with whom a lower bound above 0 is possible for one of the pairs of limits.

    A weight of at most C with the mean 1 raises the mean return, as a share m of its range, to at most min(1, C m), so
    the gain is at most min(1 - m, (C - 1) m) <= 1 - 1/C. The half width of the one-sided interval is at least z times
    the root of p^2 + q + r (`showing.py`) over the number of people, whatever the data show. The noise p and q is that
    of a mean return in the middle of its range, where it is smallest; with clipped weights, returns count from 0.
    """
    policy = AssistedPolicy(jnp.zeros(1, int), jnp.zeros(1), horizon=1)
    centre, among = jnp.asarray(0.0 if logged else 0.5), len(limits) + markov
    first, second = (Gains(policy, centre, squared=way, limits=limits, logged=logged) for way in (False, True))
    noise = first.units * first.l2("replace-one") / mu["gain"]
    square = second.units * second.l2("replace-one") / mu["gain-square"]
    largest = np.array([max_weight for _, max_weight in limits])
    z = NormalDist().inv_cdf(1.0 - ERROR_RATE / among)
    half = z * np.sqrt(noise**2 + square + largest**2 * math.log(among / ERROR_RATE))
    return math.ceil(float(np.min(half / (1.0 - 1.0 / largest))))


def _people_needed(noise: GaussianNoise, public: bool, chance: float) -> int:
    """The fewest people with whom residuals that are 0 but for chance, in half widths, are seen to be negligible."""
    allowance = 0.0 if public else ESTIMATED

    def enough(people: int) -> bool:
        found = Interval.of(0.0, max(VARIANCES), people, noise, allowance)
        return found.upper + chance * (found.half - allowance) <= NEGLIGIBLE

    return 1 + bisect_left(range(1, 10**15), True, key=enough)
