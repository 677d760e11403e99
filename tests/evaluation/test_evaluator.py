"""The evaluator: right where the truth is known, refuses in words, and its releases are declared, bounded and paid."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import check_asked, hostile_trajectories
from hypothesis import given
from hypothesis import strategies as st
from two_states import ADVICE, DEATH, ENV, FEATURE, PEOPLE, WHOLE, H, evaluated, evaluator, table

import privrl
from privrl.audit.surface.recorded_fit import record_queries
from privrl.contracts.release import Release
from privrl.evaluation.confidence import Interval
from privrl.evaluation.decision import Bound, Reason
from privrl.evaluation.estimates import Evaluation
from privrl.evaluation.gain_intervals import GainEntry, certified_interval
from privrl.evaluation.influence import overturning_odds
from privrl.evaluation.limits import PAIRS
from privrl.evaluation.model_gain import standard_feature
from privrl.evaluation.shares import model_mu, releases
from privrl.evaluation.widths import plan_widths
from privrl.mdp.assisted import AssistedPolicy, simulate_gain, stationary_advice
from privrl.mdp.exported_policy import ExportedPolicy
from privrl.mdp.value_features import TableValueFeature
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.privacy.trust.privatizers import PairingError
from privrl.statistics.off_policy import Gains
from privrl.statistics.practice_residuals import PracticeResiduals


@pytest.fixture(scope="module")
def data():
    return table()


@pytest.fixture(scope="module")
def noiseless(data):
    return evaluated(data, evaluator(), privrl.NonPrivate(), key=jax.random.key(0)).found


def test_without_noise_everything_is_near_the_truth(noiseless):
    truth = simulate_gain(ENV.mdp, ENV.behaviour, noiseless.policy, 40_000, key=jax.random.key(1))
    assert noiseless.gain.low - 3 * truth.se < truth.gain < noiseless.gain.high + 3 * truth.se
    assert noiseless.pairs[0].gain.high - noiseless.pairs[0].gain.low < 0.02
    assert [(one.max_ratio, one.max_weight) for one in noiseless.pairs] == [*PAIRS]
    assert noiseless.gain == max((one.gain for one in noiseless.pairs), key=lambda gain: gain.lower)
    assert noiseless.practice.low < truth.practice < noiseless.practice.high
    assert noiseless.balance.low < 1.0 < noiseless.balance.high
    assert noiseless.unsupported.value == 0.0
    assert abs(noiseless.model_gain.value - WHOLE) < 0.02  # sampling error alone: two states are a straight line
    assert noiseless.model_gain.low < WHOLE < noiseless.model_gain.high
    assert noiseless.verdict == "better" and "at least" in noiseless.line
    assert 1.0 < noiseless.sensitivity < 3.0
    assert noiseless.refused == ()


def test_the_policy_has_the_horizon_that_was_evaluated(noiseless):
    """Before, the exported policy also advised at later steps, where the advice may be harmful."""
    assert noiseless.policy.horizon == noiseless.released_policy.horizon == H
    reader = ExportedPolicy(json.loads(json.dumps(noiseless.released_policy.to_json())))
    reasons = [reader.advise(0, step=step).reason for step in range(H + 2)]
    assert reasons == [reasons[0]] * H + ["past the horizon"] * 2


def test_the_model_is_exact_where_its_line_is():
    """Averaged over tables, the model's estimate has no bias, whatever practice does."""
    found = [
        evaluated(table(4000, seed), evaluator(4000), privrl.NonPrivate(), key=jax.random.key(0)).found.model_gain.value
        for seed in range(6)
    ]
    assert abs(np.mean(found) - WHOLE) < 4 * np.std(found) / math.sqrt(len(found)) + 0.002


def test_releases_are_declared_and_paid(data):
    private = privrl.Central(epsilon=3.0, delta=1e-6)
    result = evaluated(data, evaluator(), private, key=jax.random.key(3))
    certificate = result.certificate
    assert certificate.epsilon == pytest.approx(3.0, rel=1e-3)
    assert all(release["counted"] == release["declared"] == 1 for release in certificate.releases)
    again = evaluated(data, evaluator(), private, key=jax.random.key(3)).found
    assert again.to_json() == result.found.to_json()
    assert result.found.model_gain is not None and result.found.gain is not None


@pytest.mark.slow
def test_no_two_persons_break_the_bound_of_a_release(data):
    """Each statistic by itself is attacked in `statistics/`."""
    one, private = evaluator(), privrl.Central(epsilon=3.0, delta=1e-6)
    asked = record_queries(data, one, one.evaluate, private, jax.random.key(3)).queries
    people = jax.tree.map(lambda x: jnp.stack([x, jnp.roll(x, 7, axis=0)], axis=1), hostile_trajectories(H, 4, 2))
    check_asked(asked, people)


@pytest.mark.slow  # the command line's evaluations are exact: `test_cli_evaluate.py`
def test_exact_noise_serves_it_too():
    small = table(300)
    result = evaluated(small, evaluator(300), privrl.Central(epsilon=3.0, delta=1e-6))
    assert result.certificate.noise_source == "system"
    assert result.found.gain is not None and result.found.model_gain is None
    skipped = {release["name"]: release["skipped"] for release in result.certificate.releases}
    assert [skipped[name] for name in ("nuisance", "model-gain", "model-square", "gain")] == [1, 1, 1, 0]


def test_shares_add_up():
    def shares(**settings):
        return {d.name: d.weight for d in evaluator(**settings).declare()}

    public, estimated = shares(), shares(practice=None)
    assert public["gain"] + public["gain-square"] == 40.0 and public["influences"] == 6.0
    assert public["practice"] == 4.0 and public["balance"] == 3.0 and public["unsupported"] == public["changed"] == 1.0
    assert estimated["practice-table"] == 44.0 and estimated["gain"] == 36.0 and "influences" not in estimated
    logged, recorded = shares(practice=None, assumption="logged"), shares(practice=None, assumption="recorded")
    assert "residuals" not in logged and "nuisance" not in logged and logged["practice-table"] == 12.0
    assert recorded["residuals"] == 8.0 and "nuisance" not in recorded  # the checks need not be passed
    assert "nuisance" in shares(practice=None) and "nuisance" in shares(practice=None, markov=True)
    assert shares(practice=None, assumption="logged", markov=True)["nuisance"] == 16.0
    assert sum(public[name] for name in ("nuisance", "model-gain", "model-square")) == 27.0
    assert public["nuisance"] == 8.0 and public["residuals"] == 20.0
    whole = shares(max_weight=math.inf)
    assert "gain" not in whole and "balance" not in whole and "nuisance" in whole


def test_with_an_estimated_practice_nothing_is_certified(data):
    found = evaluated(
        data, evaluator(practice=None), privrl.Central(epsilon=3.0, delta=1e-6), key=jax.random.key(4)
    ).found
    assert found.gain is None and found.sensitivity is None and found.verdict == "not shown"
    assert any("no gain is certified" in words for words in found.refused)
    np.testing.assert_allclose(found.policy.support[:2], [0.4, 0.3], atol=0.03)
    assert found.model_gain.low < WHOLE < found.model_gain.high


def test_states_that_nobody_visits_are_not_trusted(data):
    found = evaluated(
        data, evaluator(practice=None), privrl.Central(epsilon=1.0, delta=1e-6), key=jax.random.key(5)
    ).found
    np.testing.assert_array_equal(np.asarray(found.policy.support)[2:], 0.0)
    faint = evaluated(
        table(500), evaluator(500, practice=None), privrl.Central(epsilon=0.01, delta=1e-6), key=jax.random.key(5)
    )
    assert float(faint.found.policy.alpha.max()) == 0.0  # practice itself


def test_wrong_probabilities_of_practice_are_noticed(data):
    wrong = jnp.asarray([[0.9, 0.1], [0.9, 0.1], [0.5, 0.5], [0.5, 0.5]])
    found = evaluated(data, evaluator(practice=wrong), privrl.NonPrivate(), key=jax.random.key(0)).found
    assert found.gain is None and found.verdict == "not shown"
    assert any("mean weight" in words for words in found.refused)
    assert Reason.UNBALANCED in found.reasons


def followed(people, seed, follows):
    """Stays in which, with probability `follows`, practice does again what it did before."""
    stays = ENV.sample(ENV.behaviour_policy(), people, jax.random.key(seed))
    actions, rng = np.array(stays.actions), np.random.default_rng(seed)
    for h in range(1, H):
        actions[:, h] = np.where(rng.random(people) < follows, actions[:, h - 1], actions[:, h])
    again = dataclasses.replace(stays, actions=actions)
    return privrl.data.Episodes.from_trajectories(again, num_states=4, num_actions=2)


def test_practice_that_follows_more_than_the_state_is_noticed(data):
    """Nothing is then compared, nothing is shown, and every decision is left as it is."""
    clean = evaluated(data, evaluator(), privrl.Central(epsilon=1.0, delta=1e-6), key=jax.random.key(0)).found
    assert not clean.continuity.evidently_not_zero and not clean.trend.evidently_not_zero
    assert not clean.reasons and clean.released_policy is clean.policy and clean.decision.outcome == "released"
    habit = followed(PEOPLE, 1, 0.5)
    found = evaluated(habit, evaluator(), privrl.Central(epsilon=1.0, delta=1e-6), key=jax.random.key(0)).found
    assert found.continuity.evidently_not_zero and found.gain is None and found.model_gain is None
    assert found.verdict == "not shown" and Reason.FOLLOWS_MORE in found.reasons
    assert (
        found.decision.outcome == "withheld"
        and np.all(found.released_policy(np.arange(4)) == -1)
        and not found.policy.is_silent
    )


def test_practice_that_treats_people_who_arrive_as_it_treats_no_others_is_noticed():
    """Whoever arrives is treated by a coin, and later decisions follow the state: neither a trend nor the decision
    before shows that."""
    stays = ENV.sample(ENV.behaviour_policy(), PEOPLE, jax.random.key(1))
    actions = np.array(stays.actions)
    actions[:, 0] = np.where(np.random.default_rng(1).random(PEOPLE) < 0.3, 0, actions[:, 0])
    people = privrl.data.Episodes.from_trajectories(
        dataclasses.replace(stays, actions=actions), num_states=4, num_actions=2
    )
    found = evaluated(people, evaluator(), privrl.Central(epsilon=1.0, delta=1e-6), key=jax.random.key(0)).found
    assert not found.continuity.evidently_not_zero and not found.trend.evidently_not_zero
    assert found.arrival.evidently_not_zero and found.gain is None and Reason.FOLLOWS_MORE in found.reasons
    estimated = evaluated(people, evaluator(practice=None), privrl.NonPrivate(), key=jax.random.key(0)).found
    assert estimated.arrival is None and estimated.trend is not None  # errors of b* would look the same


def test_residuals_have_mean_zero_in_worlds_whose_practice_follows_the_state():
    """Six worlds, exact sums; stopping keeps the mean, which clipping would not."""
    z = []
    for seed in range(6):
        found = evaluated(table(4000, 100 + seed), evaluator(4000), privrl.NonPrivate(), key=jax.random.key(0)).found
        z += [(one.value, one.half / 1.96) for one in (found.trend, found.continuity, found.arrival)]
    assert all(abs(value) < 3.5 * se for value, se in z)


def test_policies_are_withheld_unless_the_lower_bound_is_above_zero(noiseless):
    def bounded(lower):
        return dataclasses.replace(noiseless, bound=Bound(lower, 0.05, "certified"))

    assert not noiseless.reasons and noiseless.bound == Bound(noiseless.gain.lower, 0.05, "certified")
    assert bounded(0.0).reasons == bounded(-0.001).reasons == (Reason.NO_GAIN,) and not bounded(0.001).reasons
    assert dataclasses.replace(noiseless, bound=None).reasons == (Reason.NO_ESTIMATE,)
    silent = dataclasses.replace(noiseless, policy=noiseless.policy.without_advice())
    assert silent.reasons == (Reason.NO_SUPPORT,)
    off = dataclasses.replace(noiseless, balance=Interval(1.2, 1.1, 1.3, 1.12, 1.28))
    assert off.reasons == dataclasses.replace(off, public=False).reasons == (Reason.UNBALANCED,)
    near = dataclasses.replace(noiseless, balance=Interval(1.05, 1.03, 1.07, 1.035, 1.065))
    assert near.reasons == (Reason.UNBALANCED,) and not dataclasses.replace(near, public=False).reasons
    wide = Interval(0.0, -0.1, 0.1, -0.084, 0.084)
    for unsure in ({"trend": wide}, {"arrival": wide}, {"trend": None, "continuity": None, "arrival": None}):
        assert dataclasses.replace(noiseless, **unsure).reasons == (Reason.INCONCLUSIVE,)


def test_what_was_decided_is_computed_from_the_policy_that_was_saved(noiseless):
    """With `release_anyway`, the outputs said that every decision stays as it is, while the policy changed 14%."""
    worse = dataclasses.replace(noiseless, bound=Bound(-0.1, 0.05, "certified"))
    assert worse.decide_on(worse.policy).outcome == "released without evidence"
    assert worse.decide_on(worse.policy).changed == worse.changed.value > 0.05
    assert worse.decide_on(None).outcome == worse.decide_on(worse.released_policy).outcome == "withheld"
    assert worse.decision.changed == 0.0 and worse.decision.statement == "Withheld: decisions stay as they are."
    assert noiseless.decision.outcome == "released" and noiseless.decide_on(None).outcome == "withheld"
    another = noiseless.decide_on(noiseless.policy.with_limits(2.0, 4.0))
    assert another.outcome == "released without evidence" and another.reasons == (Reason.ANOTHER_POLICY,)
    assert another.changed is None  # the share is that of the policy that was evaluated
    percent = f"{noiseless.changed.value:.0%}"
    assert noiseless.decision.statement == f"Released: changes {percent} of decisions."
    anyway = worse.decide_on(worse.policy).statement
    assert anyway == f"Released without evidence, at your request. Changes {percent} of decisions."


def test_the_share_of_changed_decisions_is_that_of_simulated_people(noiseless):
    """Whether practice and advice differ, counted in a simulation of the policy, against the release without noise."""
    policy, rng = noiseless.policy, np.random.default_rng(0)
    b, advice, P = np.asarray(policy.support), np.asarray(policy.advice), np.asarray(ENV.mdp.transition)[0]
    state, w = rng.integers(0, 2, PEOPLE), np.ones(PEOPLE)
    changed, decisions = np.zeros(PEOPLE), np.zeros(PEOPLE)
    for _ in range(H):
        alive = state < DEATH
        k = np.minimum(policy.max_ratio, policy.max_weight / np.maximum(w, 1e-9))
        alpha = np.where(b[state] >= 0.05, np.minimum(1.0, (k - 1) * b[state] / (1 - b[state])), 0.0)
        usual = (rng.random(PEOPLE) < np.asarray(ENV.behaviour)[..., 1].reshape(-1, 4)[0][state]).astype(int)
        action = np.where(rng.random(PEOPLE) < alpha, advice[state], usual)
        changed += alive & (action != usual)
        decisions += alive
        w *= 1 - alpha + alpha * (action == advice[state]) / np.maximum(b[state], 0.05)
        draws = rng.random(PEOPLE)[:, None] > np.cumsum(P[state, action], axis=-1)
        state = np.where(alive, draws.sum(axis=-1).clip(0, 3), state)
    assert noiseless.changed.value == pytest.approx(np.mean(changed / decisions), abs=0.03)


def test_an_infinite_weight_has_no_certified_line(data):
    found = evaluated(data, evaluator(max_weight=math.inf), privrl.NonPrivate(), key=jax.random.key(0)).found
    assert found.gain is None and found.balance is None and found.model_gain is not None
    assert Evaluation.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))).to_json() == found.to_json()


def test_json_keeps_everything_and_notices_another_verdict(noiseless):
    content = json.loads(json.dumps(noiseless.to_json(), allow_nan=False))
    again = Evaluation.from_json(content)
    assert again == noiseless and again.to_json() == noiseless.to_json() and again.words == noiseless.words
    with pytest.raises(ValueError, match="verdict"):
        Evaluation.from_json({**content, "verdict": "not shown"})


def test_the_verdict_is_a_function_of_the_gain(noiseless):
    def judged(low, high, lower, upper):
        gain = Interval((low + high) / 2, low, high, lower, upper)
        return dataclasses.replace(noiseless, gain=gain)

    assert judged(-0.001, 0.02, 0.001, 0.019).verdict == "better"
    assert judged(-0.02, -0.001, -0.018, -0.003).verdict == "worse"
    assert judged(-0.01, 0.01, -0.008, 0.008).verdict == "not shown"
    assert dataclasses.replace(noiseless, gain=None).verdict == "not shown"
    assert "Worse" in judged(-0.02, -0.001, -0.018, -0.003).line


@given(
    A=st.floats(0.001, 3.0),
    B=st.floats(0.001, 3.0),
    m=st.floats(0.0, 1.0),
    margin=st.floats(0.0, 1.0),
)
def test_the_odds_ratio_is_where_the_worst_shortfall_reaches_the_margin(A, B, m, margin):
    p, q = (1 - m) * A, m * B
    odds = overturning_odds(margin, p, q)
    assert odds >= 1.0 - 1e-12
    if math.isfinite(odds):
        assert p * (1 - 1 / odds) + q * (odds - 1) == pytest.approx(margin, abs=1e-9, rel=1e-9)
    assert overturning_odds(margin, 2 * p, q) <= odds * (1 + 1e-9)
    assert overturning_odds(margin, p, 2 * q) <= odds * (1 + 1e-9)


def test_an_unrecorded_influence_below_the_odds_ratio_does_not_overturn_the_gain():
    """One decision, one hidden bit u that moves treatment and outcome: exact, over many worlds."""
    rng = np.random.default_rng(0)
    c, tight = 1.5, 0.0
    for _ in range(400):
        share, b_u = rng.dirichlet([1.0, 1.0]), rng.uniform(0.1, 0.9, 2)
        G = rng.uniform(0, 1, (2, 2))  # [u, action]
        b = share @ b_u
        alpha = min(1.0, (c - 1) * b / (1 - b))
        w, v = np.array([1 - alpha, 1 - alpha + alpha / b]), 1 - alpha
        joint = share[:, None] * np.stack([1 - b_u, b_u], axis=1)
        m = (joint * G).sum()
        recorded = (joint * (w[None] - 1) * (G - m)).sum()
        true = (share * alpha * (G[:, 1] - (joint * G).sum(axis=1) / share)).sum()
        A, B = (joint * (w[None] - v) * G).sum(), (joint * (w[None] - v) * (1 - G)).sum()
        odds = (b_u / (1 - b_u)) / (b / (1 - b))
        gamma = max(odds.max(), 1 / odds.min())
        allowed = (1 - m) * A * (1 - 1 / gamma) + m * B * (gamma - 1)
        assert recorded - true <= allowed + 1e-12
        tight = max(tight, (recorded - true) / allowed)
        if recorded > 0 and true <= 0:
            assert gamma >= overturning_odds(recorded, (1 - m) * A, m * B) - 1e-9
    assert tight > 0.3


def test_mu_is_read_off_the_noise():
    declared = evaluator().declare()
    release = Release(jnp.zeros(1), GaussianNoise(1.0 / (0.2 * math.sqrt(0.04)), (1,)))
    assert model_mu(release, declared) == pytest.approx(0.2 * math.sqrt(0.27))
    assert model_mu(Release(jnp.zeros(1), GaussianNoise(0.0, (1,))), declared) == math.inf


def test_planned_widths_are_those_that_come(data):
    budget = privrl.Central(epsilon=1.0, delta=1e-6)
    found = evaluated(data, evaluator(), budget, key=jax.random.key(6)).found
    w = plan_widths(PEOPLE, budget, practice_mean=found.practice.value, weight_variance=0.35)
    smallest = found.pairs[0].gain
    assert smallest.high - smallest.low == pytest.approx(w.gain, rel=0.25)
    assert found.practice.high - found.practice.low == pytest.approx(w.practice, rel=0.1)
    assert w.gain < w.gain_at_most
    few = plan_widths(500, budget)
    assert few.model_gain is None and few.gain > w.gain
    assert plan_widths(PEOPLE, budget, max_weight=math.inf).gain is None
    with pytest.raises(PairingError, match="Gaussian"):
        plan_widths(100, privrl.Central(epsilon=1.0, mechanism="laplace"))


@pytest.mark.parametrize(("public", "allowance"), [(True, 0.0), (False, 0.01)])
def test_with_fewer_people_than_planned_nothing_is_ever_released(public, allowance):
    """The plan against the rule that withholds a policy, and against the normal distribution by hand."""
    budget = privrl.Central(epsilon=0.3, delta=1e-6)
    planned = plan_widths(1000, budget, public=public)
    declared = releases(public=public, bounded=True, modelled=True)
    parameter = budget.calibrate(declared).parameter("residuals")
    policy = AssistedPolicy(jnp.asarray(ADVICE), jnp.full(4, 0.5), 1.5, 4.0, horizon=100)
    sums = PracticeResiduals(policy, TableValueFeature(2, H, (), jnp.zeros(4)), arrival=public)
    noise = GaussianNoise(sums.l2("replace-one") / parameter, sums.shape)
    gain = Interval(0.1, 0.05, 0.15, 0.05, 0.15)
    if public:  # otherwise the model needs more people still
        for people, too_few in ((planned.needed.least - 1, True), (planned.needed.least, False)):
            zero = Interval.of(0.0, 0.5, people, noise, allowance)
            found = Evaluation(policy, people, gain, gain, gain=gain, trend=zero, continuity=zero)
            assert (Reason.INCONCLUSIVE in found.reasons) is too_few
    ledger = budget.calibrate(declared)
    mu = 1.0 if public else ledger.parameter("practice-table")
    for people, quantiles in ((planned.needed.least, 1.644854), (planned.needed.enough, 1.644854 + 1.959964)):
        t, sigma = (0.027 - allowance) / quantiles, float(noise.scale)
        by_hand = (0.5 + math.sqrt(0.25 + 4 * t**2 * sigma**2)) / (2 * t**2)
        assert people == max(math.ceil(by_hand), 0 if public else math.ceil(1000 / mu))
    assert plan_widths(1000, budget, public=False, modelled=False, max_weight=math.inf).needed is None


def test_settings_that_are_none_are_refused():
    for settings, words in (
        ({"max_ratio": 0.5}, "max_ratio"),
        ({"practice": ENV.behaviour * 0.9}, "add up"),
        ({"feature": FEATURE[:3]}, "feature"),
        ({"advice": np.array([0, 1, 2, 0])}, "advice"),
        ({"return_range": (1.0, 0.0)}, "return_range"),
        ({"people": 0}, "people"),
    ):
        with pytest.raises(ValueError, match=words):
            evaluator(**settings)


def test_probabilities_are_taken_for_their_most_probable_action():
    p = np.full((H, 4, 2), 0.5)
    p[:, np.arange(4), ADVICE] = 0.9
    np.testing.assert_array_equal(evaluator(advice=p).advice, stationary_advice(p))


def test_what_nobody_has_met_yet_is_allowed_for_without_noise():
    """Before, 1,000 stays without a rare loss gave a variance of 0, and "better" in 65% of studies of no gain."""
    exact = GaussianNoise(0.0, (1,))
    policy, centre = AssistedPolicy(jnp.asarray(ADVICE), jnp.full(4, 0.5), 1.5, 4.0, horizon=100), jnp.asarray(0.5)
    sums = [Gains(policy, centre), Gains(policy, centre, squared=True)]
    mean, square = (
        GainEntry.of_pair(Release(jnp.array([x]) / sums[i].units, exact), 0, sums[i]) for i, x in enumerate((0.5, 5e-4))
    )
    interval = certified_interval(mean, square, 1000, 4.0)
    assert interval.lower < 0.0 < interval.upper


@pytest.mark.parametrize("values", [[1e308] * 3, [1e308, -1e308, 0.0], [1e308, 1e308, 0.0], [5e-324, 0.0, 0.0]])
def test_a_feature_of_extreme_values_is_finite(values: list[float]) -> None:
    """Values come from a file. A mean that overflows made every feature NaN, which no clipping bounds."""
    feature = np.asarray(standard_feature(jnp.asarray(values), ()))
    assert np.isfinite(feature).all() and np.abs(feature).max() <= 1.0
    assert feature.any() == (len(set(values)) > 1)
