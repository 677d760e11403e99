"""The walk on the interval: its mesh by hand, its values against the paper's and against the continuous walk."""

import numpy as np
import pytest

from privrl import envs

OPTIMAL, RANDOM = 20.70833, 10.86059  # on ever finer meshes


def walk(episodes: int, policy: str, seed: int) -> np.ndarray:
    """Returns of the continuous walk, step by step in NumPy."""
    rng = np.random.default_rng(seed)
    place, paid = rng.uniform(size=episodes), np.zeros(episodes)
    for _ in range(50):
        right = place < 0.5 if policy == "to the middle" else rng.uniform(size=episodes) < 0.5
        move = rng.uniform(0, 0.25, size=episodes)
        place = np.clip(place + np.where(right, move, -move), 0, 1)
        paid += 0.5 - np.abs(place - 0.5)
    return paid


def test_reference_values() -> None:
    env = envs.make("interval-walk")
    assert (env.num_states, env.num_actions, env.horizon) == (129, 2, 50)
    assert float(env.optimal_value) == pytest.approx(20.7063, abs=5e-5)
    assert float(env.value(env.uniform_policy())) == pytest.approx(10.8597, abs=5e-5)
    assert round(float(env.optimal_value), 2) == 20.71 and round(float(env.value(env.uniform_policy())), 2) == 10.86


def test_the_lattice_error_falls_by_four_per_level() -> None:
    coarse, fine = (envs.IntervalWalk(depth=depth) for depth in (6, 7))
    for value, limit in (
        (lambda env: float(env.optimal_value), OPTIMAL),
        (lambda env: float(env.value(env.uniform_policy())), RANDOM),
    ):
        assert limit - value(fine) == pytest.approx((limit - value(coarse)) / 4, rel=0.02)


@pytest.mark.parametrize(("policy", "limit"), [("to the middle", OPTIMAL), ("random", RANDOM)])
def test_values_are_those_of_the_continuous_walk(policy: str, limit: float) -> None:
    """|z| < 4.5; the best policy is to walk to the middle."""
    returns = walk(20_000, policy, seed=5)
    assert abs(returns.mean() - limit) < 4.5 * returns.std() / np.sqrt(len(returns))


def test_moves_by_hand() -> None:
    """Eight cells: moves of 0, 1, 2 cells with probabilities 1/4, 1/2, 1/4; who would leave stops at the end."""
    P = np.asarray(envs.IntervalWalk(depth=3).mdp.transition)[0]
    np.testing.assert_allclose(P[4, 1, 4:7], [0.25, 0.5, 0.25])
    np.testing.assert_allclose(P[4, 0, 2:5], [0.25, 0.5, 0.25])
    np.testing.assert_allclose(P[7, 1, 7:], [0.25, 0.75])
    np.testing.assert_allclose(P[8, 1], np.eye(9)[8])
    np.testing.assert_allclose(P[:, 0], P[::-1, 1, ::-1])
    first = np.asarray(envs.IntervalWalk(depth=3).mdp.initial)
    np.testing.assert_allclose(first, np.r_[1, np.full(7, 2), 1] / 16)


def test_features_are_tents() -> None:
    env = envs.IntervalWalk(depth=4, knots=5)
    table = np.asarray(env.features.table)
    assert table.shape == (17, 2, 10)
    np.testing.assert_allclose(table.sum(axis=-1), 1.0)
    np.testing.assert_allclose(table[4, 0], np.eye(10)[1])
    np.testing.assert_allclose(table[6, 1], [0, 0, 0, 0, 0, 0, 0.5, 0.5, 0, 0])


@pytest.mark.parametrize("arguments", [{"depth": 1}, {"depth": 11}, {"horizon": 0}, {"knots": 1}])
def test_bad_arguments_are_explained(arguments: dict) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(arguments))}` is"):
        envs.IntervalWalk(**arguments)
