"""Known-bad mechanisms are caught, every time, and the same attacks leave the corrected ones alone."""

import functools
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.audit.known_bad.case import (
    Audited,
    Case,
    audit_by_counting,
    audit_epsilon_by_distance,
    audit_rho_by_distance,
    distance,
)
from privrl.audit.known_bad.cases import CASES, run_cases
from privrl.audit.known_bad.contributions import _values
from privrl.audit.known_bad.noise import CASES as NOISE
from privrl.audit.known_bad.printed_lq import _people, _printed_scales, _right_scales
from privrl.privacy.accounting.gdp import gdp_epsilon
from privrl.statistics.lq_moments import LQCross, LQGram

BY_NAME = {case.name: case for case in CASES}
PAPERS = ("sahu", "chowdhury-zhou-shroff", "wang-hegde", "liao-he-gu", "qiao-wang")
# Functional noise has tests of its own.
OTHERS = [case for case in CASES if not case.paper.startswith("wang-hegde")]
each_case = pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)


@functools.cache
def attacked(name: str) -> Audited:
    """What the attack finds at a smaller size, where the flaw is still plain and the run is quick."""
    return BY_NAME[name].attack(jax.random.key(1), smaller(BY_NAME[name]))


def smaller(case: Case) -> int:
    return {60_000: 30_000, 20_000: 8_000, 4_000: 2_000, 1_000: 500}.get(case.trials, case.trials)


def seeds(case: Case) -> int:
    """Attacks on a protocol compare and count nothing: a seed changes little."""
    return 3 if case.trials == 1 else 20


def check_caught(found: Audited) -> None:
    assert found.caught
    assert math.isfinite(found.audited) and found.audited > found.claimed
    if found.unit == "success rate":
        assert found.audited >= 0.99


@each_case
def test_the_flaw_is_caught(case: Case) -> None:
    check_caught(attacked(case.name))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow) if case.name in ("mirrored-noise", "noise-for-one-visit") else case
        for case in OTHERS
    ],
    ids=lambda case: case.name,
)
def test_the_attack_leaves_the_corrected_mechanism_alone(case: Case) -> None:
    found = case.attack_corrected(jax.random.key(2), smaller(case))
    assert not found.caught
    if found.unit != "success rate":
        assert found.audited <= found.claimed


@pytest.mark.slow
@each_case
def test_the_flaw_is_caught_every_time(case: Case) -> None:
    for seed in range(seeds(case)):
        check_caught(case.attack(jax.random.key(seed), case.trials))


@pytest.mark.slow
@each_case
def test_the_corrected_mechanism_is_never_accused(case: Case) -> None:
    """Bounds hold with probability .9999 each, so 20 runs at exactly the claim raise an alarm once in 500 times."""
    assert not any(case.attack_corrected(jax.random.key(seed), case.trials).caught for seed in range(seeds(case)))


def test_fresh_noise_leaves_the_naming_attack_at_chance() -> None:
    """999 guesses at 1 in 200 make 5 right ones; more than 17 in one of 100,000 runs."""
    found = BY_NAME["noise-drawn-once"].attack_corrected(jax.random.key(2), 1_000)
    assert found.claimed == 1 / 200
    assert found.audited <= 17 / 999


@pytest.mark.slow
def test_fresh_noise_leaves_the_naming_attack_below_twice_chance() -> None:
    """19,999 guesses make 100 +- 10 right ones."""
    assert BY_NAME["noise-drawn-once"].attack_corrected(jax.random.key(3), 20_000).audited <= 2 / 200


def test_noise_for_adding_is_worth_twice_the_claim_under_replacement() -> None:
    found = attacked("gram-noise-for-adding")
    # Spread of the estimated mu at n = 1e5: sqrt(2/n + mu^2/(4n)) = .005, of rho sqrt(2) times that; 3.7 + 4.5 of them.
    assert 2 - 2 * 8.2 * 0.0071 < found.audited / found.claimed < 2 + 2 * (4.5 - 3.7) * 0.0071


def test_the_printed_noise_of_control_against_its_exact_epsilon() -> None:
    """Two people apart by sqrt(2) g in the Gram counter and .99 of it in the other, over 10 levels each."""
    g = sum(0.99 ** (2 * h) for h in range(5))
    gram, cross = _printed_scales(100.0)
    np.testing.assert_allclose(gram, math.sqrt(8 * 10 * 5**2 * 1.1**4 * math.log(2e5)) / 100)
    mu = math.sqrt(2 * 10) * g * math.hypot(1 / gram, 0.99 / cross)
    exact = gdp_epsilon(mu, 1e-5)
    assert exact > 200
    found = attacked("printed-noise-at-epsilon-100")
    spread = math.sqrt(2 / 2_000 + mu**2 / (4 * 2_000)) * (mu + 4.3)  # that of mu, times d epsilon/d mu
    assert exact - (3.7 + 4.5) * spread < found.audited < exact + (4.5 - 3.7) * spread


def test_the_people_of_the_control_cases_satisfy_the_assumptions_of_the_paper() -> None:
    """Assumption 1: |Theta|_F <= 1, |A| + gamma |B| + Cw <= 1, |x_1| <= 1, noise within Cw; here u = 0."""
    A, B = 0.7 * np.eye(2), np.array([[0.1], [0.0]])
    assert np.linalg.norm(np.hstack([A, B])) <= 1
    assert 0.7 + 0.1 * 0.1 + 0.29 <= 1 + 1e-12
    people = _people()
    states = np.asarray(people.states)
    noise = states[:, 1:] - states[:, :-1] @ A.T - np.asarray(people.inputs) @ B.T
    assert np.linalg.norm(noise, axis=-1).max() <= 0.29 + 1e-12
    assert np.linalg.norm(states, axis=-1).max() <= 1


def test_the_corrected_counters_cost_what_is_claimed() -> None:
    """mu^2 is the sum over two trees of levels (sensitivity/scale)^2."""
    sensitivities = [s(2, 1, 5, 0.1).l2("replace-one") for s in (LQGram, LQCross)]
    mu = math.sqrt(10 * sum((d / s) ** 2 for d, s in zip(sensitivities, _right_scales(100.0), strict=True)))
    np.testing.assert_allclose(gdp_epsilon(mu, 1e-5), 100.0, rtol=1e-6)


def test_a_client_with_both_clips_keeps_values_in_range_whatever_it_is_sent() -> None:
    theta = 1e3 * jax.random.normal(jax.random.key(0), (3, 8))
    clipped = _values(theta, lowest=0.0)
    assert clipped.min() >= 0
    assert (clipped <= jnp.array([3.0, 2.0, 1.0])[:, None]).all()
    assert min(_values(sign * theta, lowest=-math.inf).min() for sign in (1, -1)) < -100


def normal_scores(rng: np.random.Generator, apart: float, n: int) -> np.ndarray:
    return 7.0 + 3.0 * (rng.normal(size=(2, n)) + apart * np.array([[0.0], [1.0]]))


@pytest.mark.parametrize(("apart", "n"), [(0.3, 200), (3.0, 50), (15.0, 500)])
def test_distance_is_a_lower_bound_as_often_as_it_says(apart: float, n: int) -> None:
    """At confidence .9 the bound is above the truth in a tenth of 3,000 experiments, |z| < 4.5."""
    rng = np.random.default_rng(0)
    above = np.mean([distance(normal_scores(rng, apart, n), 0.9) > apart for _ in range(3_000)])
    assert abs(above - 0.1) < 4.5 * math.sqrt(0.1 * 0.9 / 3_000)


def test_distance_of_the_same_world_twice_is_nothing() -> None:
    scores = normal_scores(np.random.default_rng(1), 0.0, 1_000)
    assert distance(scores) == 0.0
    assert not audit_rho_by_distance(scores, 0.01).caught
    assert not audit_epsilon_by_distance(scores, 0.01).caught


def test_counting_of_worlds_told_apart_without_fail() -> None:
    """All of n/2 held-out runs are right: each rate is known up to x = (.00005)^(2/n), both ways."""
    n = 2_000
    scores = np.stack([np.zeros(n), np.ones(n)])
    high = 1 - 0.00005 ** (2 / n)
    np.testing.assert_allclose(audit_by_counting(scores).audited, math.log((1 - high - 1e-5) / high), rtol=1e-9)


def test_counting_is_held_out() -> None:
    """A threshold that is good on one half by chance proves nothing: the other half is the same in both worlds."""
    rng = np.random.default_rng(2)
    scores = np.concatenate(
        [np.stack([np.zeros(500), np.ones(500)]), np.repeat(rng.normal(size=(1, 500)), 2, 0)], axis=1
    )
    assert audit_by_counting(scores).audited == 0.0


def test_cases_say_what_they_are() -> None:
    assert len(BY_NAME) == len(CASES)
    for case in CASES:
        assert case.paper == "practice" or case.paper.split()[0] in PAPERS
        assert case.flaw and case.proof and "\n" not in case.flaw + case.proof


def test_show_is_ready_for_json() -> None:
    told: list[str] = []
    shown = run_cases(NOISE[:1], jax.random.key(6), told.append)
    assert told == ["noise-drawn-once"]
    (case,) = json.loads(json.dumps({"cases": shown}, allow_nan=False))["cases"]
    assert case["caught"] is True and case["audited"] >= 0.99 and case["claimed"] == 0.005
    assert {"name", "paper", "flaw", "unit"} <= case.keys()


def test_the_page_of_known_bad_mechanisms_has_every_case() -> None:
    page = (Path(__file__).parents[2] / "docs" / "audited.md").read_text()
    rows = {name: f"| `{name}` | {case.paper} | {case.flaw}: {case.proof} |" for name, case in BY_NAME.items()}
    assert [name for name, row in rows.items() if row not in page] == []
