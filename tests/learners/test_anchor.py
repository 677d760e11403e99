"""The anchor to practice, by hand; `test_tap.py` has what it does to advice as noise grows."""

import jax.numpy as jnp
import numpy as np

from privrl.contracts.release import Release
from privrl.evaluation.support import estimated_support
from privrl.learners.tabular.anchor import anchored, practice, typical_deviation
from privrl.mdp.assistance import LEAVE
from privrl.mdp.assisted import AssistedPolicy
from privrl.privacy.noise.distributions import GaussianNoise

SUPPORT = 0.1


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


def test_as_epsilon_goes_to_nothing_the_assisted_policy_becomes_practice():
    """Practice's mode can be harmful, practice itself is not: estimated support is 0, and nothing is advised."""
    table = np.full((50, 1), 400.0) * np.array([0.4, 0.6])
    rng, shares = np.random.default_rng(5), []
    for noise in (1.0, 30.0, 1e3, 1e5, 1e8):
        noisy = Release(
            jnp.asarray(table + noise * rng.normal(size=table.shape)), GaussianNoise(jnp.asarray(noise), table.shape)
        )
        policy = AssistedPolicy(jnp.zeros(50, int), estimated_support(noisy).probability, horizon=100)
        shares.append(float((policy.alpha > 0).mean()))
    assert shares[0] == 1.0 and shares == sorted(shares, reverse=True)
    assert shares[2:] == [0.0] * 3 and not policy.support.any()
    assert np.all(policy(np.arange(50)) == LEAVE)
