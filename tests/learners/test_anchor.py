"""The anchor to practice: as noise grows the advice becomes practice's mode, and nothing unsupported is advised."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_data, tiny_world

import privrl
from privrl.contracts.release import Release
from privrl.evaluation.support import estimated_support
from privrl.learners.tabular.advantages import CellSums, plan
from privrl.learners.tabular.anchor import SUPPORT, anchored, practice, typical_deviation
from privrl.learners.tabular.apvi import APVI
from privrl.learners.tabular.tdfp import TDFP
from privrl.mdp.assistance import LEAVE
from privrl.mdp.assisted import AssistedPolicy
from privrl.privacy.noise.laws import GaussianNoise
from privrl.recipes.all_recipes import get

S, A, H = 6, 3, 4
VISITS = jnp.tile(jnp.asarray([500.0, 300.0, 200.0]), (S, 1))  # known exactly; action 0 is practice's mode
GAIN = jnp.asarray([[0.0, 0.0, 0.3]])  # action 2 is the best


def test_a_choice_by_hand():
    """Scores (0, .1, 1) with P = (.6, .36, .04): action 2 is unsupported, and kappa decides between the others."""
    seen = practice(jnp.asarray([[600.0, 360.0, 40.0]]), jnp.asarray(1e-6), jnp.ones(1, bool))
    np.testing.assert_allclose(seen.probabilities, [[0.6, 0.36, 0.04]])
    score = jnp.asarray([[0.0, 0.1, 1.0]])
    assert np.log(0.6 / 0.36) > 0.5
    for kappa, action in ((0.0, 1), (0.19, 1), (0.2, 0), (10.0, 0)):
        assert anchored(score, jnp.asarray(kappa), seen, SUPPORT).argmax() == action
    hidden = practice(jnp.asarray([[3.0, 5.0, 4.0]]), jnp.asarray(100.0), jnp.ones(1, bool))
    assert anchored(score, jnp.zeros(()), hidden, SUPPORT).argmax() == 1  # nothing is visible: the mode
    deviation = typical_deviation(jnp.asarray([[4.0, 0.0]]), jnp.asarray([[1.0, 3.0]]))
    np.testing.assert_allclose(deviation, 1.0)


def tdfp_advice(noise, anchor, visits=VISITS):
    """TDFP's plan where every visit ends the stay, and the noise of endings alone grows."""
    rng = np.random.default_rng(3)
    T1, T0 = visits * (0.5 + GAIN), visits * (0.5 - GAIN)
    T1, T0 = (T + jnp.asarray(noise * rng.normal(size=(S, A))) for T in (T1, T0))
    zero, none = jnp.zeros((S, A)), jnp.zeros(())
    sums = CellSums(visits, T1, T0, zero, zero, none, jnp.asarray(noise**2), none, none, none)
    feature = jnp.linspace(-0.1, 0.1, S)
    return plan(sums, feature, jnp.ones(S), jnp.ones(S, bool), H, 0.75, 2.0, anchor).policy.probabilities


class Tables:
    """Visits without noise, and next states (S states, then the end) with noise: action 2 ends fewest stays."""

    def __init__(self, noise, visits=VISITS):
        rng = np.random.default_rng(4)
        stays = np.repeat(np.array([0.4, 0.4, 0.9])[None], S, axis=0).ravel()[:, None]
        rows = np.concatenate([np.full((S * A, S), 1 / S) * stays, 1 - stays], axis=1)
        exact = np.asarray(visits).ravel()[:, None] * rows
        self.values = {"visits": visits, "transitions": exact + noise * rng.normal(size=exact.shape)}
        self.noise = {"visits": 1e-9, "transitions": noise}

    def __call__(self, name, statistic):
        value = np.asarray(self.values[name])
        if name == "transitions":
            pairs = np.asarray(statistic.pairs)
            value = np.where((pairs < S * A)[:, None], value[np.minimum(pairs, S * A - 1)], 0.0)
        return Release(jnp.asarray(value), GaussianNoise(jnp.asarray(self.noise[name]), statistic.shape))


def apvi_advice(noise, anchor, visits=VISITS):
    learner = APVI(S, A, H, rewards=jnp.full((1, S, A), 0.5), counting="first-visit", anchor=anchor)
    return learner.fit(Tables(noise, visits)).policy.probabilities[: H - 1]  # at the last step all actions are alike


@pytest.mark.parametrize("advice", [tdfp_advice, apvi_advice])
def test_as_noise_grows_the_advice_becomes_the_mode_of_practice(advice):
    """P is given exactly, and only the noise of what follows an action grows."""
    for anchor in (0.25, 0.75):
        np.testing.assert_array_equal(advice(1.0, anchor).argmax(axis=-1), 2)
        for noise in (1e5, 1e7, 1e9):
            np.testing.assert_array_equal(advice(noise, anchor).argmax(axis=-1), 0)


@pytest.mark.parametrize("advice", [tdfp_advice, apvi_advice])
def test_unsupported_actions_are_never_advised(advice):
    rare = VISITS.at[:, 2].set(45.0)  # less than a tenth of 500
    np.testing.assert_array_equal(advice(0.1, 0.0, rare).argmax(axis=-1), 2)
    for noise in (0.1, 10.0, 1e3):
        assert not np.any(advice(noise, 0.01, rare)[..., 2])


PAIRS = (
    (APVI(3, 2, 4, counting="first-visit"), APVI(3, 2, 4, counting="first-visit", anchor=0.5)),
    (TDFP(3, 2, 4, (2,), shares=(1.0,)), TDFP(3, 2, 4, (2,), shares=(1.0,), anchor=0.5)),
)


def test_an_anchor_declares_nothing_more():
    """Off unless it is set."""
    for off, on in PAIRS:
        assert off.anchor == 0.0 and off.declare() == on.declare()
    assert get("dp-apvi@paper").build(tiny_world()).anchor == 0.0


@pytest.mark.slow
def test_an_anchor_asks_for_nothing_more():
    """The same releases with the same noise, so the same certificate."""
    data = tiny_data(tiny_world(), 300)
    for off, on in PAIRS:
        results = (
            privrl.fit(data, each, privrl.Central(epsilon=1.0, delta=1e-6), key=jax.random.key(0)) for each in (off, on)
        )
        first, second = (result.certificate for result in results)
        assert first.releases == second.releases and first.epsilon == second.epsilon


def test_settings_are_checked():
    with pytest.raises(ValueError, match="`anchor`"):
        TDFP(5, 2, 6, (4,), anchor=-1.0)
    with pytest.raises(ValueError, match="`calibration='paper'` has none"):
        APVI(S, A, H, calibration="paper", anchor=0.5)


def test_as_epsilon_goes_to_nothing_the_assisted_policy_becomes_practice():
    """Practice's mode can be harmful, practice itself is not: estimated support is 0, and nothing is advised."""
    table = np.full((50, 1), 400.0) * np.array([0.4, 0.6])
    rng, shares = np.random.default_rng(5), []
    for noise in (1.0, 30.0, 1e3, 1e5, 1e8):
        noisy = Release(
            jnp.asarray(table + noise * rng.normal(size=table.shape)), GaussianNoise(jnp.asarray(noise), table.shape)
        )
        policy = AssistedPolicy(jnp.zeros(50, int), estimated_support(noisy))
        shares.append(float((policy.alpha > 0).mean()))
    assert shares[0] == 1.0 and shares == sorted(shares, reverse=True)
    assert shares[2:] == [0.0] * 3 and not policy.support.any()
    assert np.all(policy(np.arange(50)) == LEAVE)
