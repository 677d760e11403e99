"""Choosing: the noisy maximum has exactly the distribution that it claims, and its cost is that of its group."""

import dataclasses
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import compiled, contribution
from statistic_cases import CASES

import privrl
from privrl.audit.attacks.curator_attack import CuratorAttack
from privrl.audit.bounds import bound_epsilon
from privrl.audit.sensitivity import find_farthest
from privrl.audit.surface.neighbouring_records import pick_records
from privrl.audit.surface.queries import Query
from privrl.audit.surface.recorded_fit import Skipped, record_fit, record_queries
from privrl.audit.worlds import tiny_world
from privrl.contracts.learner import AbstractOfflineAnalysis
from privrl.contracts.release import Declared
from privrl.data.episodes import Episodes
from privrl.evaluation.chooser import CHOICE, CHOOSE, Chooser, weights
from privrl.evaluation.chosen import Chosen
from privrl.evaluation.evaluated import LEARN, Evaluated
from privrl.learners.gradient.fqi import FQI
from privrl.learners.tabular.tap import TAP
from privrl.learners.tabular.tdfp import TDFP
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.types import TabularPolicy, Trajectory
from privrl.privacy.accounting.certificate import Certificate, cost_of
from privrl.privacy.accounting.composition import calibrate, epsilon_of
from privrl.privacy.accounting.events import Event, Request
from privrl.privacy.accounting.gdp import gdp_mu
from privrl.privacy.accounting.privacy_budget import Budget, BudgetError
from privrl.privacy.noise.lattice import choose_lattice
from privrl.privacy.noise.maximum import MaximumNoise, noisy_maximum
from privrl.privacy.noise.random_words import Words
from privrl.privacy.store.errors import BurntError
from privrl.privacy.trust.privatizers import PairingError
from privrl.recipes.all_recipes import recipes
from privrl.recipes.recipe import Problem
from privrl.reports.certificate_facts import compute_guess_rate, compute_worst_rate
from privrl.reports.certificate_text import WORST_CASE, describe_guesses
from privrl.statistics.choice import CandidateScores
from privrl.studies.offline.choose import choose, refuse_too_few
from privrl.studies.offline.evaluating import policy_arrays
from privrl.studies.offline.procedure import ask_curator
from privrl.studies.simulation.sampled_tables import sampled


def probabilities(scores, scale):
    """The distribution of the noisy maximum, by all sets of candidates that may stay."""
    stay = np.exp((np.asarray(scores, float) - max(scores)) / scale)
    distribution = np.zeros(len(scores))
    for kept in itertools.product((0, 1), repeat=len(scores)):
        if any(kept):
            chance = math.prod(p if k else 1.0 - p for p, k in zip(stay, kept, strict=True))
            distribution += chance * np.asarray(kept) / sum(kept)
    return distribution


def test_the_distribution_is_that_of_the_largest_of_exponentials():
    """Candidate j wins with density e^-x at noise x if all others are below u_j + x: integrated numerically."""
    scores, scale = np.array([3.0, 5.0, 4.5, 0.0]), 2.0
    x = (np.arange(400_000) + 0.5) * 1e-4
    for j, expected in enumerate(probabilities(scores, scale)):
        others = np.delete(scores, j)[:, None]
        below = 1.0 - np.exp(-np.maximum(scores[j] + x - others, 0.0) / scale)
        density = np.exp(-x / scale) / scale * below.prod(axis=0)
        assert density.sum() * 1e-4 == pytest.approx(expected, abs=2e-5)


def test_draws_have_this_distribution():
    words, scores, draws = Words(bytes(32)), np.array([7, 12, 10, 12, -40], np.int64), 4000
    found = np.bincount([int(noisy_maximum(words, scores, 5)[0]) for _ in range(draws)], minlength=5) / draws
    assert np.abs(found - probabilities(scores, 5)).max() < 4 * math.sqrt(0.25 / draws)
    assert noisy_maximum(words, np.array([2**62, -(2**62)], np.int64), 1).tolist() == [0]  # exponents beyond 64 bits


def test_no_pair_of_neighbours_is_told_apart_by_more_than_epsilon():
    """All changes of spread at most R of many score vectors."""
    rng, scale, R = np.random.default_rng(0), 3.0, 4
    worst = 0.0
    for _ in range(40):
        scores = rng.integers(-6, 7, 3)
        before = probabilities(scores, scale)
        for change in itertools.product(range(R + 1), repeat=3):
            worst = max(worst, np.abs(np.log(probabilities(scores + np.array(change), scale) / before)).max())
    assert 0.8 * R / scale < worst <= R / scale * (1 + 1e-12)


def test_seeded_noise_has_the_same_distribution():
    distribution, draws = MaximumNoise(jnp.asarray(2.0), (3,)), 20_000
    scores = jnp.asarray([1.0, 0.0, 2.5])
    white = jax.random.laplace(jax.random.key(3), (draws, 3))
    found = (
        np.bincount(np.asarray(jax.vmap(lambda w: jnp.argmax(scores + distribution.from_white(w)))(white)), minlength=3)
        / draws
    )
    assert np.abs(found - probabilities(np.asarray(scores), 2.0)).max() < 4 * math.sqrt(0.25 / draws)


class TestAccounting:
    """The choice has the budget's epsilon for itself, and the cost is that of the worst group."""

    requests = (
        Request("a", "gaussian", 0.3, group="learn"),
        Request("b", "gaussian", 0.7, group="learn"),
        Request("choice", "exponential", group="choose"),
        Request("c", "gaussian", group="evaluate"),
    )

    @pytest.mark.parametrize("budget", [Budget.of(epsilon=1.0, delta=1e-6), Budget.of(rho=0.1)])
    def test_the_maximum_over_groups(self, budget):
        events = calibrate(self.requests, budget)
        assert [e.name for e in events] == ["a", "b", "choice", "c"]
        without = calibrate([r for r in self.requests if r.name != "choice"], budget)
        assert [e for e in events if e.name != "choice"] == list(without)  # nobody pays for the choice of others
        choice = events[2].parameter
        assert choice == pytest.approx(1.0 if budget.rho is None else math.sqrt(0.2), rel=1e-11) and choice < 1.0
        cost = cost_of(events, 1e-6, "replace-one")
        alone = cost_of(without, 1e-6, "replace-one")
        assert cost["epsilon"] == pytest.approx(max(alone["epsilon"], choice))
        assert cost["rho"] == pytest.approx(max(alone["rho"], choice**2 / 2))
        if budget.rho is None:
            assert alone["mu"] == pytest.approx(gdp_mu(1.0, 1e-6)) and cost["epsilon"] <= 1.0

    def test_pure_budgets(self):
        events = calibrate(
            [Request("sum", "laplace", group="a"), Request("choice", "exponential", group="b")], Budget.of(epsilon=2.0)
        )
        assert epsilon_of(events, 0.0) == pytest.approx(2.0) and epsilon_of(events, 0.0) <= 2.0
        assert epsilon_of([Event("choice", "exponential", 2.0)], 1e-6) == 2.0

    def test_a_choice_is_alone(self):
        for other in (Request("sum", "gaussian"), Request("sum", "gaussian", group="choose")):
            with pytest.raises(BudgetError, match="a `group` of its own"):
                calibrate([Request("choice", "exponential", group="choose"), other], Budget.of(epsilon=1.0, delta=1e-6))
        with pytest.raises(ValueError, match="requires `times=1`"):
            Declared("choice", access="choice", times=2)


def test_probabilities_of_the_distribution():
    scores = jnp.asarray([0.3, -1.0, 0.0, 0.9])
    found = compiled(MaximumNoise(jnp.asarray(0.7), (4,)).probabilities, scores)
    assert np.allclose(found, probabilities(np.asarray(scores), 0.7), atol=1e-12)


def test_bounds_of_learners_that_differ_are_kept_apart():
    both = Chosen((TAP(3, 2, 3), TDFP(3, 2, 3, (2,))))
    norms = {
        name: learner.bounds()["contribution norm"]
        for name, learner in (("TAP", TAP(3, 2, 3)), ("TDFP", TDFP(3, 2, 3, (2,))))
    }
    assert norms["TAP"] != norms["TDFP"]
    assert {name: both.bounds()[f"{name}: contribution norm"] for name in norms} == norms
    assert both.bounds()["horizon"] == 3


class TestGuesses:
    """How often the best attacker is right, where people choose."""

    def certificate(self, learner):
        ledger = privrl.Central(epsilon=1.0, delta=1e-6).calibrate(learner.declare())
        given = {"unit": "person", "bounds": learner.bounds(), "noise_source": "seed", "version": ""}
        return Certificate.of(ledger, delta=1e-6, notion="central", **given)

    def test_coins_decide_who_chooses(self):
        found = self.certificate(Chosen((TAP(3, 2, 3),)))
        gaussian, pure = 0.5 * math.erfc(-gdp_mu(1.0, 1e-6) / math.sqrt(8)), 1 / (1 + math.exp(-1.0))
        assert compute_guess_rate(found) == pytest.approx(0.9 * gaussian + 0.1 * pure)
        assert describe_guesses(found).startswith(f"in at most {math.ceil(90 * gaussian + 10 * pure)} of 100 cases")
        assert f"for selection; for those, and in {WORST_CASE}, 74)" in describe_guesses(found)
        unknown = dataclasses.replace(found, group_shares={})
        assert compute_guess_rate(unknown) == compute_worst_rate(
            unknown
        ) and "in at most 74 of 100" in describe_guesses(unknown)

    def test_no_attacker_on_a_mixture_is_better(self):
        """Gaussian noise of mean 0 or mu with probability .9, and a noisy maximum otherwise, whose group is not seen:
        the likelihood ratio is right in at most so many cases, and the bound is not far from it."""
        epsilon, share = 1.0, 0.3
        mu = gdp_mu(epsilon, 1e-6)
        found = dataclasses.replace(self.certificate(Chosen((TAP(3, 2, 3),))), group_shares={CHOOSE: share})
        x = np.linspace(-9.0, 9.0, 20_001)
        density = [np.exp(-0.5 * (x - m) ** 2) / math.sqrt(2 * math.pi) for m in (0.0, mu)]
        distribution = [probabilities(scores, 1.0 / epsilon) for scores in ((0.5, 0.0), (0.0, 0.5))]
        # The output is (x, j): those who do not choose move x, and j has its distribution without them.
        joint = [
            (1 - share) * np.outer(density[i], [0.5, 0.5]) + share * np.outer(density[0], distribution[i])
            for i in range(2)
        ]
        right = np.maximum(*joint).sum() / 2 * (x[1] - x[0])
        assert 0.5 < right <= compute_guess_rate(found) and compute_guess_rate(found) - right < 0.12


class TestScores:
    """One person's scores: bounded for all records, by hand, and without a preference where practice is a candidate."""

    @pytest.mark.parametrize("case", CASES[CandidateScores], ids=("huge", "small", "by-step"))
    def test_no_pair_of_records_is_further_apart_than_the_spread(self, case):
        records, scores = case.records(), case.statistic
        x = Query("choice", scores).answers(records)
        norm, spread = scores.l1("add-remove"), scores.spread("replace-one")
        lattice = choose_lattice(parameter=0.5, sensitivity=spread, norm=norm, filled=2, kind="l1")
        units = Query("choice", scores).to_steps(records, lattice) * lattice.granularity
        for values, bound in ((x, spread * (1 + 1e-12)), (units, lattice.sensitivity)):
            d = values[:, None] - values[None, :]
            assert (d.max(axis=-1) - d.min(axis=-1)).max() <= bound
            assert (values.max(axis=-1) - values.min(axis=-1)).max() <= scores.spread("add-remove") * (1 + 1e-12)
        assert scores.limit > 0.5 or (d.max(axis=-1) - d.min(axis=-1)).max() > 0.9 * spread  # and it is met

    def test_by_hand(self):
        """Two steps, the second one ends the stay; then the same stay cut by the horizon."""
        table = np.zeros((2, 1, 3, 2))
        table[0, 0, 0], table[0, 0, 1], table[1, 0, 1] = [1.0, -1.0], [0.5, -0.5], [-0.5, 0.5]
        scores = CandidateScores(jnp.asarray(table), jnp.asarray([0.2, 0.6, 0.9]), 3, (2,), 2.0)

        def of(next_states, length):
            stay = Trajectory(
                np.array([[0, 1, 0]]),
                np.array([[0, 1, 0]]),
                np.array([[0.0, 1.0, 0.0]]),
                next_states,
                np.array([length]),
            )
            return np.asarray(contribution(scores, stay))

        ended = [1.0 * (0.6 - 0.2) - 0.5 * (0.5 - 0.6), 0.5 * (0.5 - 0.6)]
        assert np.allclose(of(np.array([[1, 2, -1]]), 2), ended)
        assert np.allclose(of(np.array([[1, -1, -1]]), 2), ended)  # it stopped before the horizon
        onward = [0.4 - 0.5 * (0.5 + 0.2 - 0.6), 0.5 * (0.5 + 0.2 - 0.6)]
        assert np.allclose(of(np.array([[1, 0, -1]]), 3), np.array(onward) + [0.0, 0.0])  # the last step leads nowhere
        assert np.allclose(of(np.array([[1, 2, -1]]), 0), 0.0)
        scores = dataclasses.replace(scores, margins=jnp.asarray([0.0, 0.25]))
        assert np.allclose(of(np.array([[1, 2, -1]]), 2), np.array(ended) + [0.0, 0.25])
        assert np.allclose(of(np.array([[1, 2, -1]]), 0), 0.0)  # an empty record has no margin either

    def test_weights(self):
        practice = np.array([[0.5, 0.49, 0.01], [0.2, 0.3, 0.5]])
        candidates = np.stack([np.eye(3)[[2, 1]], practice, np.zeros((2, 3)), np.eye(3)[[0, 2]]])
        found = np.asarray(compiled(weights, candidates[:, None], practice))[:, 0]
        assert np.allclose((np.asarray(practice) * found).sum(axis=-1), 0.0, atol=1e-12)  # mean 0 under practice
        assert np.allclose(found[0, 0], 0.0)  # unsupported advice is left to practice
        rare = compiled(weights, np.eye(2)[None, None, :1], np.array([[0.04, 0.96]]))[0, 0, 0]
        assert np.allclose(rare, [9.0, -0.375])  # at most ten times as often, though 25 times would be possible
        assert np.allclose(found[0, 1], [-1.0, 1 / 0.3 - 1, -1.0])
        assert np.allclose(found[1, 1], 0.0, atol=1e-12) and np.allclose(found[2], 0.0)  # practice, and no advice


class Picks(AbstractOfflineAnalysis):
    """Nothing but a choice."""

    scores: CandidateScores
    group: str | None = eqx.field(static=True, default=None)
    horizon: int = eqx.field(static=True, default=3)
    space = (3, 2)

    def bounds(self):
        return {}

    def declare(self):
        return (Declared("choice", access="choice", group=self.group),)

    def choose(self, ask):
        return int(ask("choice", self.scores).value[0])


def picks(gap=1.0):
    """Candidate 1 is better by `gap` in every step of everybody."""
    table = np.zeros((3, 1, 3, 2))
    table[1], table[2] = gap, -gap
    return Picks(CandidateScores(jnp.asarray(table), jnp.zeros(3), 3, ()))


@pytest.fixture(scope="module")
def people():
    return sampled(tiny_world(), 200, jax.random.key(0))


class TestCurator:
    def asked(self, people, chooser, privatizer, key=None, store=None):
        return ask_curator("choose", people, chooser, chooser.choose, privatizer, key=key, unit=None, store=store)

    def test_exact_seeded_and_without_noise(self, people):
        central = privrl.Central(epsilon=2.0, delta=1e-6)
        found = [self.asked(people, picks(), central), self.asked(people, picks(), central, jax.random.key(1))]
        found.append(self.asked(people, picks(), privrl.NonPrivate()))
        assert [answer.found for answer in found] == [1, 1, 1]
        exact = found[0].certificate
        assert exact.epsilon == pytest.approx(2.0) and exact.epsilon <= 2.0 and exact.mu is None
        (release,) = exact.releases
        assert release["access"] == "choice" and release["noise"][0]["sensitivity"] == pytest.approx(12.0)
        assert privrl.certify(found[0].certificate, None).checks[1].ok

    def test_what_is_stored_is_the_number_alone(self, people, tmp_path):
        central, path = privrl.Central(epsilon=0.01, delta=1e-6), tmp_path / "store"
        with privrl.ReleaseStore(path) as store:
            first = self.asked(people, picks(), central, store=store)
            assert store.value("choice/0").tolist() == [first.found]
        with privrl.ReleaseStore(path) as store:
            assert self.asked(people, picks(), central, store=store).found == first.found  # read, not drawn again

    def test_a_crash_between_reservation_and_draw(self, people, tmp_path, monkeypatch):
        central, path = privrl.Central(epsilon=1.0, delta=1e-6), tmp_path / "store"

        def crash(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("privrl.privacy.noise.lattice.noisy_maximum", crash)
            with privrl.ReleaseStore(path) as store, pytest.raises(KeyboardInterrupt):
                self.asked(people, picks(), central, store=store)
        with privrl.ReleaseStore(path) as store, pytest.raises(BurntError, match="redraw"):
            self.asked(people, picks(), central, store=store)
        with privrl.ReleaseStore(path, after_crash="redraw") as store:
            assert self.asked(people, picks(), central, store=store).found == 1

    def test_who_cannot_serve_a_choice(self, people):
        with pytest.raises(PairingError, match="keeps no raw data"):
            self.asked(people, picks(), privrl.Local(epsilon=1.0))
        bad = Picks(privrl.statistics.VisitCounts(3, 2, 3))
        with pytest.raises(ValueError, match="no scores of candidates"):
            self.asked(people, bad, privrl.Central(epsilon=1.0, delta=1e-6))

    def test_the_audit_stays_below_epsilon_and_finds_most_of_it(self, people):
        """One person whose scores are (3, -3, -3) in one world and (-3, 3, 3) in the other."""
        chooser = picks()
        fit = record_queries(
            people, chooser, chooser.choose, privrl.Central(epsilon=2.0, delta=1e-6), jax.random.key(2)
        )
        pair = (np.array([[3.0, -3.0, -3.0], [-3.0, 3.0, 3.0]]),)
        scores = CuratorAttack(fit, pair).scores(jax.random.key(3), 20_000)
        found = bound_epsilon(scores, 0.0, 0.95, gaussian=False)
        exact = np.log(probabilities(pair[0][0], 6.0) / probabilities(pair[0][1], 6.0))
        assert found <= np.abs(exact).max() <= 2.0 and found > 0.5 * np.abs(exact).max()


@pytest.fixture(scope="module")
def many():
    return sampled(tiny_world(), 10_400, jax.random.key(4))


def planned(env, sign=1.0):
    """The best (or the worst) action of each state, many steps from the end."""
    P, r, V = np.asarray(env.mdp.transition[0]), sign * np.asarray(env.mdp.reward[0]), np.zeros(3)
    for _ in range(3):
        Q = r + P @ V
        V = Q.max(axis=-1)
    return Q.argmax(axis=-1)


class TestVerb:
    budget = privrl.Central(epsilon=1.0, delta=1e-6)

    def test_the_better_one_is_chosen_under_one_certificate(self, many, tmp_path):
        env = tiny_world()
        good, bad = planned(env), planned(env, -1.0)
        np.savez(tmp_path / "bad.npz", bad)
        choice = choose(many, [None, tmp_path / "bad.npz", good], self.budget)
        assert choice.index == 2 and choice.candidate is good
        certificate = choice.certificate
        assert certificate.epsilon == pytest.approx(1.0, abs=1e-4) and certificate.epsilon <= 1.0
        assert {event.group for event in certificate.events} == {LEARN, CHOOSE}
        assert privrl.certify(certificate, {"actions": good}).ok
        assert not privrl.certify(certificate, {"actions": bad}).ok  # it is about this candidate

    def test_refusals(self, many, people):
        with pytest.raises(ValueError, match="at least 5,000 are needed"):
            choose(people, [None, np.zeros(3, int)], self.budget)
        with pytest.raises(ValueError, match="give at least two"):
            choose(many, [None], self.budget)
        with pytest.raises(ValueError, match=r"needs \[3, 2\] or \[3, 3, 2\]"):
            choose(many, [None, np.full((4, 2), 0.5)], self.budget)
        with pytest.raises(PairingError, match="must be public"):
            choose(many, [None, np.zeros(3, int)], privrl.Central(epsilon=1.0, delta=1e-6, adjacency="add-remove"))
        with pytest.raises(ValueError, match="at least 12,000 are needed"):
            refuse_too_few(10_000, privrl.Central(epsilon=0.05, delta=1e-6))

    @pytest.mark.parametrize("wrong", [np.nan, -5.0, 0.1])
    def test_what_is_no_policy_is_refused_before_a_release(self, many, wrong, monkeypatch):
        monkeypatch.setattr("privrl.privacy.trust.curator.Curator.__call__", unreachable)
        policy = TabularPolicy(jnp.full((3, 3, 2), wrong))
        for candidate in (policy, np.full((3, 2), wrong)):
            with pytest.raises(ValueError, match="must be at least 0 and add up to 1"):
                choose(many, [None, candidate], self.budget)
        if not wrong > 0:
            with pytest.raises(ValueError, match="no probabilities"):
                Chooser(3, 2, 3, jnp.full((2, 1, 3, 2), wrong))

    def test_laplace_noise_is_refused_before_a_release(self, many, monkeypatch):
        monkeypatch.setattr("privrl.privacy.trust.curator.Curator.__call__", unreachable)
        pure = privrl.Central(epsilon=1.0, mechanism="laplace")
        with pytest.raises(PairingError, match="is released with Gaussian noise.*Nothing was released"):
            choose(many, [None, np.zeros(3, int)], pure)
        chosen = Chosen((TAP(3, 2, 3),))
        for learner, share in ((TAP(3, 2, 3), None), (chosen, None), (chosen, 0.3)):
            with pytest.raises(PairingError, match="is released with Gaussian noise.*Nothing was released"):
                privrl.fit(many, learner, pure, evaluate=share)

    def test_a_certificate_is_about_what_was_scored(self, many):
        """The handed-out policy is silent everywhere; its whole advice was scored."""
        advice = TabularPolicy(jnp.broadcast_to(jnp.eye(2)[planned(tiny_world())], (3, 3, 2)))
        silent = AssistedPolicy(planned(tiny_world()), jnp.zeros(3), horizon=100)
        practice = choose(many, [None, np.zeros(3, int)], privrl.NonPrivate()).certificate
        for given, arrays in (
            (privrl.Result(silent, practice, {}, advice), {"probabilities": np.asarray(advice.probabilities)}),
            (silent, {"actions": planned(tiny_world())}),
        ):
            choice = choose(many, [None, given], privrl.Central(epsilon=5.0, delta=1e-6))
            assert choice.index == 1 and choice.candidate is given
            assert choice.scored.keys() == arrays.keys()
            assert (
                privrl.certify(choice.certificate, arrays).ok and privrl.certify(choice.certificate, choice.scored).ok
            )
            assert not privrl.certify(choice.certificate, policy_arrays(silent)).ok


def unreachable(*_):
    raise AssertionError("Something was released.")


class TestChosen:
    learner = Chosen(
        (TAP(3, 2, 3, rounds=(1.0,)), TDFP(3, 2, 3, (), in_flight_rewards=True, shares=(1.0,)), FQI(3, 2, 3, steps=2)),
        shares=(2.0, 1.0, 1.0),
    )

    def test_three_groups_that_share_nobody(self):
        evaluated = Evaluated(self.learner, return_range=(0.0, 3.0))
        ledger = privrl.Central(epsilon=1.0, delta=1e-6).calibrate(evaluated.declare())
        assert ledger.groups == pytest.approx({LEARN: 0.6, CHOOSE: 0.1, "evaluate": 0.3})
        events = {event.name: event for event in ledger.events()}
        for learner, share in zip(self.learner.learners, (0.42, 0.21, 0.21), strict=True):  # 16% measure practice
            name = type(learner).__name__
            alone = privrl.Central(epsilon=1.0, delta=1e-6).calibrate(learner.declare())
            for event in alone.events():
                assert events[f"{name}: {event.name}"].parameter == pytest.approx(math.sqrt(share) * event.parameter)
        assert events[CHOICE].parameter == pytest.approx(1.0)
        assert [name for name, event in events.items() if event.group == CHOOSE] == [CHOICE]
        with pytest.raises(PairingError, match="keeps no raw data"):
            privrl.Local(epsilon=1.0).check("Chosen", self.learner.declare())

    @pytest.mark.slow
    def test_what_is_chosen_is_said(self, many):
        result = privrl.fit(many, self.learner, privrl.Central(epsilon=3.0, delta=1e-6), key=jax.random.key(5))
        assert result.report["choice"].startswith("On the 10% of people set aside for selection, ")
        for name in ("dp-tap", "dp-tdfp", "dp-fqi", "current practice"):
            assert name in result.report["choice"]
        assert result.policy.probabilities.shape == (3, 3, 2)
        assert np.allclose(result.policy.probabilities.sum(axis=-1), 1.0)
        assert (
            privrl.certify(result.certificate, None).checks[1].ok
        )  # the learners inside are built again from settings

    def test_refusals(self):
        for learners, wrong in (
            ((), "at least one"),
            ((TAP(3, 2, 3), TAP(3, 2, 3)), "one of each class"),
            ((TAP(3, 2, 3), FQI(4, 2, 3)), "different sizes"),
        ):
            with pytest.raises(ValueError, match=wrong):
                Chosen(learners)
        with pytest.raises(ValueError, match="a positive one for each"):
            Chosen((TAP(3, 2, 3),), shares=(1.0, 1.0))
        with pytest.raises(ValueError, match="must lie in"):
            Chosen((TAP(3, 2, 3),), share=1.0)

    @pytest.mark.parametrize("unit", [pytest.param(1.0, marks=pytest.mark.slow), 0.02])
    def test_whether_advice_beats_the_most_frequent_action_does_not_depend_on_the_unit_of_rewards(self, unit):
        """With rewards of at most .02 per step nothing is worth 1.5% of the largest possible return: the margin of the
        most frequent action is relative to what people get."""
        rng = np.random.default_rng(0)
        n = 60_000
        actions = (rng.random((n, 2)) < 0.4).astype(int)  # action 1 is better, and is taken less often
        rewards = unit * (rng.random((n, 2)) < 0.3 + 0.4 * actions)
        stays = Trajectory(np.zeros((n, 2), int), actions, rewards, np.full((n, 2), -1), np.ones(n, int))
        table = Episodes.from_trajectories(stays, num_states=2, num_actions=2)
        learner = Chosen((TAP(2, 2, 2, rounds=(1.0,)),))
        result = privrl.fit(table, learner, privrl.Central(epsilon=20.0, delta=1e-6), key=jax.random.key(1))
        assert result.report["choice"].startswith("On the 10% of people set aside for selection, dp-tap scored best.")
        assert result.policy.probabilities[0, 0].argmax() == 1
        assert privrl.certify(result.certificate, None).checks[1].ok  # the learner inside is built again from settings

    @pytest.mark.slow
    @pytest.mark.parametrize("group", [LEARN, CHOOSE])
    def test_each_group_is_attacked(self, many, group):
        """The releases of a fit with a choice, on the pair of records that are furthest apart in one group."""
        fit = record_fit(many, self.learner, privrl.Central(epsilon=1.0, delta=1e-6), jax.random.key(6))
        records = CASES[CandidateScores][0].records()
        single = jax.tree.map(lambda x: x[:, 0], records)
        steps = [step for step in fit.queries if fit.concerns(step, group)]
        answers = [step.answers(records if step.statistic.per_person else single) / step.scale for step in steps]
        i, j, _ = find_farthest(np.concatenate(answers, axis=1))
        kinds = (records, single)
        pair = tuple(
            None
            if isinstance(step, Skipped)
            else step.answers(pick_records(kinds[not step.statistic.per_person], np.array([i, j])))
            for step in fit.steps
        )
        scores = CuratorAttack(fit, pair, group).scores(jax.random.key(7), 20_000)
        assert 0.0 <= bound_epsilon(scores, 1e-6, 0.95, gaussian=False) <= 1.0

    def test_the_rule_is_public(self):
        """From the numbers of people, states and actions, and from whether only ends pay."""
        build, public = recipes["auto"].learner, {"num_states": 30, "num_actions": 20, "horizon": 3}

        def learnt(people, **ends):
            learner = build(Problem.of_table(**public, num_episodes=people, **ends))
            return [type(one).__name__ for one in learner.learners], learner.share

        ends = {"terminal": (29,), "rewards_at_end": True}
        assert learnt(50_000) == (["TAP"], 0.1) and learnt(49_999) == learnt(None) == (["TAP"], None)
        assert learnt(11_999, **ends) == learnt(None, **ends) == (["TDFP"], None)  # under 20 for each of 600 pairs
        assert learnt(12_000, **ends) == (["TAP"], None)
        assert learnt(50_000, **ends) == (["TDFP"], 0.1) and learnt(60_000, **ends) == (["TDFP", "TAP"], 0.1)
        few = build(Problem.of_table(**public, num_episodes=49_999))
        assert {d.name: d.weight for d in few.declare()} == pytest.approx(  # everybody is learnt from
            {f"TAP: {d.name}": d.weight for d in few.learners[0].declare()}
        )
        assert few.describe_choice(0) == (
            "No selection step: it needs a public number of at least 50,000 people to learn from. Using dp-tap."
        )
