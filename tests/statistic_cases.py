"""Every statistic of privrl with the settings and queries under which its bounds are searched.

`tests/statistics/test_search.py` finds all statistics by introspection and fails for one that is not in `CASES`, so a
new statistic cannot be left out. Settings: one of each kind that a proof treats differently. Queries: none, ordinary,
extreme, and such as no learner would publish (what is traced cannot be checked when a statistic is built).
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from privrl.audit.surface.adversarial_measurements import adversarial_measurements
from privrl.audit.surface.adversarial_records import adversarial_lq_records, adversarial_records
from privrl.contracts.learner import Plan
from privrl.contracts.statistic import AbstractStatistic
from privrl.mdp.anchored import LayeredValue
from privrl.mdp.assistance import AbstractAssisted
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy, count_cells
from privrl.mdp.features import OneHotFeatures, TableFeatures
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.measurements import Category, Feature, Measurement
from privrl.mdp.quadratic_features import QuadraticFeatures
from privrl.mdp.types import TabularPolicy
from privrl.mdp.value_features import TableValueFeature
from privrl.statistics.arm_sums import ArmSums, Assignment, Outcomes
from privrl.statistics.choice import CandidateScores
from privrl.statistics.column_shares import ColumnShares
from privrl.statistics.corrected_gains import CorrectedGains, ReturnSlopes
from privrl.statistics.counts import RewardSums, TransitionCounts, VisitCounts
from privrl.statistics.differences import Differences, ReturnsToGo
from privrl.statistics.gradients import BellmanGradient, EpisodeCount, ParameterGradient
from privrl.statistics.innovations import FirstStates, Innovations, Surprise
from privrl.statistics.lq_moments import LQCross, LQGram, LQMoments
from privrl.statistics.mixtures import MixtureMoments, feature_norm
from privrl.statistics.model_gains import ModelGains, NuisanceSums, StaySums
from privrl.statistics.moments import Gram, Targets
from privrl.statistics.next_states import FeatureTransitions, StartCounts
from privrl.statistics.norms import Norms, PersonNorms
from privrl.statistics.off_policy import CentredReturns, Changed, Gains, Influences, StayReturns, Unsupported, Weights
from privrl.statistics.person_sums import ActionGrams, FeatureErrors, FeatureReturns, Rewarding
from privrl.statistics.practice_residuals import PracticeResiduals
from privrl.statistics.practice_table import PracticeTable
from privrl.statistics.regressions import Grams, Regressions, StateVisits, WeightedTransitions
from privrl.statistics.reported import ByGroup, OfOutcome, Present
from privrl.statistics.stay_sums import ClippedErrors, ClippedNextStates, ClippedReturns, ClippedRewards, ClippedVisits

S, A, H, N, D = 3, 2, 3, 2, 1
SIZES = (S, A, H)


@dataclass(frozen=True)
class Searched:
    """One statistic, what may be published to people, and what may be asked afterwards."""

    statistic: AbstractStatistic
    published: tuple[Any, ...] = (None,)
    queries: tuple[Any, ...] = (None,)
    linear: bool = field(default=False, kw_only=True)
    columns: tuple[Measurement, ...] = field(default=(), kw_only=True)
    outcomes: int = field(default=0, kw_only=True)
    reported: bool = field(default=False, kw_only=True)

    def records(self, count: int = 480, seed: int = 0) -> Any:
        made = self._records(count, seed)
        return with_extras(made, seed) if self.reported else made

    def _records(self, count: int, seed: int) -> Any:
        if self.outcomes:
            return Outcomes(_adversarial_numbers(count, self.outcomes, seed))
        if self.linear:
            return adversarial_lq_records(H, N, D, count=count, seed=seed)
        if self.columns:
            return adversarial_measurements(H, self.columns, A, episodes=2, count=count, seed=seed)
        made = adversarial_records(H, S, A, count=count, seed=seed)
        if not self.statistic.per_person:
            return made
        stays = np.random.default_rng(seed).integers(count, size=(count, 2))
        stays[::3] = np.arange(count)[::3, None]  # one stay twice
        people = jax.tree.map(lambda x: x[stays], made)
        people.length[1::3, 1] = 0  # one stay alone
        return people


def with_extras(people: Any, seed: int) -> Any:
    """The same people with groups inside and outside the list, and with second outcomes of every kind."""
    rng, shape = np.random.default_rng(seed), people.rewards.shape
    odd = rng.choice([0.0, 1.0, -0.0, 2.0, -1.0, 0.5, 1e308, np.nan, np.inf, -np.inf], shape)
    groups = np.where(rng.random(shape) < 0.8, rng.integers(0, 2, (shape[0], 1, 1)), odd)
    numbers = _adversarial_numbers(shape[0], shape[1] * shape[2], seed).reshape(shape)
    costs = np.where(rng.random(shape) < 0.5, 5.0 * people.rewards, numbers)
    extras = np.stack([groups, costs], axis=-1)
    columns = (people.states, people.actions, people.rewards, people.next_states, people.length, people.propensities)
    return type(people)(*columns, extras)


def _adversarial_numbers(count: int, width: int, seed: int) -> np.ndarray:
    """Ordinary values, bounds, values beyond them, and what is not a number."""
    rng = np.random.default_rng(seed)
    odd = [0.0, 1.0, -0.0, -1.0, 5.0, 30.0, 1e308, -1e308, 5e-324, np.nan, np.inf, -np.inf]
    return np.where(
        rng.random((count, width)) < 0.7, rng.choice(odd, (count, width)), rng.uniform(0, 30, (count, width))
    )


def _arms() -> tuple[Searched, ...]:
    """Bounds and centres of several kinds; each arm and group on its own, because both worlds have the same."""
    assigned = tuple(
        Plan(None, Assignment(jnp.asarray(arm), jnp.asarray([cell]))) for arm, cell in ((0, 0), (1, 2), (-1, 1))
    )
    kinds = (
        ArmSums(2, 0.0, 1.0, 0.125),
        ArmSums(3, 0.0, 30.0, 0.875, which=1),
        ArmSums(2, -1.0, 7.0, 0.5, num_groups=3, partition=0),
    )
    return tuple(Searched(kind, assigned, outcomes=2) for kind in kinds)


def _table(seed: int = 0) -> TableFeatures:
    """Unit features in both directions, shorter ones, and none."""
    table = np.random.default_rng(seed).normal(size=(S, A, 4))
    table /= np.linalg.norm(table, axis=-1, keepdims=True)
    table[1, 0], table[1, 1], table[2, 1] = -table[0, 0], 0.3 * table[0, 1], 0.0
    return TableFeatures(jnp.asarray(table * (1 - 2**-50)))


def _plans(shape: tuple[int, ...], *, extreme: tuple[float, ...] = (0.0, 1.0, np.nan, np.inf, -np.inf, -3.0, 1e300)):
    """Published arrays: random ones, constant ones, and everything at once."""
    rng = np.random.default_rng(7)
    arrays = [rng.random(shape), *(np.full(shape, x) for x in extreme), rng.choice(extreme, shape)]
    policy = TabularPolicy.uniform(H, S, A)
    return tuple(Plan(policy, jnp.asarray(array)) for array in arrays)


def _surprises() -> tuple[Plan, ...]:
    rng = np.random.default_rng(8)
    theta = jnp.asarray(rng.normal(size=(N + D, N)))
    clips = ((1.0, 1.0), (1e-3, 10.0), (0.0, -1.0), (np.nan, np.inf), (1e-320, 1e300))
    asked = [Surprise(theta, jnp.asarray(x), jnp.asarray(v)) for x, v in clips]
    asked.append(Surprise(jnp.full_like(theta, jnp.nan), jnp.asarray(1.0), jnp.asarray(1.0)))
    return tuple(Plan(TabularPolicy.uniform(H, S, A), one) for one in asked)


def _counts(kind: Any, **more: Any) -> tuple[Searched, ...]:
    settings = (("per-stage", None, None), ("pooled", None, None), ("first-visit", None, None))
    clipped = (("pooled", 1.3, None), ("per-stage", 0.7, None), ("first-visit", 1.3, None), ("per-stage", None, 1))
    return tuple(Searched(kind(*SIZES, *one, **more)) for one in (*settings, *clipped))


def _differences() -> tuple[Searched, ...]:
    F = jnp.asarray([0.2, -5.0, 1.0])
    weights = (1.4, 0.8, 1.1, 0.8)
    return (
        Searched(Differences(S, A, H, (2,), *weights, F, jnp.asarray(0.3))),
        Searched(Differences(S, A, H, (), 0.5, 2.0, 0.0, 1e-9, F, jnp.asarray(1e-6), 0.9, 3.0)),
    )


def _moments() -> tuple[Searched, ...]:
    rng = np.random.default_rng(9)
    weights = jnp.asarray(rng.random((S, A)) * 3)
    return (
        Searched(Gram(_table(), 1)),
        Searched(Gram(_table(), 1, weights=weights)),
        Searched(Gram(OneHotFeatures(S, A), 0, weights=weights, weight_bound=0.8)),
    )


def _targets() -> tuple[Searched, ...]:
    rng = np.random.default_rng(10)
    weights, V = jnp.asarray(rng.random((S, A)) * 3), jnp.asarray([-1.0, 0.5, 9.0])
    bounds = (jnp.asarray(-0.5), jnp.asarray(2.0))
    return (
        Searched(Targets(_table(), 1, V, *bounds)),
        Searched(Targets(OneHotFeatures(S, A), 0, V, *bounds, with_reward=False, weights=weights, weight_bound=0.8)),
        Searched(Targets(_table(), 2, V, *bounds, weights=weights, centred=False, unrecorded=jnp.asarray(40.0))),
    )


def _gradients(kind: Any, **more: Any) -> tuple[Searched, ...]:
    Q = jnp.asarray(np.random.default_rng(11).normal(size=(S, A)))
    return (
        Searched(kind(Q, H, 0.7, **more)),
        Searched(kind(1e200 * Q, H, 0.7, 1.0, (0, 2), **more)),
    )


def _mixtures() -> tuple[Searched, ...]:
    rng = np.random.default_rng(12)
    base = jnp.asarray(rng.normal(size=(S, A, S, 3)))
    ranges = jnp.asarray([3.0, 2.0, 0.7])
    plans = _plans((H, S), extreme=(0.0, 3.0, np.nan, np.inf, -np.inf, -3.0, 1e300))
    return (
        Searched(MixtureMoments(ranges, S, A), plans),
        Searched(MixtureMoments(ranges, S, A, base, feature_norm(base)), plans),
        Searched(MixtureMoments(ranges, S, A, base, 0.4, as_printed=True), plans),
        Searched(MixtureMoments(ranges, S, A, as_printed=True), plans),
    )


def _regressions() -> tuple[Searched, ...]:
    rng = np.random.default_rng(13)
    functions = [rng.normal(size=(2, S)), *(np.full((2, S), x) for x in (1.0, -1.0, np.nan, np.inf, -1e300))]
    asked = tuple((h, jnp.asarray(v)) for h, v in zip((0, 1, 2, 0, 1, 99), functions, strict=True))
    plans = _plans((H, S, A))
    return (
        Searched(Regressions(_table(), H, 2, with_reward=True), plans[:3], asked),
        Searched(Regressions(_table(), H, 2, with_reward=True, centred=False), plans[-2:], asked[:2]),
    )


def _stay_sums(kind: Any, *more: Any) -> tuple[Searched, ...]:
    levels = (((2,), 0.9), ((), 1e-6), ((1,), 50.0))
    return tuple(Searched(kind(*SIZES, terminal, jnp.asarray(level), *more)) for terminal, level in levels)


_ERRORS = _stay_sums(ClippedErrors, jnp.asarray([0.2, 7.0, -1.0]), 0.9, 3.0)


COLUMNS = (
    Feature("pressure", 30, 130, missing=True),
    Feature("lactate", 0.2, 20, log=True),
    Category("ward", ("icu", "step-down"), missing=True),
)
_PHI = QuadraticFeatures(COLUMNS, jnp.asarray([0.1, -0.3]), jnp.asarray([0.4, 0.05]))


def _layered(seed: int = 15) -> LayeredValue:
    rng, d = np.random.default_rng(seed), _PHI.dim
    weights = (rng.normal(size=shape) for shape in ((d,), (2, d), (2, A, d), (2,), (d, A)))
    return LayeredValue(*(jnp.asarray(0.2 * one) for one in weights), jnp.asarray(0.1))


def _person_sums(kind: Any, *more: tuple[Any, ...]) -> tuple[Searched, ...]:
    levels = (0.9, 1e-6, 50.0)
    made = (kind(_PHI, A, jnp.asarray(level), *rest) for rest in more or ((),) for level in levels)
    return tuple(Searched(one, columns=COLUMNS) for one in made)


_IN_FLIGHT, _AT_END = Rewarding(False, 0.9, 0.5), Rewarding(True)
_FEATURE_ERRORS = _person_sums(FeatureErrors, (_IN_FLIGHT, _layered()), (_AT_END, _layered(16), 0.5))


WEIGHTS = (None, *_plans((H, S, A)))

_ADVICE = jnp.asarray([1, 0, 1])
_ASSISTED = tuple(
    AssistedPolicy(_ADVICE, jnp.asarray([0.3, 0.05, 0.9]), *dials, horizon=100)
    for dials in ((1.5, 4.0), (1.1, 1.2), (19.0, 50.0))
)
_UNEVEN = AssistedPolicy(
    _ADVICE, jnp.asarray([0.3, 0.05, 0.9]), 19.0, 50.0, strength=jnp.asarray([0.4, 1.0, 0.0]), horizon=100
)
_FEATURE = TableValueFeature(A, H, (2,), jnp.asarray([-1.0, 1.0, 0.4]))
_SUMS = StaySums(_ASSISTED[0], _FEATURE)
_MODEL = (jnp.asarray([0.1, -0.2]), jnp.linspace(-1.0, 1.0, 20).reshape(2, 10))


def _on_measurements(*dials: float) -> AssistedMeasuredPolicy:
    rng, d = np.random.default_rng(17), _PHI.dim
    theta, B, values = (jnp.asarray(rng.normal(size=shape)) for shape in ((A, d), (d, A), (d,)))
    advice = MeasuredPolicy(COLUMNS, None, _PHI.centre, _PHI.half_width, theta, 0.3 * B, jnp.ones(()), jnp.asarray(0.1))
    support = jnp.asarray(rng.choice([0.0, 0.05, 0.3, 0.9, 1.0], count_cells(A)))
    return AssistedMeasuredPolicy(advice, values, support, *dials, 0.5, horizon=100)


_MEASURED = tuple(_on_measurements(*dials) for dials in ((1.5, 4.0), (19.0, 50.0)))


def _gains(policy: AbstractAssisted, columns: tuple[Measurement, ...] = ()):
    settings = ((m, squared) for m in (0.69, 1.0) for squared in (False, True))
    several, pairs = (False, True), ((1.5, 4.0), (5.0, 20.0))
    yield from (Searched(Gains(policy, jnp.asarray(m), squared=squared), columns=columns) for m, squared in settings)
    joint = (Gains(policy, jnp.asarray(0.3), squared=squared, limits=pairs) for squared in several)
    yield from (Searched(one, columns=columns) for one in joint)


def _corrected():
    """One pair and several, slopes of both signs, on states and on measurements."""
    pairs = ((1.5, 4.0), (5.0, 20.0))
    settings = ((0.69, 0.5, None), (0.3, -0.2, pairs))
    kinds = ((_ASSISTED[0], _FEATURE, ()), (_UNEVEN, _FEATURE, ()), (_MEASURED[0], _MEASURED[0].value_feature, COLUMNS))
    for policy, feature, columns in kinds:
        for m, slope, limits in settings:
            at = (policy, feature, jnp.asarray(m), jnp.asarray(slope))
            both = (CorrectedGains(*at, squared=squared, limits=limits) for squared in (False, True))
            yield from (Searched(one, columns=columns) for one in both)


def _by_group():
    """Inner statistics of one and several entries, centred and squared; records without groups."""
    pairs = ((1.5, 4.0), (5.0, 20.0))
    inner = (
        Gains(_ASSISTED[0], jnp.asarray(0.6)),
        Gains(_ASSISTED[0], jnp.asarray(0.3), squared=True, limits=pairs),
        Influences(_ASSISTED[1]),
        Present(),
        StayReturns((0.5, 2.5)),
        CentredReturns((0.0, 2.0), jnp.asarray(0.3)),
    )
    yield from (Searched(ByGroup(one, 3), reported=True) for one in inner)
    yield Searched(ByGroup(inner[0], 3))
    at = (_MEASURED[0], _MEASURED[0].value_feature, jnp.asarray(0.69), jnp.asarray(0.5))
    for one in (CorrectedGains(*at), CorrectedGains(*at, squared=True), StayReturns()):
        yield Searched(ByGroup(one, 2), columns=COLUMNS, reported=True)


def _of_outcome():
    inner = (Gains(_ASSISTED[0], jnp.asarray(0.2)), Gains(_ASSISTED[2], jnp.asarray(1.0), squared=True), StayReturns())
    yield from (Searched(OfOutcome(one, 5.0), reported=True) for one in inner)
    yield Searched(OfOutcome(inner[0], 1e-3))
    slopes = ReturnSlopes(_MEASURED[0].value_feature, jnp.asarray(0.7))
    yield Searched(OfOutcome(slopes, 2.0), columns=COLUMNS, reported=True)


def _scores() -> tuple[Searched, ...]:
    """Weights of ordinary candidates, huge ones, and by step; values far beyond what a stay can pay."""
    rng = np.random.default_rng(11)
    ordinary, by_step = rng.uniform(-1.0, 4.0, (3, 1, S, A)), rng.uniform(-1.0, 40.0, (2, H, S, A))
    return (
        Searched(CandidateScores(jnp.asarray(1e6 * (ordinary - 1.5)), jnp.asarray([0.2, 1e3, 0.0]), H, (2,))),
        Searched(
            CandidateScores(
                jnp.asarray(ordinary),
                jnp.asarray([0.2, 0.9, 0.0]),
                H,
                (2,),
                limit=0.3,
                margins=jnp.asarray([0.0, 0.2, -5.0]),
            )
        ),
        Searched(CandidateScores(jnp.asarray(by_step), jnp.asarray([0.2, 0.9, 0.4]), H, (), 3.0)),
    )


CASES: dict[type, tuple[Searched, ...]] = {
    ArmSums: _arms(),
    VisitCounts: _counts(VisitCounts),
    RewardSums: _counts(RewardSums),
    TransitionCounts: (
        *_counts(TransitionCounts),
        *_counts(TransitionCounts, with_end=True, pairs=jnp.asarray([0, 3, 4, S * A]))[:3],
    ),
    ReturnsToGo: (
        Searched(ReturnsToGo(S, H, 1.2, 3.0)),
        Searched(ReturnsToGo(S, H, 0.4, 0.1)),
        Searched(ReturnsToGo(S, H, 1.2, 1.0, (2,), ended_only=True)),
    ),
    Differences: _differences(),
    ClippedVisits: _stay_sums(ClippedVisits),
    ClippedRewards: _stay_sums(ClippedRewards),
    ClippedErrors: _ERRORS,
    ClippedNextStates: (
        *_stay_sums(ClippedNextStates, jnp.asarray([0, 3, 4, S * A]), True),
        *_stay_sums(ClippedNextStates, jnp.asarray([1]), False),
    ),
    ClippedReturns: (*_stay_sums(ClippedReturns, 0.9, 3.0, True), *_stay_sums(ClippedReturns, 1.0, 0.1, False)),
    Norms: tuple(Searched(Norms(one.statistic, 0.1, 2.0)) for one in _ERRORS),
    ColumnShares: (Searched(ColumnShares(COLUMNS), columns=COLUMNS),),
    ActionGrams: _person_sums(ActionGrams),
    FeatureReturns: _person_sums(FeatureReturns, (_IN_FLIGHT,), (_AT_END,)),
    FeatureErrors: _FEATURE_ERRORS,
    PersonNorms: tuple(Searched(PersonNorms(one.statistic, 0.1, 2.0), columns=COLUMNS) for one in _FEATURE_ERRORS),
    StayReturns: (Searched(StayReturns()), Searched(StayReturns((0.5, 2.5))), Searched(StayReturns(), columns=COLUMNS)),
    Weights: (
        *(Searched(Weights(policy)) for policy in (*_ASSISTED, _UNEVEN)),
        *(Searched(Weights(policy), columns=COLUMNS) for policy in _MEASURED),
    ),
    Changed: (Searched(Changed(_ASSISTED[0])), Searched(Changed(_MEASURED[0]), columns=COLUMNS)),
    Unsupported: (Searched(Unsupported(_ASSISTED[0])), Searched(Unsupported(_MEASURED[0]), columns=COLUMNS)),
    Gains: (*(one for policy in _ASSISTED for one in _gains(policy)), *_gains(_MEASURED[0], COLUMNS)),
    Influences: tuple(Searched(Influences(policy)) for policy in _ASSISTED),
    CorrectedGains: tuple(_corrected()),
    CentredReturns: tuple(
        Searched(CentredReturns((0.0, 2.0), jnp.asarray(m), squared))
        for m in (0.0, 0.4, 1.0)
        for squared in (False, True)
    ),
    Present: (Searched(Present()), Searched(Present(), columns=COLUMNS)),
    ByGroup: tuple(_by_group()),
    OfOutcome: tuple(_of_outcome()),
    ReturnSlopes: (
        *(Searched(ReturnSlopes(_FEATURE, jnp.asarray(m), (0.0, 2.0))) for m in (0.0, 0.4)),
        Searched(ReturnSlopes(_MEASURED[0].value_feature, jnp.asarray(0.7)), columns=COLUMNS),
    ),
    PracticeResiduals: (
        *(Searched(PracticeResiduals(p, _FEATURE, arrival)) for p in _ASSISTED[:2] for arrival in (True, False)),
        Searched(PracticeResiduals(_MEASURED[0], _MEASURED[0].value_feature, False), columns=COLUMNS),
    ),
    CandidateScores: _scores(),
    PracticeTable: (
        *(Searched(PracticeTable(_ASSISTED[0], A, norm, every)) for norm, every in ((3.0, False), (0.5, True))),
        *(Searched(PracticeTable(_MEASURED[0], A, norm, every=True), columns=COLUMNS) for norm in (0.5, 4.0)),
    ),
    NuisanceSums: (Searched(NuisanceSums(_SUMS)), Searched(NuisanceSums(_SUMS, (1.0, 0.5)))),
    ModelGains: tuple(Searched(ModelGains(_SUMS, *_MODEL, squared=squared)) for squared in (False, True)),
    Gram: _moments(),
    Targets: _targets(),
    FeatureTransitions: (
        Searched(FeatureTransitions(_table(), H, with_rewards=True)),
        Searched(FeatureTransitions(_table(), H, weights=jnp.asarray(np.random.default_rng(14).random((H, S, A))))),
    ),
    StartCounts: (Searched(StartCounts(S)),),
    BellmanGradient: _gradients(BellmanGradient),
    ParameterGradient: _gradients(ParameterGradient, slopes=_table().table),
    EpisodeCount: (Searched(EpisodeCount()),),
    Innovations: (Searched(Innovations(N, D), _surprises(), linear=True),),
    FirstStates: (Searched(FirstStates(N, jnp.asarray(0.7)), linear=True),),
    LQMoments: (Searched(LQMoments(N, D, H, 0.7, 2.0), linear=True),),
    LQGram: (Searched(LQGram(N, D, H, 1.5), linear=True),),
    LQCross: (Searched(LQCross(N, D, H, 1.5), linear=True),),
    MixtureMoments: _mixtures(),
    Grams: (Searched(Grams(_table(), H), WEIGHTS),),
    Regressions: _regressions(),
    WeightedTransitions: (
        Searched(WeightedTransitions(_table(), H, with_rewards=True), WEIGHTS),
        Searched(WeightedTransitions(OneHotFeatures(S, A), H), WEIGHTS[:2]),
    ),
    StateVisits: (Searched(StateVisits(S, H)),),
}
