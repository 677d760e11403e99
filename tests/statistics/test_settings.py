"""Settings for which no bound is proved are refused by every statistic, each with the name of what is wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from statistic_cases import CASES, A, H, S

from privrl.audit.surface.adversarial_records import adversarial_records
from privrl.audit.surface.queries import Query
from privrl.mdp.features import AbstractFeatures, OneHotFeatures, TableFeatures
from privrl.statistics.counts import RewardSums, TransitionCounts, VisitCounts
from privrl.statistics.differences import Differences, ReturnsToGo
from privrl.statistics.gradients import BellmanGradient, ParameterGradient
from privrl.statistics.innovations import FirstStates, Innovations
from privrl.statistics.lq_moments import LQCross, LQGram, LQMoments
from privrl.statistics.mixtures import MixtureMoments
from privrl.statistics.moments import Gram, Targets
from privrl.statistics.next_states import FeatureTransitions, StartCounts
from privrl.statistics.regressions import Grams, Regressions, StateVisits, WeightedTransitions

NAN, INF = float("nan"), float("inf")
NOT_POSITIVE = (0.0, -1.0, NAN, INF, 1e-320, "1", True, None)
FEATURES = OneHotFeatures(S, A)
V, ONE = jnp.zeros(S), jnp.asarray(1.0)
Q = jnp.zeros((S, A))
DIFFERENCES = {
    "num_states": S,
    "num_actions": A,
    "horizon": H,
    "terminal": (),
    "contribution_norm": 1.0,
    "visit_weight": 1.0,
    "ending_weight": 1.0,
    "difference_weight": 1.0,
    "feature": V,
    "scale": ONE,
}


def sizes():
    """Numbers of states, steps and so on: whole and at least 1."""
    for bad in (0, -1, 2.0, NAN, True):
        for kind in (VisitCounts, RewardSums, TransitionCounts):
            yield "num_states", lambda kind=kind, bad=bad: kind(bad, A, H)
            yield "num_actions", lambda kind=kind, bad=bad: kind(S, bad, H)
            yield "horizon", lambda kind=kind, bad=bad: kind(S, A, bad)
        yield "num_states", lambda bad=bad: ReturnsToGo(bad, H, 1.0)
        yield "horizon", lambda bad=bad: ReturnsToGo(S, bad, 1.0)
        yield "horizon", lambda bad=bad: Differences(**DIFFERENCES | {"horizon": bad})
        yield "horizon", lambda bad=bad: BellmanGradient(Q, bad, 1.0)
        yield "horizon", lambda bad=bad: ParameterGradient(Q, bad, 1.0, slopes=jnp.zeros((S, A, 2)))
        for kind in (FeatureTransitions, Grams, Regressions, WeightedTransitions):
            yield "horizon", lambda kind=kind, bad=bad: kind(FEATURES, bad)
        yield "rows", lambda bad=bad: Regressions(FEATURES, H, bad)
        yield "num_states", lambda bad=bad: StateVisits(bad, H)
        yield "num_states", lambda bad=bad: StartCounts(bad)
        yield "state_dim", lambda bad=bad: Innovations(bad, 1)
        yield "state_dim", lambda bad=bad: FirstStates(bad, ONE)
        yield "input_dim", lambda bad=bad: LQMoments(2, bad, H, 1.0, 1.0)
        yield "horizon", lambda bad=bad: LQGram(2, 1, bad, 1.0)
        yield "state_dim", lambda bad=bad: LQCross(bad, 1, H, 1.0)
        yield "num_states", lambda bad=bad: MixtureMoments(jnp.ones(H), bad, A)


def levels():
    """Clip levels, weights and scales."""
    for bad in NOT_POSITIVE:
        if bad is not None:  # None: not clipped
            yield "contribution_norm", lambda bad=bad: VisitCounts(S, A, H, contribution_norm=bad)
            yield "weight_bound", lambda bad=bad: Gram(FEATURES, 0, weights=jnp.ones((S, A)), weight_bound=bad)
        yield "contribution_norm", lambda bad=bad: ReturnsToGo(S, H, bad)
        yield "return_bound", lambda bad=bad: ReturnsToGo(S, H, 1.0, bad)
        yield "contribution_norm", lambda bad=bad: Differences(**DIFFERENCES | {"contribution_norm": bad})
        yield "return_bound", lambda bad=bad: Differences(**DIFFERENCES, return_bound=bad)
        yield "norm", lambda bad=bad: BellmanGradient(Q, H, bad)
        yield "norm", lambda bad=bad: ParameterGradient(Q, H, bad, slopes=jnp.zeros((S, A, 2)))
        yield "target_weight", lambda bad=bad: LQMoments(2, 1, H, bad, 1.0)
        yield "trace_bound", lambda bad=bad: LQMoments(2, 1, H, 1.0, bad)
    for bad in (-1.0, -2.0, NAN, INF):
        for name in ("visit_weight", "ending_weight", "difference_weight", "reward_weight"):
            yield name, lambda name=name, bad=bad: Differences(**DIFFERENCES | {name: bad})
        yield "gain_bound", lambda bad=bad: LQGram(2, 1, H, bad)
        yield "gain_bound", lambda bad=bad: LQCross(2, 1, H, bad)
        yield "norm", lambda bad=bad: MixtureMoments(jnp.ones(H), S, A, norm=bad)
        yield "ranges", lambda bad=bad: MixtureMoments(jnp.ones(H).at[1].set(bad), S, A)
        yield "weights", lambda bad=bad: Gram(FEATURES, 0, weights=jnp.ones((S, A)).at[0, 0].set(bad))
        yield "weights", lambda bad=bad: Targets(FEATURES, 0, V, ONE, ONE, weights=jnp.full((S, A), bad))
        yield "weights", lambda bad=bad: FeatureTransitions(FEATURES, H, weights=jnp.full((H, S, A), bad))
        yield "radius", lambda bad=bad: FirstStates(2, jnp.asarray(bad))
        yield "scale", lambda bad=bad: Differences(**DIFFERENCES | {"scale": jnp.asarray(bad)})
    yield "scale", lambda: Differences(**DIFFERENCES | {"scale": jnp.asarray(0.0)})
    yield "radius", lambda: FirstStates(2, jnp.asarray(0.0))
    yield "return_bound", lambda: Differences(**DIFFERENCES, return_bound=0.5)
    yield "difference_weight", lambda: Differences(**DIFFERENCES | {"difference_weight": 1.1})
    yield "weights", lambda: FeatureTransitions(FEATURES, H, weights=jnp.full((H, S, A), 1.01))
    for bad in (NAN, INF, -0.1, 1.1):
        yield "discount", lambda bad=bad: BellmanGradient(Q, H, 1.0, bad)


def places():
    """Words, steps, states, pairs and shapes."""
    yield "counting", lambda: VisitCounts(S, A, H, "first-visits")
    yield "asking", lambda: TransitionCounts(S, A, H, asking="all")
    for bad in (-1, H, 7, 0.5, [0, 1]):
        yield "stage", lambda bad=bad: VisitCounts(S, A, H, stage=jnp.asarray(bad))
    for bad in (-1, 0.5, [0, 1]):
        yield "stage", lambda bad=bad: Gram(FEATURES, jnp.asarray(bad))
    yield "stage", lambda: VisitCounts(S, A, H, "pooled", stage=1)
    for bad in ([3, 1], [1, 1], [-1, 2], [], [[1, 2]], [0.5, 1.5]):
        yield "pairs", lambda bad=bad: TransitionCounts(S, A, H, pairs=jnp.asarray(bad))
    for bad in ((-1,), (S,), (0.0,), (True,), [0], 1, None):
        yield "terminal", lambda bad=bad: Differences(**DIFFERENCES | {"terminal": bad})
        yield "terminal", lambda bad=bad: BellmanGradient(Q, H, 1.0, terminal=bad)
    yield "feature", lambda: Differences(**DIFFERENCES | {"feature": jnp.zeros(S + 1)})
    for bad in (NAN, INF):
        yield "feature", lambda bad=bad: Differences(**DIFFERENCES | {"feature": V.at[1].set(bad)})
        yield "values", lambda bad=bad: Targets(FEATURES, 0, V.at[1].set(bad), ONE, ONE)
        yield "values", lambda bad=bad: BellmanGradient(Q.at[0, 0].set(bad), H, 1.0)
        yield "slopes", lambda bad=bad: ParameterGradient(Q, H, 1.0, slopes=jnp.full((S, A, 2), bad))
        yield "base", lambda bad=bad: MixtureMoments(jnp.ones(H), S, A, jnp.full((S, A, S, 2), bad))
        yield "low", lambda bad=bad: Targets(FEATURES, 0, V, jnp.asarray(-bad), ONE)
        yield "high", lambda bad=bad: Targets(FEATURES, 0, V, ONE, jnp.asarray(bad))
        yield "unrecorded", lambda bad=bad: Targets(FEATURES, 0, V, ONE, ONE, unrecorded=jnp.asarray(bad))
    yield "low", lambda: Targets(FEATURES, 0, V, jnp.asarray(2.0), ONE)
    yield "weights", lambda: Gram(FEATURES, 0, weights=jnp.ones((A, S)))
    yield "weights", lambda: FeatureTransitions(FEATURES, H, weights=jnp.ones((S, A)))
    yield "slopes", lambda: ParameterGradient(Q, H, 1.0, slopes=jnp.zeros((A, S, 2)))
    yield "values", lambda: BellmanGradient(jnp.zeros(S), H, 1.0)
    yield "values", lambda: Targets(FEATURES, 0, jnp.zeros(S + 1), ONE, ONE)
    yield "base", lambda: MixtureMoments(jnp.ones(H), S, A, jnp.zeros((S, A, S + 1, 2)))
    yield "ranges", lambda: MixtureMoments(jnp.ones(1), S, A)


@pytest.mark.parametrize("settings", [sizes, levels, places], ids=lambda f: f.__name__)
def test_settings_without_a_proof_are_refused(settings):
    refused = list(settings())
    for name, build in refused:
        with pytest.raises(ValueError, match=f"`{name}"):
            build()
    assert len(refused) > 40


class Loud(AbstractFeatures):
    """Somebody's own features: the table is fine and `of` is not, or the other way round."""

    table: jax.Array
    factor: float
    num_states: int = S
    num_actions: int = A
    dim: int = 2

    def of(self, states, actions):
        return self.factor * self.table[states, actions]


@pytest.mark.parametrize("kind", [Gram, Grams, FeatureTransitions, Regressions, WeightedTransitions])
def test_features_beyond_the_unit_ball_are_refused(kind):
    table = jnp.ones((S, A, 2)) / 2
    kind(Loud(table, 1.0), 1)
    for features in (Loud(table, 3.0), Loud(3.0 * table, 1.0), Loud(jnp.nan * table, 1.0)):
        with pytest.raises(ValueError, match="features"):
            kind(features, 1)
    with pytest.raises(ValueError, match="norm"):
        TableFeatures(3.0 * table)


@pytest.mark.parametrize("kind", [Gram, Grams, FeatureTransitions, WeightedTransitions])
def test_features_that_are_built_while_tracing_are_cut(kind):
    """Inside `jit` no table can be refused; its rows are cut to norm 1 where they are used."""
    records = adversarial_records(2, S, A)
    sane = kind(TableFeatures(jnp.ones((S, A, 2)) / 2), 2 if kind is not Gram else 0)

    def terms(table):
        statistic = kind(TableFeatures(table), sane.horizon if kind is not Gram else 0)
        return jax.vmap(lambda x: statistic.contribution(x, None).ravel())(jax.tree.map(jnp.asarray, records))

    found = np.asarray(jax.jit(terms)(50.0 * jnp.ones((S, A, 2))))
    largest = {Gram: 1.0, Grams: np.sqrt(2), FeatureTransitions: np.sqrt(2), WeightedTransitions: np.sqrt(2)}[kind]
    assert 0.9 < np.linalg.norm(found, axis=1).max() <= largest * (1 + 1e-12)
    assert np.isfinite(Query("sane", sane).answers(records)).all()


def test_weights_of_differences_are_squared_in_the_proof():
    """wM = -2 <= wn = 1 used to pass: distance 2.000 against sqrt(2) claimed."""
    with pytest.raises(ValueError, match="`difference_weight` is -2.0; it must be a finite number, at least 0"):
        Differences(**DIFFERENCES | {"difference_weight": -2.0})


def test_ordinary_settings_are_not_refused():
    assert sum(len(cases) for cases in CASES.values()) > 40
