"""Every recipe is attacked and holds; every kind of attack can succeed where something is wrong."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import comb
from scipy.stats import laplace, multivariate_normal, norm

import privrl
from privrl.audit.attacks.attack import likelihood_ratio
from privrl.audit.attacks.channel_attack import ChannelAttack
from privrl.audit.attacks.curator_attack import _Person
from privrl.audit.attacks.local_attacks import ShuffleAttack, log_probability
from privrl.audit.audit_report import plot_reports
from privrl.audit.bounds import bound_epsilon
from privrl.audit.empirical import _online, lower_bound
from privrl.audit.surface.neighbouring_records import make_record_pool, pick_records
from privrl.audit.surface.recorded_run import RunTranscript, record_run
from privrl.audit.worlds import prepare_audit, tiny_world
from privrl.contracts.release import Release
from privrl.learners.gradient.approximators import TabularQ
from privrl.learners.gradient.q_learning import QLearning
from privrl.learners.linear.vapvi import VAPVI
from privrl.mdp.features import OneHotFeatures
from privrl.privacy.accounting.composition import mu_of
from privrl.privacy.accounting.gdp import gdp_mu
from privrl.privacy.continual.participation import Participation
from privrl.privacy.noise.distributions import GaussianNoise, LaplaceNoise, SymmetricNoise
from privrl.privacy.noise.sources import Seeded
from privrl.privacy.noise.subset import SubsetSelection
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.symbol_channels import SymbolChannel
from privrl.recipes.all_recipes import recipes
from privrl.recipes.recipe import Recipe
from privrl.statistics.counts import TransitionCounts
from privrl.studies.study import Study

# Those whose learners take longest to compile; the statistics of all learners are attacked by the contract, too.
LONG = ("auto", "lsvi", "-lq", "sgd", "vtr", "tdfp", "fqi", "pevi", "vapvi", "tap", "lap", "shuffle", "@paper")
PRIVATE = [r for r in recipes.values() if r.trust != "none"]


def audited(recipe, **settings):
    """A small audit at a confidence at which none of a thousand is wrong."""
    env = {} if recipe.family in ("control", "functional", "measured") else {"env": tiny_world(2, 2, 2)}
    settings = {"trials": 400, "rounds": 2, "key": jax.random.key(7), "confidence": 1 - 1e-6} | env | settings
    return lower_bound(recipe, **settings)


@pytest.mark.parametrize(
    "recipe",
    [pytest.param(r, marks=pytest.mark.slow) if any(n in r.name for n in LONG) else r for r in PRIVATE],
    ids=lambda r: r.name,
)
def test_every_recipe_holds(recipe):
    report = audited(recipe)
    assert not report.broken
    assert report.epsilon_lower <= report.epsilon_exact < 1.01
    if recipe.published is None:
        assert report.epsilon_claimed == 1.0 and report.epsilon_exact > 0.99
    if report.mu is not None:
        assert 0 < report.mu <= report.mu_exact * (1 + 1e-9)
    assert all(s.found <= s.declared * (1 + 1e-9) for s in report.sensitivities)
    assert report.sensitivities or recipe.trust in ("local", "shuffle") or recipe.family == "functional"


def test_sampled_releases_hold():
    """The recipe of sampled gradients with fewer steps."""
    recipe = dataclasses.replace(
        recipes["dp-sgd-q"], variant=lambda p: QLearning(p.features, p.horizon, 1000, batch=500, steps=3)
    )
    report = audited(recipe, trials=4000)
    assert not report.broken and report.mu is None
    assert "Poisson" in report.notes[-1]


def test_half_of_a_true_epsilon_is_shown_and_losses_are_those_of_the_noise():
    """A single kind of Gaussian release at epsilon = 1: of 100,000 runs at least half comes out, and never more.

    The mean of the losses has standard deviation mu/sqrt(2 n), their variance mu^2 sqrt(1/n).
    """
    n = 100_000
    report = audited(recipes["dp-apvi"], trials=n, confidence=0.95)
    assert 0.5 < report.epsilon_lower < 1.0
    mu = gdp_mu(1.0, 1e-5)
    assert report.mu == pytest.approx(mu, rel=1e-6)
    assert abs(report.loss_mean - mu**2 / 2) < 4.5 * mu / math.sqrt(2 * n)
    assert abs(report.loss_variance - mu**2) < 4.5 * mu**2 / math.sqrt(n)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["dp-apvi", "dp-ucbvi", "private-ofu-lq", "dp-lsvi-ucb++@paper", "functional-reward-q"]
)
def test_losses_within_two_percent(name):
    report = lower_bound(name, epsilon=4.0, delta=1e-5, trials=200_000, key=jax.random.key(1))
    assert report.loss_mean == pytest.approx(report.mu**2 / 2, rel=0.02)
    assert report.loss_variance == pytest.approx(report.mu**2, rel=0.02)


def test_halved_noise_is_caught_at_a_curator(monkeypatch):
    scaled = GaussianNoise.from_white
    monkeypatch.setattr(GaussianNoise, "from_white", lambda self, white: scaled(self, white) / 2)
    report = audited(recipes["dp-apvi"], trials=20_000)
    assert report.broken and report.epsilon_lower > 1.2


@dataclasses.dataclass(frozen=True)
class Cheating(Recipe):
    """A recipe whose channels add a tenth of what their ledger says."""

    def privatizer(self, **budget):
        honest = super().privatizer(**budget)

        class Less(type(honest)):
            def channel(self, declared, ledger):
                channel = super().channel(declared, ledger)
                if isinstance(channel, SymbolChannel):
                    response = SubsetSelection(channel.statistic.num_symbols, 10 * channel.response.epsilon)
                    return SymbolChannel(channel.statistic, response, channel.running)
                return dataclasses.replace(channel, scale=channel.scale / 10)

        return Less(**{f.name: getattr(honest, f.name) for f in dataclasses.fields(honest) if f.init})


@pytest.mark.parametrize("name", ["dp-ucbvi", "ldp-ucbvi"])
def test_too_little_noise_is_caught_in_channels(name):
    honest = recipes[name]
    cheating = Cheating(**{f.name: getattr(honest, f.name) for f in dataclasses.fields(honest)})
    report = audited(cheating)  # as many trials as the honest recipe, which stays below 1
    assert report.broken and report.epsilon_lower > 1.2
    assert report.epsilon_exact <= 1.0


def test_an_understated_sensitivity_is_caught(monkeypatch):
    l2 = TransitionCounts.l2
    monkeypatch.setattr(TransitionCounts, "l2", lambda self, adjacency: 0.9 * l2(self, adjacency))
    report = audited(recipes["dp-apvi"])
    assert report.broken
    assert [s.ratio > 1.1 for s in report.sensitivities] == [
        s.statistic == "TransitionCounts" for s in report.sensitivities
    ]


def test_nothing_is_claimed_without_privacy():
    report = audited(recipes["apvi"], trials=1000, confidence=0.95)
    assert math.isinf(report.epsilon_claimed) and math.isinf(report.epsilon_exact)
    assert report.epsilon_lower > 4 and not report.broken
    assert report.to_json()["epsilon_claimed"] == "inf"


def test_pure_budgets_are_attacked_with_the_distribution_of_laplace():
    report = audited(recipes["dp-apvi"], epsilon=1.0, trials=20_000, confidence=0.95)
    assert report.delta == 0.0 and report.bound == "Clopper-Pearson"
    assert 0.3 < report.epsilon_lower <= 1.0
    assert {s.norm for s in report.sensitivities} == {"l1", "l2"}


def test_running_sums_with_a_pure_budget_are_attacked():
    """The whole stream of Laplace intervals: most of epsilon is found, and no more than it."""
    report = audited(recipes["dp-ucbvi"], epsilon=1.0, trials=20_000, confidence=0.95)
    assert report.delta == 0.0 and report.bound == "Clopper-Pearson" and not report.broken
    assert 0.3 < report.epsilon_lower <= 1.0


def test_the_worst_group_is_attacked():
    recipe = dataclasses.replace(
        recipes["dp-vapvi"], variant=lambda p: VAPVI(OneHotFeatures(2, 2), 2, split=True, calibration="paper")
    )
    report = audited(recipe)
    assert not report.broken and {s.release for s in report.sensitivities} >= {"gram", "targets", "spread"}
    assert 0.5 * report.mu_exact < report.mu <= report.mu_exact


def test_reports_are_text_json_and_plots(tmp_path):
    report = audited(recipes["dp-apvi"])
    content = report.to_json()
    wanted = {"recipe", "epsilon_claimed", "epsilon_exact", "epsilon_lower", "delta", "trials", "confidence", "broken"}
    assert wanted <= set(content) and content["sensitivities"][0]["ratio"] <= 1 + 1e-9
    assert "dp-apvi: not broken" in str(report) and "privacy loss" in str(report)
    broken = dataclasses.replace(report, epsilon_lower=1.5)
    assert broken.broken and "BROKEN" in str(broken)
    loose = dataclasses.replace(report, epsilon_claimed=0.1, epsilon_lower=0.5)
    assert not loose.broken  # the claim of a recipe as published is refuted, not its accounting
    plot_reports([report, broken], tmp_path / "audit.svg")
    assert "dp-apvi" in (tmp_path / "audit.svg").read_text()


def test_bounds_are_counted_on_runs_that_did_not_choose_the_threshold():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 4000))
    scores[1] += 3.0
    assert bound_epsilon(scores, 0.0, 0.95, gaussian=False) > 2
    scores[1, 2000:] -= 3.0  # what the first half promised does not come
    assert bound_epsilon(scores, 0.0, 0.95, gaussian=False) == bound_epsilon(scores, 0.0, 0.95, gaussian=True) == 0.0


def test_likelihood_ratios_are_those_of_the_densities():
    rng = np.random.default_rng(1)
    y, zero, one = rng.normal(size=(3, 4))
    ratio = lambda release, *args: float(likelihood_ratio(release, *args))  # noqa: E731
    normal = Release(jnp.asarray(y), GaussianNoise(0.7, (4,)))
    exact = norm.logpdf(y, one, 0.7).sum() - norm.logpdf(y, zero, 0.7).sum()
    assert ratio(normal, zero, one) == pytest.approx(exact, rel=1e-10)
    exact = laplace.logpdf(y, one, 0.7).sum() - laplace.logpdf(y, zero, 0.7).sum()
    assert ratio(Release(jnp.asarray(y), LaplaceNoise(0.7, (4,))), zero, one) == pytest.approx(exact, rel=1e-10)
    density = lambda mean: np.exp(norm.logpdf(y, mean, 0.7).sum())  # noqa: E731
    exact = math.log((0.8 * density(0.0) + 0.2 * density(one)) / (0.8 * density(0.0) + 0.2 * density(zero)))
    assert ratio(normal, zero, one, 0.2) == pytest.approx(exact, rel=1e-10)
    Y, Zero, One = (x + x.T for x in rng.normal(size=(3, 3, 3)))
    upper = np.triu_indices(3)
    std = np.where(np.eye(3) > 0, 0.7, 0.7 / math.sqrt(2))[upper]
    exact = (norm.logpdf(Y[upper], One[upper], std) - norm.logpdf(Y[upper], Zero[upper], std)).sum()
    assert ratio(Release(jnp.asarray(Y), SymmetricNoise(0.7, 3)), Zero, One) == pytest.approx(exact, rel=1e-10)
    assert ratio(Release(jnp.asarray(one), GaussianNoise(0.0, (4,))), zero, one) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "continual",
    ["square-root", *(pytest.param(other, marks=pytest.mark.slow) for other in ("tree", "honaker", "fresh"))],
)
def test_streams_are_scored_by_the_whole_sequence(continual):
    """Scores of one run against the density of all its releases together, with the covariance of the noise."""
    env = tiny_world(1, 2, 1)
    learner = privrl.UCBVI(env.rewards, 1)
    private = privrl.Central(epsilon=3.0, delta=1e-5, continual=continual)
    (declared,) = learner.declare(3)
    ledger = private.calibrate([declared])
    channel = private.channel(declared, ledger)
    run = RunTranscript(learner, private, ledger, {declared.name: channel}, (1, 2, 3), (None,) * 4, ())
    records = pick_records(make_record_pool(env, np.random.default_rng(0)), np.array([3, 5]))
    attack = ChannelAttack(run, ((1,), (1,)), records)
    zero, one = run.queries_about(1)[0].answers(records)
    B = channel.continual.matrix()
    sums = (np.arange(len(B)) >= 1).astype(float)
    covariance = float(channel.scale) ** 2 * B @ B.T
    d = one - zero
    assert (d != 0).any()
    assert attack.mu == pytest.approx(np.sqrt((d**2).sum() * sums @ np.linalg.solve(covariance, sums)), rel=1e-9)
    score = np.asarray(attack.run(1)(jax.random.split(jax.random.key(2), 1)))
    again = _values_of_one_run(channel, one, jax.random.split(jax.random.key(2), 1)[0], len(B))
    exact = sum(
        multivariate_normal.logpdf(again[:, i], one[i] * sums, covariance)
        - multivariate_normal.logpdf(again[:, i], zero[i] * sums, covariance)
        for i in range(len(d))
    )
    assert score[0] == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(
    ("times", "distance"), [(3, 1), *(pytest.param(4, apart, marks=pytest.mark.slow) for apart in (0, 2))]
)
@pytest.mark.parametrize("name", ["dp-ucbvi", pytest.param("private-lq", marks=pytest.mark.slow)])
def test_all_episodes_of_one_person_are_attacked(name, times, distance):
    """Two people who come as often and as soon again as they may are as far apart as is paid for, and no further. Both
    come as often, so a count of records tells nothing."""
    rng, often = np.random.default_rng(0), Participation(times, distance)
    _, private, env, learner = prepare_audit(name, 1.0, 1e-5, None, None)
    run = record_run(env, learner, private, jax.random.key(0), often)
    attack, _, events = _online(run, make_record_pool(env, rng, limit=200), rng, 2)
    assert isinstance(attack, ChannelAttack)
    assert {len(pattern) for pattern in attack.patterns} == {times}
    assert all(np.diff(pattern).min() >= distance for pattern in attack.patterns)
    differing = [event for event in events if event.name != "records"]
    assert 0.97 * mu_of(differing) <= attack.mu <= mu_of(differing) * (1 + 1e-9)
    once = Study.online(run.learner, private, run.ends[-1]).channels()
    flawed = dataclasses.replace(attack, transcript=dataclasses.replace(run, channels=once))
    assert flawed.mu > 1.5 * mu_of(events)


def _values_of_one_run(channel, term, key, blocks):
    """The releases of `_channel_scores`, made once more."""
    from privrl.studies.simulation.simulated_loop import SimulationKeys

    keys, memory, values = SimulationKeys.of(key), channel.init(), []
    shape = channel.statistic.shape
    for t in range(blocks):
        total = jnp.asarray(term).reshape(shape) * (t == 1)
        fresh = lambda i, t=t: jax.random.normal(keys.white(0, t, i), shape)  # noqa: E731
        memory, release = channel.publish(memory, total, jnp.asarray(t), fresh)
        values.append(np.asarray(release.value).ravel())
    return np.array(values)


def _response(k, epsilon, size):
    statistic = TransitionCounts(k - 1, 1, 1, "pooled", asking="first-visit")
    channel = SymbolChannel(statistic, SubsetSelection(k, epsilon, size), True)
    assert statistic.num_symbols == k
    return channel


@pytest.mark.parametrize(("k", "size"), [(3, 1), (4, 2), (5, 3)])
def test_probabilities_of_sets_are_exact(k, size):
    """Up to one constant, they are those of subset selection: they add up to the same for every symbol."""
    channel = _response(k, 1.3, size)
    sets = np.array([[i in chosen for i in range(k)] for chosen in itertools.combinations(range(k), size)])
    p = float(channel.response.keep_probability)
    for symbol in range(k):
        logs = np.asarray(log_probability(channel, jnp.asarray(sets), jnp.full(len(sets), symbol)))
        exact = np.where(sets[:, symbol], p / comb(k - 1, size - 1), (1 - p) / comb(k - 1, size))
        np.testing.assert_allclose(np.exp(logs) * p / comb(k - 1, size - 1), exact, rtol=1e-9)
        assert exact.sum() == pytest.approx(1.0)


def test_shuffled_answers_are_scored_by_their_exact_likelihood():
    """Three people, two symbols: frequencies of the score against the exact distributions of all answers in both
    worlds.
    """
    channel = _response(2, 1.0, 1)
    symbols = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 1]])
    p = float(channel.response.keep_probability)
    chance = lambda symbol, answer: p if symbol == answer else 1 - p  # noqa: E731
    distribution = {0: {}, 1: {}}
    for answers in itertools.product((0, 1), repeat=3):
        for world in (0, 1):
            truths = [np.where(np.arange(3) == mine, symbols[world], symbols[2]) for mine in range(3)]
            distribution[world][answers] = np.mean([math.prod(map(chance, truth, answers)) for truth in truths])
    n = 20_000
    scores = ShuffleAttack(channel, symbols).scores(jax.random.key(0), n)
    ratios = {answers: math.log(distribution[1][answers] / distribution[0][answers]) for answers in distribution[0]}
    for value in set(np.round(list(ratios.values()), 9)):
        for world in (0, 1):
            exact = sum(distribution[world][a] for a, ratio in ratios.items() if abs(ratio - value) < 1e-6)
            seen = (np.abs(scores[world] - value) < 1e-6).mean()
            assert abs(seen - exact) < 4.5 * math.sqrt(exact * (1 - exact) / n)


def test_the_shipped_coins_of_poisson_sampling_are_fair():
    """The audit draws them itself; the curator's own come up as often as declared (|z| < 4.5)."""

    class Crowd(_Person):
        def total(self, statistic, included, arithmetic):
            self.drawn = included.draws(0, 200_000)
            return jnp.zeros(statistic.shape)

    learner = QLearning(OneHotFeatures(2, 2), 2, 1000, batch=30, steps=1)
    private = privrl.Central(epsilon=1.0, delta=1e-5)
    ledger, crowd = private.calibrate(learner.declare()), Crowd()
    curator = Curator(crowd, ledger, Seeded(jax.random.key(0)), "gaussian")
    settings = {"horizon": 2, "norm": 1.0, "discount": 0.9, "terminal": ()}
    release = curator("gradient", TabularQ(2, 2).gradient(jnp.zeros((2, 2)), **settings))
    assert abs(crowd.drawn.mean() - 0.03) < 4.5 * math.sqrt(0.03 * 0.97 / 200_000)
    # Twice the norm of a gradient: a person who is not drawn adds nothing, and one who is may add either sign.
    assert float(release.noise.scale) == pytest.approx(2.0 / ledger.parameter("gradient"))


def test_worlds_that_nothing_fits_are_named():
    nowhere = dataclasses.replace(recipes["dp-pevi"], variant=_refuse)
    with pytest.raises(ValueError, match="Pass one as `env`"):
        lower_bound(nowhere, key=jax.random.key(0))


def _refuse(problem):
    raise ValueError("This learner wants the moon.")
