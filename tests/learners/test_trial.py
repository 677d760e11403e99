"""The trial as a learner: estimates against brute force, boundaries against published ones, closing, verdicts."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import privrl
from privrl import Arm, Outcome, Protocol, Trial
from privrl.contracts.release import Release
from privrl.learners.trials.boundaries import GRID, Design, boundaries_of, expect, nearest, simulate_paths
from privrl.learners.trials.looks import looks_of
from privrl.learners.trials.protocol import Partition, Phase
from privrl.learners.trials.trial import ALL, _variance
from privrl.privacy.continual.participation import Participation
from privrl.privacy.continual.toeplitz import SquareRoot
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.studies.learner_settings import settings_of
from privrl.studies.loop import no_queries
from privrl.studies.rebuilt import learner_of
from privrl.studies.simulation.pilot_world import PilotWorld
from privrl.studies.study import Study

PILOT = Protocol(
    "pilot",
    1_000,
    (Arm("practice"), Arm("advice")),
    Outcome("survival"),
    epsilon=math.inf,
    delta=1e-6,
    looks=5,
)
THREE = dataclasses.replace(
    PILOT,
    arms=(Arm("practice"), Arm("advice"), Arm("assisted")),
    phases=(Phase(1, (0.8, 0.1, 0.1)), Phase(3, (0.4, 0.3, 0.3))),
)


def released(trial, sums, std=0.0):
    """A release of running sums (R, S) of the outcome that decides."""
    own, _ = trial.statistics()[trial.protocol.outcome.name]
    value = np.asarray(sums, float)[:, None] * np.array([own.record_weight, 1.0])
    return {trial.protocol.outcome.name: Release(jnp.asarray(value), GaussianNoise(jnp.asarray(std), own.shape))}


def conduct(trial, assigned, received, sums, std=None, begun=None):
    """The state after looks at these numbers per block and arm: assigned, received, and the sum of G - c."""
    state = trial.init()
    plan = None
    total = np.zeros((len(trial.arms), 2))
    for t, end in enumerate(trial.protocol.ends):
        counts = trial.count_people([(arm, "") for arm in range(len(trial.arms)) for _ in range(assigned[t][arm])])
        state = trial.enrol(state, counts, jnp.asarray(t if begun is None else begun[t]))
        total = total + np.stack([received[t], sums[t]], axis=1)
        noise = 0.0 if std is None else std[t]
        state, plan = trial.plan(state, released(trial, total, noise), no_queries(), jnp.asarray(end))
    return state, plan


def corrected(total, number):
    """The variance of an outcome, without privacy noise: unbiased, and at most that of a fair coin."""
    mean = min(max(total / number, 0), 1)
    return min(mean * (1 - mean) * number / max(number - 1, 1), 0.25)


def naive(trial, state, look, arm, missing=None):
    """The estimate and its sampling variance as the formulas read, phase by phase."""
    outcome = trial.protocol.outcome
    missing = missing or (outcome.missing_value,) * 2
    d = variance = spread = people = 0.0
    strata = np.asarray(state.stratum)
    assigned = np.asarray(state.assigned[ALL])[..., 0]
    running = np.asarray(state.running[outcome.name])[:, :, 0]
    increments = np.diff(running, axis=0, prepend=0.0)
    rows = []
    for k in np.unique(strata[: look + 1]):
        blocks = [j for j in range(look + 1) if strata[j] == k]
        n = [sum(assigned[j, a] for j in blocks) for a in (0, arm)]
        g = [
            sum(increments[j, a, 1] + (outcome.centre - v) * increments[j, a, 0] for j in blocks) + v * own
            for a, v, own in zip((0, arm), missing, n, strict=True)
        ]
        if min(n) > 0:
            rows.append((n, g))
            people += sum(n)
    for n, g in rows:
        m = [total / number for total, number in zip(g, n, strict=True)]
        share = sum(n) / people
        d += share * (m[1] - m[0])
        separate = sum(corrected(total, number) / number for total, number in zip(g, n, strict=True))
        variance += share**2 * max(corrected(sum(g), sum(n)) * (1 / n[0] + 1 / n[1]), separate)
        spread += share**2 * (1 / n[0] + 1 / n[1])
    return d, variance, spread


@pytest.mark.parametrize("missing", [None, (1.0, 0.0), (0.3, 0.9)])
def test_the_estimate_is_that_of_the_formulas(missing):
    rng = np.random.default_rng(0)
    trial = Trial(dataclasses.replace(THREE, outcome=Outcome("survival", missing=0.25)))
    assigned = np.array([rng.multinomial(size, share) for size, share in zip([200] * 5, THREE.shares, strict=True)])
    assigned[0, 1] = 0  # a look at which one arm has no one
    received = rng.binomial(assigned, 0.9)
    sums = rng.binomial(received, 0.6) - trial.protocol.outcome.centre * received
    state, _ = conduct(trial, assigned, received, sums)
    state = eqx.tree_at(lambda s: s.stratum, state, jnp.asarray([0, 0, 1, 1, 2]))
    v = missing or (0.25, 0.25)
    for look in range(5):
        for arm in (1, 2):
            d, variance, spread = naive(trial, state, look, arm, v)
            if spread == 0:
                assert float(trial.compare(state, look, arm, v)[1]) == 0
            else:
                found = [float(x) for x in trial.compare(state, look, arm, v)]
                assert found == pytest.approx([d, math.sqrt(variance), variance / spread], rel=1e-12)


def test_everyone_assigned_is_in_the_denominator_and_missing_records_have_the_fixed_value():
    trial = Trial(dataclasses.replace(PILOT, looks=1, outcome=Outcome("survival", missing=0.5)))
    # 500 assigned to each arm; of the policy's arm 400 records come, all 1; of practice all, half of them 1.
    c = trial.protocol.outcome.centre
    state, _ = conduct(trial, [[500, 500]], [[500, 400]], [[250 - 500 * c, 400 - 400 * c]])
    (look,) = looks_of(trial, state)
    assert look.comparisons[0].estimate == pytest.approx((400 + 0.5 * 100) / 500 - 0.5)
    assert look.arms[1].mean == pytest.approx(0.9) and look.arms[1].received == pytest.approx(400)
    assert look.comparisons[0].verdict == "better" and not look.comparisons[0].rests_on_missing
    # Missing counted against it: 400/500 against 250/500.
    se = math.sqrt(0.65 * 0.35 * 1000 / 999 * 2 / 500)
    assert look.comparisons[0].against == pytest.approx(0.3 / se, rel=1e-6)


def test_a_verdict_that_rests_on_missing_records_says_so():
    trial = Trial(dataclasses.replace(PILOT, looks=1, outcome=Outcome("survival", missing=0.0)))
    c = trial.protocol.outcome.centre
    state, _ = conduct(trial, [[500, 500]], [[350, 500]], [[245 - 350 * c, 350 - 500 * c]])
    (one,) = looks_of(trial, state)[0].comparisons
    assert one.verdict == "better" and one.rests_on_missing and one.against < one.upper


def test_the_variance_of_the_noise_is_that_of_the_channel():
    """Linear in the noise: propagate the columns of the continual mechanism through `compare` one by one."""
    trial = Trial(dataclasses.replace(THREE, epsilon=1.0))
    study = Study.online(trial, trial.protocol.privatizer, 1_000)
    (channel,) = study.channels().values()
    L, own = 5, channel.statistic
    assigned = np.rint(THREE.shares * 200).astype(int)
    state, _ = conduct(trial, assigned, np.zeros((L, 3)), np.zeros((L, 3)))
    state = eqx.tree_at(lambda s: s.stratum, state, jnp.asarray([0, 0, 1, 1, 2]))
    base = float(trial.compare(state, 4, 1, (0.0, 0.0))[0])
    total = 0.0
    for arm in (0, 1):
        for entry in (0, 1):
            for j in range(L):  # one unit of white noise at look j
                memory, values = channel.init(), []
                for t in range(L):
                    white = jnp.zeros(own.shape).at[arm, 0, entry].set(float(t == j))
                    memory, release = channel.publish(memory, jnp.zeros(own.shape), t, lambda i, w=white: w)
                    values.append(release.value / jnp.asarray([own.record_weight, 1.0])[None, None])
                moved = eqx.tree_at(
                    lambda s: s.running, state, {"survival": state.running["survival"] + jnp.stack(values)}
                )
                total += (float(trial.compare(moved, 4, 1, (0.0, 0.0))[0]) - base) ** 2
    noisy = eqx.tree_at(lambda s: s.variance, state, {"survival": jnp.full(L, float(release.noise.variance))})
    _, se, outcome = map(float, trial.compare(noisy, 4, 1, (0.0, 0.0)))
    _, _, spread = naive(trial, state, 4, 1, (0.0, 0.0))
    assert se**2 - outcome * spread == pytest.approx(total, rel=1e-9)


def test_boundaries_without_noise_are_the_published_ones():
    """Lan and DeMets with the O'Brien-Fleming shape, five equal looks, one-sided .025; and one look."""
    (found,) = boundaries_of(PILOT, 0.0)
    assert found.upper[1:, 0] == pytest.approx([3.3569, 2.6803, 2.2898, 2.0310], abs=0.03)
    assert math.isinf(found.upper[0, 0])  # less than one path
    (one,) = boundaries_of(dataclasses.replace(PILOT, looks=1), 0.0)
    assert one.upper[0, 0] == pytest.approx(1.95996, abs=0.01) and one.lower[0, 0] == pytest.approx(1.64485, abs=0.01)
    (pocock,) = boundaries_of(dataclasses.replace(PILOT, spending_better="pocock"), 0.0)
    assert pocock.upper[:, 0] == pytest.approx([2.438, 2.427, 2.410, 2.397, 2.386], abs=0.03)


def test_boundaries_spend_the_error_rates_under_noise():
    protocol = dataclasses.replace(THREE, epsilon=1.0)
    noise = Trial(protocol).noise()
    for arm, found in enumerate(boundaries_of(protocol, noise), 1):
        for place in (0, 9):
            z = simulate_paths(Design.from_protocol(protocol, arm, noise).covariance(GRID[place], GRID[place]))
            over = (z > found.upper[:, place, None]).any(axis=0).mean()
            under = (-z > found.lower[:, place, None]).any(axis=0).mean()
            assert (over, under) == pytest.approx((0.0125, 0.025), abs=2e-6)
    assert nearest(0.25) == 0 and nearest(0.0) == len(GRID) - 1 and GRID[nearest(0.03)] == pytest.approx(0.03, rel=0.19)


def test_covariance_over_looks_is_that_of_simulated_sums():
    design = Design((100, 250, 600), (0, 0, 1), (0.1, 0.1, 0.5), (0.9, 0.9, 0.5), 9.0)
    rng = np.random.default_rng(1)
    n = design.assigned
    sums = rng.normal(size=(200_000, 2, 3)) * np.sqrt(np.array([0.2, 0.1])[:, None] * n)
    white = 3.0 * rng.normal(size=(200_000, 2, 3))
    b = np.asarray(SquareRoot(3).matrix())
    sums += np.diff(white @ b.T, axis=-1, prepend=0.0)
    estimates = []
    for look in range(3):
        d, people = 0.0, n[:, : look + 1].sum()
        for blocks in ([0, 1][: look + 1], [2] if look == 2 else []):
            if blocks:
                mean = sums[:, :, blocks].sum(axis=-1) / n[:, blocks].sum(axis=-1)
                d = d + n[:, blocks].sum() / people * (mean[:, 1] - mean[:, 0])
        estimates.append(d)
    assert np.cov(np.array(estimates)) == pytest.approx(design.covariance(0.2, 0.1), rel=0.03)


def test_a_worse_policy_is_closed_and_its_share_divided_in_proportion():
    trial = Trial(THREE)
    assigned = np.rint(THREE.shares * 200).astype(int)
    rates = np.array([0.6, 0.1, 0.6])
    c = trial.protocol.outcome.centre
    begun = [0, 0, 0, 1, 2]  # plans lag behind: blocks 1 and 2 begin before the first look is made
    state, plan = conduct(trial, assigned, assigned, np.rint(assigned * rates) - c * assigned, begun=begun)
    closed = int(state.closed[1])
    assert closed == 1 and int(state.closed[2]) == 0
    assert np.asarray(plan.policy.shares_of(3)) == pytest.approx([4 / 7, 0, 3 / 7])
    assert np.asarray(plan.policy.shares_of(0)) == pytest.approx([8 / 9, 0, 1 / 9])
    # Block 3 is the first that begins under plan 1. The second phase of the protocol begins with block 2.
    assert np.asarray(state.stratum).tolist() == [0, 0, 1, 2, 2]
    looks = looks_of(trial, state)
    assert [one.verdict for one in looks[0].comparisons] == ["worse", ""]
    assert [one.policy for one in looks[1].comparisons] == ["assisted"]
    assert looks[0].arms[1].is_open is False and "worse" in looks[0].sentence
    assert "`advice` was closed as worse at an earlier look" in looks[-1].sentence
    assert looks[-1].ended and looks[-1].serving == "practice" and plan.policy.served == 0
    assert not plan.policy.is_open(2)  # the trial has ended


def test_of_two_better_policies_the_larger_lower_bound_is_served_and_later_looks_change_nothing():
    trial = Trial(THREE)
    assigned = np.rint(THREE.shares * 200).astype(int)
    c = trial.protocol.outcome.centre
    sums = np.rint(assigned * np.array([0.1, 0.7, 0.9])) - c * assigned
    state, plan = conduct(trial, assigned, assigned, sums)
    assert int(state.ended) == 2 == int(state.looks) and plan.policy.served == 2 and int(state.better) == 2
    assert looks_of(trial, state)[-1].sentence.startswith("`assisted` is better than practice")
    assert np.asarray(state.running["survival"])[2:].any() == False  # noqa: E712
    kept = Trial(dataclasses.replace(THREE, after_better="practice"))
    assert conduct(kept, assigned, assigned, sums)[1].policy.served == 0


def test_no_verdict_without_a_standard_error():
    trial = Trial(dataclasses.replace(PILOT, looks=2))
    c = trial.protocol.outcome.centre
    state, plan = conduct(trial, [[250, 250]] * 2, [[250, 250]] * 2, [[-250 * c, -250 * c]] * 2)  # all 0: m(1-m) = 0
    assert plan.policy.served == 0 and int(state.better) == 0
    assert looks_of(trial, state)[0].comparisons[0].low == -math.inf


@pytest.fixture(scope="module")
def run():
    world = PilotWorld.binary(PILOT, (0.5, 0.5))
    return privrl.run(world, Trial(PILOT), PILOT.privatizer, episodes=1_000, seeds=500, key=1)


def test_intervals_exclude_zero_exactly_if_there_is_a_verdict(run):
    state = jax.tree.map(np.asarray, run.policy)
    j, looked = state.judged, np.arange(5)[None] < state.looks[:, None]
    d, se, u, w = (x[:, :, 1] for x in (j.estimate, j.se, j.upper, j.lower))
    u, w = np.where(se > 0, u, 1e9), np.where(se > 0, w, 1e9)
    excludes = ((d - u * se > 0) | (d + w * se < 0)) & looked & (se > 0)
    verdict = (state.better > 0) | (state.closed[:, 1] > 0)
    assert np.array_equal(excludes.any(axis=1), verdict) and 0 < verdict.sum() < 100
    last = np.take_along_axis(excludes, state.ended[:, None] - 1, axis=1)[:, 0]
    assert np.array_equal(last, verdict)


def test_a_simulated_trial_has_a_certificate_with_the_hash_and_can_be_rebuilt(run):
    assert run.certificate.bounds["protocol sha256"] == PILOT.sha256
    assert "one person's record by another or by none" in run.certificate.bounds["public"]
    protocol = dataclasses.replace(
        THREE, epsilon=1.0, subgroups=(Partition("sex", ("f", "m"), 0.1),), secondary=(Outcome("days", 0, 30, 30, 0.2),)
    )
    trial = Trial(protocol)
    assert learner_of(settings_of(trial)) == trial and learner_of(settings_of(trial)).protocol == protocol
    study = Study.online(trial, protocol.privatizer, 1_000)
    shares = {event.name: event.parameter**2 for event in study.ledger.events()}
    whole = sum(shares.values())
    assert {name: share / whole for name, share in shares.items()} == pytest.approx(
        {"survival": 0.7, "days": 0.2, "survival by sex": 0.1}
    )
    assert study.certificate("seed", made={}).epsilon == pytest.approx(1.0, rel=1e-6)


def test_expected_power_is_that_of_the_prototype():
    """The table of the derivation: N 5,000, practice .692, gain .047, epsilon 1: .92 with 3,351 people."""
    protocol = dataclasses.replace(PILOT, people=5_000, looks=20, epsilon=1.0)
    found = expect(protocol, Trial(protocol).noise(), 0.692, 0.047)
    assert found.better == pytest.approx(0.92, abs=0.02) and found.people == pytest.approx(3_351, rel=0.02)


def test_people_who_arrive_while_records_are_awaited_are_enrolled_until_the_last_look():
    protocol = dataclasses.replace(PILOT, looks=(400, 1_000), epsilon=1.0)
    noise, number = Trial(protocol).noise(), 2**16
    none, some, many = (expect(protocol, noise, 0.5, 0.3, number=number, arriving=n) for n in (0, 90, 5_000))
    assert none.enrolled == none.people < some.people + 90 and many.enrolled == 1_000
    early = (1_000 - none.people) / 600  # the probability of a verdict at the first look
    assert early > 0.1 and some.enrolled == pytest.approx(some.people + 90 * early)


def test_other_noise_than_that_of_the_protocol_and_returns_are_refused():
    trial = Trial(dataclasses.replace(PILOT, epsilon=1.0))
    for privatizer in (privrl.Central(epsilon=2.0, delta=1e-6), privrl.NonPrivate()):
        with pytest.raises(ValueError, match="protocol.privatizer"):
            Study.online(trial, privatizer, 1_000)
    with pytest.raises(ValueError, match="one outcome"):
        Study.online(trial, trial.protocol.privatizer, 1_000, Participation(2, 0))
    with pytest.raises(ValueError, match="The protocol is for 1000 people"):
        Study.online(trial, trial.protocol.privatizer, 900)


def test_the_variance_of_an_outcome_is_not_underestimated():
    """The error of a mean, of sampling and of noise, makes m (1 - m) too small: by about 5% here."""
    rng = np.random.default_rng(5)
    number, noise, chance = 20, 3.0, 0.3
    totals = rng.binomial(number, chance, 200_000) + rng.normal(0, noise**0.5, 200_000)
    found = np.asarray(
        _variance(jnp.asarray(totals), jnp.full(totals.shape, float(number)), jnp.full(totals.shape, noise))
    )
    naive_one = np.clip(totals / number, 0, 1) * (1 - np.clip(totals / number, 0, 1))
    assert naive_one.mean() < 0.96 * chance * (1 - chance)
    assert abs(found.mean() / (chance * (1 - chance)) - 1) < 0.03
