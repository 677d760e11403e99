"""Each world against numbers worked out by hand or given in the papers and measurements."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl import envs
from privrl.envs.tabular import icu_sepsis
from privrl.envs.tabular.hard_mixture import HardMixture
from privrl.mdp.types import TabularPolicy

ALL = [
    ("synthetic-linear", {}),
    ("riverswim", {}),
    ("riverswim", {"kind": "osband", "states": 6, "horizon": 20}),
    ("riverswim-inhomogeneous", {}),
    ("linriver", {}),
    ("drifting-river", {}),
    ("hard-mixture", {}),
    ("gym:FrozenLake-v1", {}),
]


def always(env: envs.Env, action: int) -> TabularPolicy:
    return TabularPolicy(jnp.zeros((env.horizon, env.num_states, env.num_actions)).at[:, :, action].set(1.0))


@pytest.mark.parametrize(("name", "arguments"), ALL)
@pytest.mark.parametrize("seed", [0, 3])
def test_every_world_is_proper(name: str, arguments: dict, seed: int) -> None:
    env = envs.make(name, seed=seed, **arguments)
    P, r = np.asarray(env.mdp.transition), np.asarray(env.rewards)
    S, A, H = env.num_states, env.num_actions, env.horizon
    assert P.shape == (1 if env.stationary else H, S, A, S) and r.shape == P.shape[:3]
    assert P.min() >= 0 and np.abs(P.sum(axis=-1) - 1).max() < 1e-12
    assert r.min() >= 0 and r.max() <= 1 + 1e-12
    table = np.asarray(env.features.table)
    assert table.shape == (S, A, env.features.dim)
    assert np.linalg.norm(table, axis=-1).max() <= 1 + 1e-12
    assert env.seed == seed and env.name == name
    again = envs.make(env.name, seed=env.seed, **dict(env.arguments))
    np.testing.assert_array_equal(again.mdp.transition, env.mdp.transition)


@pytest.mark.parametrize("name", ["synthetic-linear", "riverswim-inhomogeneous", "linriver", "hard-mixture"])
def test_seeds_are_instances(name: str) -> None:
    kernels = [np.asarray(envs.make(name, seed=seed).mdp.transition) for seed in (0, 1)]
    assert not np.allclose(*kernels)


def test_riverswim_strehl_by_hand() -> None:
    """Two states, two steps: right, right reaches the reward 1/2 with probability .3; left pays .0025 per step."""
    env = envs.RiverSwim(states=2, horizon=2)
    assert float(env.value(always(env, 1))) == pytest.approx(0.3 * 0.5)
    assert float(env.value(always(env, 0))) == pytest.approx(2 * 0.0025)
    # The best: right; then right if it worked, and left (.0025) if not.
    assert float(env.optimal_value) == pytest.approx(0.3 * 0.5 + 0.7 * 0.0025)
    np.testing.assert_allclose(env.mdp.transition[0, 1, 1], [0.7, 0.3])
    np.testing.assert_allclose(envs.RiverSwim(states=3).mdp.transition[0, 1, 1], [0.1, 0.6, 0.3])
    assert envs.RiverSwim(states=5).horizon == 10


def test_riverswim_osband_by_hand() -> None:
    env = envs.RiverSwim(states=2, horizon=2, kind="osband")
    assert float(env.value(always(env, 1))) == pytest.approx(0.6)
    assert float(env.optimal_value) == pytest.approx(0.6 + 0.4 * 0.005)
    env = envs.RiverSwim(states=3, kind="osband")
    assert env.horizon == 20
    np.testing.assert_allclose(env.mdp.transition[0, :, 1], [[0.4, 0.6, 0], [0.05, 0.6, 0.35], [0, 0.4, 0.6]])
    np.testing.assert_allclose(env.mdp.transition[0, :, 0], [[1, 0, 0], [1, 0, 0], [0, 1, 0]])
    np.testing.assert_allclose(env.rewards[0], [[0.005, 0], [0, 0], [0, 1]])


def test_riverswim_inhomogeneous_moves_by_its_current() -> None:
    env = envs.RiverSwimInhomogeneous(states=4, seed=2)
    P = np.asarray(env.mdp.transition)
    p = P[:, 1, 1, 2]
    assert env.horizon == 8 and not env.stationary
    assert np.all((p >= 0.8) & (p <= 1)) and len(np.unique(p)) == 8
    np.testing.assert_allclose(P[:, 1, 1, 0], 1 - p)
    np.testing.assert_allclose(P[:, 0, 1], np.stack([1 - p, p, 0 * p, 0 * p], axis=1))
    np.testing.assert_allclose(P[:, 3, 1, 3], p)
    np.testing.assert_allclose(P[:, 2, 0, 1], 1.0)


def test_linriver_follows_its_definition() -> None:
    """Along the hidden direction the swimmer goes right with .6 and never left; against it, left with .3."""
    env = envs.LinRiver(seed=4)
    P = np.asarray(env.mdp.transition)
    assert (env.num_states, env.num_actions, env.features.dim, env.horizon) == (5, 16, 25, 20)
    np.testing.assert_allclose(np.linalg.norm(env.features.table, axis=-1), 1.0)
    right, left = P[:, 2, :, 3], P[:, 2, :, 1]
    np.testing.assert_allclose(np.sort(np.unique(right.round(12))), 0.6 * np.arange(5) / 4, atol=1e-12)
    np.testing.assert_allclose(left, 0.3 * (1 - right / 0.6), atol=1e-12)
    assert np.all((right.round(12) == 0.6).sum(axis=1) == 1)
    np.testing.assert_allclose(P[:, 4, :, 4], 1 - left, atol=1e-12)
    np.testing.assert_allclose(P[:, 0, :, 0], 1 - right, atol=1e-12)
    np.testing.assert_allclose(env.rewards, np.broadcast_to(np.array([0.005, 0, 0, 0, 1])[None, :, None], (20, 5, 16)))
    assert float(env.value(env.uniform_policy())) < 0.3 * float(env.optimal_value)
    assert float(env.value(env.myopic_policy())) == pytest.approx(float(env.value(env.uniform_policy())))


def test_synthetic_linear_matches_what_was_measured() -> None:
    """Instance 0: total regret over 1000 episodes 5232 (uniform) and 98 (myopic)."""
    env = envs.SyntheticLinear()
    assert round(1000 * float(env.regret(env.uniform_policy()))) == 5232
    assert round(1000 * float(env.regret(env.myopic_policy()))) == 98
    assert np.linalg.norm(env.features.table, axis=-1).max() == pytest.approx(1.0)  # tight: sqrt 7 is reached
    np.testing.assert_allclose(env.behaviour[:, 0], 0.6)
    np.testing.assert_allclose(env.behaviour[:, 1:], 0.4 / 99)


def test_synthetic_linear_by_hand() -> None:
    """Action 37 = 00100101 in state 1 (delta = 1): reward r/8 (bit 3) + 0 (bit 6) + 0 (bit 8) + r/2."""
    env = envs.SyntheticLinear(seed=1)
    rng = np.random.default_rng(1)
    alpha, r = rng.uniform(size=(20, 2)), rng.uniform(size=20)
    np.testing.assert_allclose(env.rewards[:, 1, 37], r / 8 + r / 2, atol=1e-12)
    np.testing.assert_allclose(env.mdp.transition[:, 1, 37, 0], alpha[:, 0], atol=1e-12)
    np.testing.assert_allclose(env.rewards[:, 1, 0], 0.5 - r / 2, atol=1e-12)
    np.testing.assert_allclose(env.mdp.transition[:, 1, 0, 0], alpha[:, 1], atol=1e-12)
    np.testing.assert_allclose(env.mdp.transition[:, 0, 0, 0], alpha[:, 0], atol=1e-12)


def test_hard_mixture_is_the_lower_bound_instance() -> None:
    H, d, eps, K = 6, 3, 1.0, 10_000
    env = HardMixture(d, H, eps, K, seed=5)
    gap = np.sqrt(1 / H) / (2 * (np.e - 1) * np.sqrt(K))
    goal = np.asarray(env.mdp.transition)[np.arange(H), np.arange(H), :, H + 1]
    expected = 1 / H + gap * np.array([-2, 0, 0, 2])
    np.testing.assert_allclose(np.sort(goal, axis=1), np.broadcast_to(expected, (H, 4)), atol=1e-12)
    with pytest.raises(ValueError, match="Use more `episodes`"):
        HardMixture(d, H, eps, episodes=2)
    # At the printed condition T >= 4 d^2 H/(..) the kernel is improper; with H^2 it is proper.
    d, H = 4, 40
    scale = 4 * d**2 / (4 * np.expm1(eps) ** 2)
    with pytest.raises(ValueError, match="probabilities"):
        HardMixture(d, H, eps, episodes=int(np.ceil(scale)))
    HardMixture(d, H, eps, episodes=int(np.ceil(scale * H)))


def test_icu_sepsis_has_the_known_values() -> None:
    env = envs.ICUSepsis()
    assert (env.num_states, env.num_actions, env.horizon, env.terminal) == (716, 25, 20, (713, 714, 715))
    values = {
        "optimal": env.optimal_value,
        "expert": env.value(env.behaviour_policy()),
        "uniform": env.value(env.uniform_policy()),
        "mode": env.value(env.mode_policy()),
    }
    rounded = {name: round(float(value), 4) for name, value in values.items()}
    assert rounded == {"optimal": 0.7922, "expert": 0.6920, "uniform": 0.6854, "mode": 0.7056}
    stays = env.sample(env.behaviour_policy(), 4000, jax.random.key(0))
    returns = np.asarray(stays.rewards.sum(axis=-1))
    assert set(np.unique(returns)) == {0.0, 1.0}  # survival is paid as it happens, not on average
    assert abs(returns.mean() - 0.6920) < 4.5 * np.sqrt(0.25 / 4000)
    taken = np.arange(20) < np.asarray(stays.length)[:, None]
    assert np.asarray(stays.states)[taken].max() < 713 and not np.asarray(stays.rewards)[~taken].any()


def test_icu_sepsis_numbers_are_the_published_ones() -> None:
    """The three arrays as version 2.0.1 of the `icu-sepsis` package has them, to the last bit."""
    digests = [hashlib.sha256(array.tobytes()).hexdigest() for array in icu_sepsis._published()]
    assert digests == [
        "092fea86db85107891cff4311da24e515065fef0a3e37acb38e184776255b1b7",
        "5dda8806d66475a7dc99e8ce732ac4a849004bfbb38eb8f09608a657bc9a9ff6",
        "39135ca91567cbcd38ade4eda7b0df84a9aba940ede3986a21dc328a24a20278",
    ]


@pytest.mark.parametrize("name", ["random-world", "combination-lock"])
def test_a_kernel_changes_from_step_to_step_if_asked(name: str) -> None:
    same, changing = envs.make(name, seed=1), envs.make(name, seed=1, kernel="changing")
    assert same.stationary and not changing.stationary
    P = np.asarray(changing.mdp.transition)
    np.testing.assert_allclose(P.sum(axis=-1), 1.0)
    assert len(P) == changing.horizon and (P[0] != P[1]).any()
    with pytest.raises(ValueError, match="'same' or 'changing'"):
        envs.make(name, kernel="other")
