"""One budget for all studies of the same people: its accounting, its file, and the verbs that reserve in it."""

import contextlib
import itertools
import json
import math
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from postgres import Cluster
from scipy.special import ndtr
from scipy.stats import norm

import privrl
from privrl.data.episodes import Episodes
from privrl.privacy.accounting.composition import gdp_cost
from privrl.privacy.accounting.events import Event
from privrl.privacy.accounting.gdp import dominating_mu, gdp_epsilon, gdp_mu, log_gdp_delta
from privrl.privacy.accounting.privacy_budget import BudgetError
from privrl.privacy.shared_budget import DELTA, EPSILON, MU, BudgetTerms, SharedBudget, reserve
from privrl.privacy.store.errors import BehindLogError, StoreError, StudyMismatchError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.studies.offline.curated_records import Records

TERMS: dict[str, Any] = {"epsilon": 3, "delta": 1e-6, "unit": "patient_id"}
ONE = (Event("visits", "gaussian", gdp_mu(1.0, 1e-6)),)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "patients.budget"


@pytest.fixture
def budget(path: Path) -> SharedBudget:
    return SharedBudget.create(path, **TERMS)


# --------------------------------------------------------------------------------------------------- the accounting


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 0.01, 0.3, 0.999, 1.0, 1.001, 3.0, 20.0, 200.0])
def test_the_dominating_mu_is_rounded_up_in_the_last_digits(epsilon: float) -> None:
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(300):
        e = mpmath.exp(mpmath.mpf(epsilon))
        exact = 2 * mpmath.sqrt(2) * mpmath.erfinv((e - 1) / (e + 1))
        found = mpmath.mpf(dominating_mu(epsilon))
        assert exact <= found <= exact * (1 + mpmath.mpf(4e-12))


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 3.0, 8.0])
def test_a_gaussian_pair_dominates_every_pure_release_and_a_smaller_mu_does_not(epsilon: float) -> None:
    levels = np.unique(np.concatenate([np.linspace(0, 1, 4001), [1 / (1 + math.exp(epsilon))]]))
    pure = np.maximum(0, np.maximum(1 - math.exp(epsilon) * levels, math.exp(-epsilon) * (1 - levels)))

    def gaussian(mu: float) -> np.ndarray:
        return norm.cdf(norm.ppf(1 - levels) - mu)

    assert (gaussian(dominating_mu(epsilon)) <= pure + 1e-15).all()
    assert (gaussian(0.999 * dominating_mu(epsilon)) > pure + 1e-9).any()


def test_the_releases_of_a_stream_cost_no_more_one_by_one() -> None:
    """Pure releases that are interleaved with other studies: mu^2 grows at least in proportion to epsilon."""
    epsilons = np.geomspace(1e-9, 300, 4000)
    rates = np.array([dominating_mu(float(epsilon)) ** 2 / epsilon for epsilon in epsilons])
    assert (np.diff(rates) > 0).all()


def test_costs_add_up_exactly_and_the_worst_group_counts() -> None:
    events = (
        Event("all", "gaussian", 0.1, times=3),
        Event("one", "laplace", 0.2, group="a"),
        Event("other", "gaussian", 0.05, group="b", sampling=0.1),
    )
    all_people = 3 * Fraction(0.1) ** 2
    assert gdp_cost(events) == all_people + Fraction(dominating_mu(0.2)) ** 2
    with pytest.raises(BudgetError, match="no noise"):
        gdp_cost((Event("raw", "none", math.inf),))
    with pytest.raises(BudgetError, match="no budget pays for it"):
        gdp_cost((Event("almost raw", "laplace", 800.0),))


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_dp_accounting_finds_no_more_in_mixed_studies_than_their_mu(epsilon: float) -> None:
    events = (
        Event("a", "gaussian", 0.3),
        Event("b", "laplace", 0.2, times=3),
        Event("c", "randomised-response", 0.4, symbols=2),
    )
    losses = pld.from_gaussian_mechanism(1 / 0.3, value_discretization_interval=1e-3)
    for one in [pld.from_laplace_mechanism(1 / 0.2, value_discretization_interval=1e-3)] * 3:
        losses = losses.compose(one)
    losses = losses.compose(
        pld.from_randomized_response(2 / (1 + math.exp(0.4)), 2, value_discretization_interval=1e-3)
    )
    found = losses.get_delta_for_epsilon(epsilon)
    assert 0 < found <= math.exp(log_gdp_delta(math.sqrt(gdp_cost(events)), epsilon))


def hockey_stick(start: float, variance: float, epsilon: float) -> float:
    """The delta at epsilon if the privacy loss is `start` and a Gaussian release with this mu^2 follows."""
    if variance <= 0:
        return max(0.0, 1 - math.exp(epsilon - start))
    mu = math.sqrt(variance)
    e = epsilon - start
    return float(ndtr(mu / 2 - e / mu) - math.exp(e) * ndtr(-mu / 2 - e / mu))


def adversary(
    mu_squared: float, epsilon: float, price: Callable[[float], float], choices: tuple[float, ...], steps: int
) -> float:
    """The largest delta that any adaptive sequence of randomised responses and Gaussian releases reaches.

    The adversary sees every answer, then chooses the next mechanism that it can still pay. All strategies are tried.
    """

    def best(loss: float, left: float, steps: int) -> float:
        found = hockey_stick(loss, left, epsilon)
        if steps:
            for choice in choices:
                if price(choice) <= left:
                    truth = 1 / (1 + math.exp(-choice))
                    rest = left - price(choice)
                    up, down = best(loss + choice, rest, steps - 1), best(loss - choice, rest, steps - 1)
                    found = max(found, truth * up + (1 - truth) * down)
        return found

    return best(0.0, mu_squared, steps)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_no_adaptive_adversary_exceeds_the_filter(epsilon: float) -> None:
    choices = (0.15, 0.4, 0.9)
    mu_squared = 1.3 * dominating_mu(0.9) ** 2
    allowed = math.exp(log_gdp_delta(math.sqrt(mu_squared), epsilon))
    found = adversary(mu_squared, epsilon, lambda one: dominating_mu(one) ** 2, choices, 4)
    assert found <= allowed * (1 + 1e-9)


@pytest.mark.parametrize("set_aside", [0.3, 0.8])
def test_no_adaptive_adversary_exceeds_all_pools_together(set_aside: float) -> None:
    """Studies of all three ways in any order; those with a delta reveal everything with that probability."""
    gaussian, failure = 0.7, 0.02
    mu_squared = 1.2 * dominating_mu(0.4) ** 2
    epsilon = gaussian + set_aside
    reached = []

    def best(loss: float, mu_left: float, epsilon_left: float, delta_left: float, steps: int) -> float:
        found = hockey_stick(loss, mu_left, epsilon)
        for choice, delta in itertools.product((0.15, 0.4), (0.0, failure / 2)) if steps else ():
            mu_price = dominating_mu(choice) ** 2
            for mu_cost, epsilon_cost in ((mu_price, 0.0), (0.0, choice)):
                rest = mu_left - mu_cost, epsilon_left - epsilon_cost, delta_left - delta
                if min(rest) >= -1e-12:
                    truth = 1 / (1 + math.exp(-choice))
                    up, down = (best(loss + sign * choice, *rest, steps - 1) for sign in (1, -1))
                    found = max(found, delta + (1 - delta) * (truth * up + (1 - truth) * down))
                    reached.append(epsilon_cost)
        return found

    allowed = math.exp(log_gdp_delta(math.sqrt(mu_squared), gaussian)) + failure
    found = best(0.0, mu_squared, set_aside, failure, 3)
    assert failure < found <= allowed and any(reached)


def test_the_adversary_breaks_a_filter_that_charges_the_square_of_epsilon() -> None:
    # mu = epsilon would be the cost of a Gaussian release with the same largest mean loss
    mu_squared, epsilon = 0.81, 0.5
    allowed = math.exp(log_gdp_delta(math.sqrt(mu_squared), epsilon))
    assert adversary(mu_squared, epsilon, lambda one: one**2, (0.15, 0.4, 0.9), 4) > 1.02 * allowed


@given(
    epsilon=st.floats(0.1, 20),
    delta=st.floats(1e-12, 1e-2),
    part=st.floats(0, 0.9),
    other=st.floats(0, 0.9),
    studies=st.lists(st.floats(1e-4, 0.7), max_size=30),
)
@settings(max_examples=100, deadline=None)
def test_pools_and_charges_are_exact_in_floating_point(
    epsilon: float, delta: float, part: float, other: float, studies: list[float]
) -> None:
    terms = BudgetTerms(epsilon, delta, "p", "replace-one", other * epsilon, part * delta, "")
    limits = terms.limits
    rest = gdp_epsilon(math.sqrt(limits[MU]), terms.gaussian[1])
    assert Fraction(rest) + Fraction(other * epsilon) <= Fraction(epsilon) * (1 + Fraction(1, 10**9))
    assert Fraction(limits[DELTA]) + Fraction(terms.gaussian[1]) <= Fraction(delta)
    spent, total = 0.0, Fraction(0)
    left = {pool: Fraction(limit) for pool, limit in limits.items()}
    for share in studies:
        event = Event("a", "gaussian", math.sqrt(share * limits[MU]))
        charge = terms.charges((event,), left)[MU]
        assert gdp_cost((event,)) <= charge <= gdp_cost((event,)) + Fraction(limits[MU]) / 2**37
        assert Fraction(float(charge)) == charge
        if spent + float(charge) <= limits[MU] * (1 + 1e-12):  # what the trigger of the store allows
            spent, total = spent + float(charge), total + charge
    assert Fraction(spent) == total <= Fraction(limits[MU])


# --------------------------------------------------------------------------------------------------------- the file


def test_gaussian_studies_reserve_until_the_budget_is_spent(budget: SharedBudget) -> None:
    for number in range(7):
        budget.reserve(ONE, "patient_id", f"study {number}")
    with pytest.raises(BudgetError, match=r"Nothing was reserved.*at most epsilon 0\.\d+ at delta 9e-07"):
        budget.reserve(ONE, "patient_id", "one too many")
    shown = budget.describe()
    assert [study["name"] for study in shown["studies"]] == [f"study {number}" for number in range(7)]
    assert shown["pools"][MU]["reserved"] == pytest.approx(7 * gdp_mu(1.0, 1e-6) ** 2)
    assert gdp_epsilon(math.sqrt(shown["pools"][MU]["reserved"]), 9e-7) <= 3.0
    # what the message names fits
    last = (Event("last", "gaussian", gdp_mu(0.999 * shown["left"]["epsilon"], 9e-7)),)
    budget.reserve(last, "patient_id", "last")


def test_a_resumed_study_reserves_once_and_another_of_the_same_name_again(budget: SharedBudget, tmp_path: Path) -> None:
    first = budget.reserve(ONE, "patient_id", "fit", study="a")
    assert budget.reserve(ONE, "patient_id", "fit", study="a") == first
    assert len(budget.studies()) == 1
    budget.reserve(ONE, "patient_id", "fit")
    budget.reserve(ONE, "patient_id", "fit", study="b")
    assert len(SharedBudget(budget.path).studies()) == 3
    with pytest.raises(ValueError, match="cost of other releases"):
        budget.reserve((Event("more", "gaussian", 0.1),), "patient_id", "fit", study="a")


def test_another_unit_or_relation_is_refused_before_anything_is_reserved(budget: SharedBudget) -> None:
    with pytest.raises(ValueError, match="protects `stay_id` and the budget .* is for `patient_id`"):
        budget.reserve(ONE, "stay_id", "fit")
    with pytest.raises(ValueError, match="adjacency"):
        budget.reserve(ONE, "patient_id", "fit", adjacency="add-remove")
    assert budget.studies() == []


def test_terms_that_are_not_a_budget_are_refused(path: Path) -> None:
    for wrong in ({"delta": 0}, {"epsilon": -1}, {"other_epsilon": 3}, {"other_delta": 1e-6}, {"unit": " "}):
        with pytest.raises(ValueError):
            SharedBudget.create(path, **{**TERMS, **wrong})
    assert not path.exists()


def test_only_the_budget_itself_is_opened(path: Path, tmp_path: Path, budget: SharedBudget) -> None:
    assert SharedBudget.create(path, **TERMS) == budget
    with pytest.raises(StudyMismatchError, match="epsilon"):
        SharedBudget.create(path, **{**TERMS, "epsilon": 4})
    with pytest.raises(ValueError, match="There is no budget"):
        reserve(tmp_path / "none.budget", ONE, "patient_id", "fit")
    with ReleaseStore(tmp_path / "study.db") as store:
        store.open_study({"verb": "fit"}, {"mu": 1.0})
    with pytest.raises(StoreError, match="not a budget"):
        reserve(tmp_path / "study.db", ONE, "patient_id", "fit")
    with ReleaseStore(tmp_path / "generous.db") as store:
        store.open_study({"kind": "budget of several studies", **asdict(budget.terms)}, {MU: 9.0, EPSILON: 0, DELTA: 0})
    with pytest.raises(StoreError, match="larger than"):
        reserve(tmp_path / "generous.db", ONE, "patient_id", "fit")


def test_other_studies_take_the_smaller_share(tmp_path: Path) -> None:
    budget = SharedBudget.create(tmp_path / "b", **TERMS, other_epsilon=1.0, other_delta=5e-7)
    small = budget.reserve((Event("s", "laplace", 0.01, times=20),), "patient_id", "small pure")
    assert (small.epsilon, small.delta) == (0.0, 0.0) and small.mu == pytest.approx(math.sqrt(20) * dominating_mu(0.01))
    large = budget.reserve((Event("c", "exponential", 0.5),), "patient_id", "a choice")
    assert large.mu == 0.0 and large.epsilon == pytest.approx(0.5) and large.delta == 0.0
    sampled = budget.reserve((Event("g", "gaussian", 0.2, times=6000, sampling=0.005),), "patient_id", "sampled")
    assert sampled.delta == pytest.approx(5e-8) and 0 < sampled.epsilon < 0.5 and sampled.mu == 0.0
    with pytest.raises(BudgetError):
        budget.reserve((Event("c", "exponential", 1.0),), "patient_id", "too large a choice")


@given(epsilon=st.floats(0.5, 20), delta=st.floats(1e-12, 1e-2), other=st.floats(1e-3, 0.9))
@settings(max_examples=30, deadline=None)
def test_ten_sampled_studies_find_their_part_of_delta(epsilon: float, delta: float, other: float) -> None:
    """Before, each part was rounded up, so the tenth study was refused."""
    terms = BudgetTerms(epsilon, delta, "p", "replace-one", 0.5 * epsilon, other * delta, "")
    events = (Event("p", "gaussian", 0.02, sampling=0.01),)
    left = {pool: Fraction(limit) for pool, limit in terms.limits.items()}
    left[MU] = Fraction(0)  # spent, so that all of them are taken from what was set aside
    spent = 0.0
    for _ in range(10):
        charges = terms.charges(events, left)
        assert charges[DELTA] <= left[DELTA] and charges[MU] == 0
        assert charges[DELTA] >= Fraction(terms.limits[DELTA]) / 10 * (1 - Fraction(1, 2**30))
        left[DELTA] -= charges[DELTA]
        spent += float(charges[DELTA])
    assert Fraction(spent) <= Fraction(terms.limits[DELTA]) <= Fraction(terms.other_delta)
    assert charges[DELTA] > left[DELTA]  # no eleventh study


def test_a_budget_pays_for_ten_sampled_studies(tmp_path: Path) -> None:
    large = SharedBudget.create(tmp_path / "b", **TERMS, other_epsilon=1.0)
    events = (Event("p", "gaussian", 0.3, sampling=0.01, times=10),)
    for number in range(10):
        assert large.reserve(events, "patient_id", f"sampled {number}").delta > 0.0
    pool = large.describe()["pools"][DELTA]
    assert pool["reserved"] <= pool["limit"] <= 1e-7


def test_a_copied_store_of_a_study_is_refused_by_its_log(
    budget: SharedBudget, people: Episodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both copies would draw noise, under one reservation."""
    how: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "unit": "patient_id", "budget": budget}
    path, copy, log = tmp_path / "a.db", tmp_path / "copy.db", tmp_path / "a.log"
    release = ReleaseStore.release

    def copying(self: ReleaseStore, *arguments: Any, **settings: Any) -> Any:
        if self is store and not copy.exists():
            assert len(budget.studies()) == 1
            with (
                contextlib.closing(sqlite3.connect(path)) as source,
                contextlib.closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
            copy.chmod(0o600)
        return release(self, *arguments, **settings)

    with ReleaseStore(path, log=log) as store:
        monkeypatch.setattr(ReleaseStore, "release", copying)
        first = privrl.fit(people, "dp-apvi", store=store, **how)
    assert copy.exists()
    with pytest.raises(BehindLogError):
        ReleaseStore(copy, log=log)
    with ReleaseStore(copy) as unlogged:  # what the log prevents
        second = privrl.fit(people, "dp-apvi", store=unlogged, **how)
    assert len(budget.studies()) == 1 and second.certificate.notes == first.certificate.notes


def restore(copy: Path, path: Path) -> None:
    """Puts a copy in the place of a budget, as a backup does; the log stays."""
    for end in ("", "-wal", "-shm", ".lock"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    shutil.copy(copy, path)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_older_copy_is_refused_by_the_log(path: Path, tmp_path: Path, elsewhere: bool) -> None:
    """Before, only a budget that was made with `log` refused it, and every study had to name the log."""
    (tmp_path / "disk").mkdir()
    log = tmp_path / "disk" / "patients.log" if elsewhere else path.with_name("patients.budget.log")
    budget = SharedBudget.create(path, **TERMS, log=log if elsewhere else None)
    assert log.is_file() and budget.describe()["log"] == str(log)
    copy = tmp_path / "copy"
    shutil.copy(path, copy)
    reserve(path, ONE, "patient_id", "found its log by itself")
    assert SharedBudget.create(path, **TERMS).studies() == SharedBudget(path, log).studies() != []
    restore(copy, path)
    for use in (SharedBudget(path).describe, SharedBudget(path).studies, lambda: SharedBudget.create(path, **TERMS)):
        with pytest.raises(BehindLogError):
            use()
    with pytest.raises(BehindLogError):
        reserve(path, ONE, "patient_id", "again")


def test_a_missing_log_is_refused_and_never_made_again(path: Path, tmp_path: Path, budget: SharedBudget) -> None:
    log, moved = path.with_name("patients.budget.log"), tmp_path / "moved.log"
    log.rename(moved)
    for use in (
        lambda: reserve(path, ONE, "patient_id", "fit"),
        budget.describe,
        budget.studies,
        lambda: SharedBudget.create(path, **TERMS),
        lambda: SharedBudget(path, tmp_path / "other.log").describe(),
    ):
        with pytest.raises(StoreError, match=r"The audit log .* is missing, .* Restore the log"):
            use()
    log.mkdir()  # nor is anything else taken for one
    with pytest.raises(StoreError, match="is missing"):
        budget.studies()
    log.rmdir()
    assert not log.exists() and not (tmp_path / "other.log").exists()
    SharedBudget(path, moved).reserve(ONE, "patient_id", "fit")
    moved.rename(log)
    assert len(budget.studies()) == 1
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    with pytest.raises(BehindLogError, match="so there was one"):
        SharedBudget.create(path, **TERMS)
    assert not path.exists()


def test_a_budget_and_its_log_are_moved_together_and_a_renamed_copy_shares_the_log(
    path: Path, tmp_path: Path, budget: SharedBudget
) -> None:
    shutil.copy(path, tmp_path / "copy.budget")
    budget.reserve(ONE, "patient_id", "fit")
    with pytest.raises(BehindLogError):
        SharedBudget(tmp_path / "copy.budget").describe()
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in tmp_path.glob("patients.budget*"):
        file.rename(moved / file.name)
    assert len(SharedBudget(moved / path.name).studies()) == 1
    link = tmp_path / "link.budget"
    link.symlink_to(moved / path.name)
    assert SharedBudget(link).describe()["log"] == str(moved / "patients.budget.log")


def test_a_place_for_the_log_that_cannot_be_is_refused_before_the_budget_is_made(path: Path, tmp_path: Path) -> None:
    for end in ("", "-wal", "-shm", "-journal", ".lock"):
        with pytest.raises(ValueError, match="a file of the budget itself"):
            SharedBudget.create(path, **TERMS, log=path.with_name(path.name + end))
    with pytest.raises(ValueError, match="There is no folder"):
        SharedBudget.create(path, **TERMS, log=tmp_path / "no" / "log")
    with pytest.raises(ValueError, match="control characters"):
        SharedBudget.create(path, **TERMS, log=tmp_path / "two\nlines")
    assert not path.exists()
    SharedBudget.create(path, **TERMS)
    with pytest.raises(StudyMismatchError, match="`log`"):
        SharedBudget.create(path, **TERMS, log=tmp_path / "another.log")
    assert not (tmp_path / "another.log").exists()


def test_a_budget_on_a_server(postgres: Cluster, tmp_path: Path) -> None:
    budget = SharedBudget.create(postgres.new(), **TERMS)
    for _ in range(2):
        budget.reserve(ONE, "patient_id", "fit", study="a")
    for number in range(6):
        budget.reserve(ONE, "patient_id", f"study {number}")
    with pytest.raises(BudgetError, match="Nothing was reserved"):
        budget.reserve(ONE, "patient_id", "one too many")
    assert len(budget.studies()) == 7 and "owner" not in budget.place
    assert budget.describe()["log"] is None
    logged = SharedBudget.create(postgres.new(), **TERMS, log=tmp_path / "server.log")
    assert SharedBudget(logged.path).describe()["log"] == str(tmp_path / "server.log")
    (tmp_path / "server.log").unlink()
    with pytest.raises(StoreError, match="is missing"):
        reserve(logged.path, ONE, "patient_id", "fit")


@pytest.fixture(scope="module")
def kills(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script = Path(__file__).with_name("budget_kills.py")
    command = [sys.executable, str(script), str(tmp_path_factory.mktemp("kills"))]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "sampled"])
def test_a_killed_reservation_counts_once_after_it_was_resumed(kills: dict[str, Any], kind: str) -> None:
    found = kills[kind]
    assert found["killed"] > 8
    final = found["after"][-1]
    assert final[0] == 1 and all(one == final for one in found["after"])
    assert found["before"][0][0] == 0 and found["before"][-1] == final
    assert all(now <= most for before in found["before"] for now, most in zip(before, final, strict=True))


@pytest.mark.slow
def test_a_budget_whose_making_was_killed_is_completed_with_its_log(kills: dict[str, Any]) -> None:
    found = kills["making"]
    assert found["killed"] > 8 and found["studies"] == [1] * (found["killed"] + 1)
    assert all(found["refused"])  # an older copy, by the log that was completed


@pytest.mark.slow
def test_one_of_several_processes_reserves_the_last_part(kills: dict[str, Any]) -> None:
    assert kills["race"] == {"codes": [0, 3, 3, 3, 3, 3], "studies": 2, "within": True}


# -------------------------------------------------------------------------------------------------------- the verbs


@pytest.fixture(scope="module")
def people() -> Episodes:
    world = privrl.envs.make("riverswim", states=3, horizon=4)
    sampled = world.sample(world.behaviour_policy(), 12_000, jax.random.key(0))
    return privrl.data.Episodes.from_trajectories(sampled, num_states=3, num_actions=2)


@pytest.mark.slow
def test_every_verb_reserves_what_its_certificate_says(budget: SharedBudget, people: Episodes) -> None:
    how: dict[str, Any] = {"unit": "patient_id", "budget": budget}
    result = privrl.fit(people, "dp-apvi", epsilon=0.5, delta=1e-6, **how)
    right = np.ones(3, int)
    evaluation = privrl.evaluate(people, right, epsilon=0.5, delta=1e-6, **how)
    choice = privrl.choose(people, [right, None], epsilon=0.3, delta=1e-6, **how)
    studies = budget.studies()
    assert [study.name for study in studies] == ["fit with dp-apvi", "evaluation of a policy", "choice of a policy"]
    for study, certificate in zip(
        studies, (result.certificate, evaluation.certificate, choice.certificate), strict=True
    ):
        assert study.mu**2 == pytest.approx(float(gdp_cost(certificate.events)), rel=1e-9)
        assert any(study.study in note and "epsilon 3" in note for note in certificate.notes)


def test_a_study_that_does_not_fit_computes_no_sum(
    budget: SharedBudget, people: Episodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def total(*_: object) -> None:
        raise AssertionError("a sum was computed")

    monkeypatch.setattr(Records, "total", total)
    with pytest.raises(BudgetError, match="Nothing was reserved"):
        privrl.fit(people, "dp-apvi", epsilon=4, delta=1e-6, unit="patient_id", budget=budget)
    with pytest.raises(ValueError, match="protects `stay`"):
        privrl.fit(people, "dp-apvi", epsilon=1, delta=1e-6, unit="stay", budget=budget)
    for unpaid in ({"key": 0}, {"learner": privrl.APVI(3, 2, 4), "privatizer": privrl.NonPrivate()}):
        given = {"learner": "dp-apvi", "epsilon": 1, "delta": 1e-6, **unpaid}
        if "privatizer" in unpaid:
            del given["epsilon"], given["delta"]
        with pytest.raises(ValueError, match="real people"):
            privrl.fit(people, unit="patient_id", budget=budget, **given)
    assert budget.studies() == []
    # it is reserved before the first sum, and stays reserved
    with pytest.raises(AssertionError, match="a sum was computed"):
        privrl.fit(people, "dp-apvi", epsilon=1, delta=1e-6, unit="patient_id", budget=budget)
    assert len(budget.studies()) == 1


def test_a_fit_in_a_store_reserves_once(budget: SharedBudget, people: Episodes, tmp_path: Path) -> None:
    how: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "unit": "patient_id"}
    first = privrl.fit(people, "dp-apvi", store=tmp_path / "a.db", budget=budget, **how)
    again = privrl.fit(people, "dp-apvi", store=tmp_path / "a.db", budget=budget, **how)
    assert len(budget.studies()) == 1
    assert (first.policy.probabilities == again.policy.probabilities).all()
    without = privrl.fit(people, "dp-apvi", store=tmp_path / "a.db", **how)
    assert without.certificate.notes == first.certificate.notes
    privrl.fit(people, "dp-apvi", store=tmp_path / "b.db", budget=budget, **how)
    assert len(budget.studies()) == 2


def test_a_durable_study_that_was_refused_does_not_continue_without_its_budget(
    budget: SharedBudget, people: Episodes, tmp_path: Path
) -> None:
    how: dict[str, Any] = {"epsilon": 4, "delta": 1e-6, "unit": "patient_id", "store": tmp_path / "a.db"}
    with pytest.raises(BudgetError):
        privrl.fit(people, "dp-apvi", budget=budget, **how)
    with pytest.raises(ValueError, match="begun with a shared budget and has not reserved"):
        privrl.fit(people, "dp-apvi", **how)


def test_an_agent_reserves_once(budget: SharedBudget, tmp_path: Path) -> None:
    how: dict[str, Any] = {
        "world": "riverswim",
        "epsilon": 1,
        "delta": 1e-6,
        "num_users": 100,
        "patience": 60,
        "unit": "patient_id",
    }
    for _ in range(2):
        with ReleaseStore(tmp_path / "live.db") as store:
            agent = privrl.Agent("dp-ucbvi", store=store, budget=budget, **how)
            certificate = agent.certificate
    assert certificate.unit == "patient_id"
    (study,) = budget.studies()
    assert study.mu**2 == pytest.approx(float(gdp_cost(certificate.events)), rel=1e-9)
    with ReleaseStore(tmp_path / "live.db") as store:
        assert any(study.study in note for note in privrl.Agent("dp-ucbvi", store=store, **how).certificate.notes)
