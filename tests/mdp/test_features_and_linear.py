import jax.numpy as jnp
import numpy as np
import pytest
from tests.mdp.worlds import random_world

from privrl.mdp.features import OneHotFeatures, TableFeatures
from privrl.mdp.linear import linear_mdp, mixture_mdp


def test_one_hot_features_are_the_identity_and_store_nothing() -> None:
    import jax

    features = OneHotFeatures(3, 2)
    assert features.dim == 6 and not jax.tree.leaves(features)
    np.testing.assert_array_equal(features.table.reshape(6, 6), np.eye(6))
    s, a = jnp.array([[2, 0], [1, 1]]), jnp.array([[1, 0], [0, 1]])
    np.testing.assert_array_equal(features.of(s, a), features.table[s, a])


def test_table_features_look_up() -> None:
    table = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2, 4))) / 10
    features = TableFeatures(table)
    assert (features.num_states, features.num_actions, features.dim) == (3, 2, 4)
    np.testing.assert_array_equal(features.of(jnp.array(2), jnp.array(1)), table[2, 1])


@pytest.mark.parametrize("bad", [1.01, np.nan, np.inf])
def test_features_beyond_the_unit_ball_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="norm at most 1.*Divide the table by its largest norm"):
        TableFeatures(jnp.zeros((2, 2, 3)).at[1, 0, 2].set(bad))


def test_one_hot_linear_mdp_is_the_tabular_one() -> None:
    mdp = random_world(1, H=3, S=3, A=2)
    S, A = 3, 2
    linear = linear_mdp(
        OneHotFeatures(S, A), mdp.transition.reshape(3, S * A, S), mdp.reward.reshape(3, S * A), mdp.initial, 3
    )
    np.testing.assert_allclose(linear.transition, mdp.transition, atol=1e-15)
    np.testing.assert_allclose(linear.reward, mdp.reward, atol=1e-15)


def one_hot_mixture(mdp):
    """Any finite world: phi(s'|s,a) = e_{s,a,s'} and theta_h = P_h, flattened, so d = S A S."""
    S, A = mdp.num_states, mdp.num_actions
    base = jnp.eye(S * A * S).reshape(S, A, S, S * A * S)
    return base, mdp.transition.reshape(mdp.transition.shape[0], -1)


@pytest.mark.parametrize("stationary", [True, False])
def test_one_hot_mixture_gives_the_world_back(stationary: bool) -> None:
    mdp = random_world(2, H=3, S=3, A=2, stationary=stationary)
    base, weights = one_hot_mixture(mdp)
    assert weights.shape == (1 if stationary else 3, 18)
    mixture = mixture_mdp(base, weights, mdp.reward, mdp.initial, mdp.horizon)
    np.testing.assert_allclose(mixture.transition, mdp.transition, atol=1e-15)


def test_measures_that_are_not_probabilities_are_refused() -> None:
    mdp = random_world(3, H=1, S=2, A=2)
    measures = mdp.transition.reshape(1, 4, 2)
    make = lambda mu: linear_mdp(OneHotFeatures(2, 2), mu, jnp.zeros((1, 4)), mdp.initial, 1)  # noqa: E731
    with pytest.raises(ValueError, match="linear MDP is not a probability kernel"):
        make(1.01 * measures)
    with pytest.raises(ValueError, match="smallest entry is -0.1"):
        make(measures.at[0, 0].set(jnp.array([1.1, -0.1])))
    base, weights = one_hot_mixture(mdp)
    with pytest.raises(ValueError, match="linear mixture MDP is not"):
        mixture_mdp(base, 0.9 * weights, mdp.reward, mdp.initial, 1)
