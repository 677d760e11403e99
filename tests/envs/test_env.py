"""What every environment can do, and what its registry answers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from privrl import envs
from privrl.mdp.features import OneHotFeatures, TableFeatures


@pytest.fixture(scope="module")
def river() -> envs.Env:
    return envs.RiverSwim(states=3, horizon=4, kind="osband")


def test_env_crosses_jit_and_vmap_as_an_argument(river: envs.Env) -> None:
    @jax.jit
    def simulate(env: envs.Env, keys: jax.Array, episodes: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        policy = env.uniform_policy()
        counts = jax.jit(jax.vmap(lambda key: env.flow(policy, episodes, key)))(keys)
        walks = jax.jit(jax.vmap(lambda key: env.rollout(policy, key)))(keys)
        return counts, walks.rewards, env.regret(policy)

    counts, rewards, regret = simulate(river, jr.split(jr.key(0), 3), jnp.asarray(50))
    assert counts.shape == (3, 4, 3, 2, 3) and np.all(np.asarray(counts).sum(axis=(2, 3, 4)) == 50)
    assert not np.array_equal(counts[0], counts[1])
    assert rewards.shape == (3, 4)
    assert float(regret) == pytest.approx(float(river.optimal_value - river.value(river.uniform_policy())), abs=1e-14)


def test_named_policies(river: envs.Env) -> None:
    np.testing.assert_allclose(river.behaviour_policy().probabilities, 0.5)
    np.testing.assert_allclose(river.mode_policy().probabilities, 0.5)  # nothing is most frequent
    # Left pays at the left end, right at the right end; in the middle nothing does, so the tie is shared.
    np.testing.assert_allclose(river.myopic_policy().probabilities[2], [[1, 0], [0.5, 0.5], [0, 1]])
    told = eqx.tree_at(lambda env: env.behaviour, river, jnp.array([[0.7, 0.3], [0.2, 0.8], [0.5, 0.5]]))
    np.testing.assert_allclose(told.mode_policy().probabilities[1], [[1, 0], [0, 1], [0.5, 0.5]])


def test_transitions_and_samples_agree_with_the_mean_rewards(river: envs.Env) -> None:
    counts = river.flow(river.uniform_policy(), 500, jr.key(1))
    rows = river.transitions(counts)
    assert float(rows.count.sum()) == 4 * 500
    paid = np.einsum("hsax,sa->", np.asarray(counts), np.asarray(river.rewards[0]))
    assert float(rows.reward.sum()) == pytest.approx(paid)


def test_a_world_with_a_broken_promise_is_refused(river: envs.Env) -> None:
    def build(**changes):
        fields = {"mdp": river.mdp, "features": river.features, "behaviour": river.behaviour, "name": "toy"}
        return envs.Env(**(fields | changes))

    change = eqx.tree_at
    with pytest.raises(ValueError, match="`transition` of environment `toy`"):
        build(mdp=change(lambda m: m.transition, river.mdp, 0.9 * river.mdp.transition))
    with pytest.raises(ValueError, match=r"Rewards .* lie in \[0, 2\]"):
        build(mdp=change(lambda m: m.reward, river.mdp, 2 * river.mdp.reward))
    with pytest.raises(ValueError, match="absorbing and pay nothing"):
        build(terminal=(2,))
    with pytest.raises(ValueError, match="`arrival` and `mdp.reward`"):
        build(arrival=jnp.ones(3))
    with pytest.raises(ValueError, match="`features` .* 4 states"):
        build(features=OneHotFeatures(4, 2))
    with pytest.raises(ValueError, match="norm"):
        build(features=TableFeatures(jnp.full((3, 2, 2), 1.0)))


def test_make_converts_text_by_annotation() -> None:
    text = envs.make("riverswim", states="4", horizon="7", kind="osband", seed=3)
    typed = envs.RiverSwim(states=4, horizon=7, kind="osband")
    assert dict(text.arguments) == dict(typed.arguments) and text.seed == 3
    np.testing.assert_array_equal(text.mdp.transition, typed.mdp.transition)
    assert envs.make("riverswim", horizon="none").horizon == 12
    assert float(envs.make("synthetic-linear", behaviour="0.5").behaviour[0, 0]) == 0.5
    lake = envs.make("gym:FrozenLake-v1", is_slippery="false", map_name="8x8", horizon="14")
    assert lake.num_states == 64 and float(lake.optimal_value) == 1.0 and lake.horizon == 14


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("riverswmi", {}, "no environment `riverswmi`. Did you mean `riverswim`"),
        ("gym:<id>", {}, "no environment `gym:<id>`"),
        ("riverswim", {"stats": 3}, "no argument `stats`. Did you mean `states`"),
        ("riverswim", {"states": "six"}, "`states` is 'six'; it must be int"),
        ("riverswim", {"kind": "amazon"}, "`kind` is 'amazon'; it must be 'strehl' or 'osband'"),
        ("riverswim", {"states": 1}, "`states` is 1; it must be at least 2"),
        ("icu-sepsis", {"horizon": 0}, "`horizon` is 0; it must be at least 1"),
        ("synthetic-linear", {"behaviour": 1.5}, "`behaviour` is 1.5"),
        ("hard-mixture", {"epsilon": 0.0}, "`epsilon` is 0.0"),
    ],
)
def test_mistakes_are_explained(name: str, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("<", ".").replace(">", ".")):
        envs.make(name, **arguments)


def test_names_have_one_line_each() -> None:
    listed = envs.names()
    expected = {"synthetic-linear", "riverswim", "riverswim-inhomogeneous", "linriver", "icu-sepsis", "gym:<id>"}
    assert expected <= set(listed)
    assert all(line and "\n" not in line for line in listed.values())
