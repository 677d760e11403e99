"""Worlds that drift: the kernel of every moment, and regret against the best policy of that moment."""

import jax.numpy as jnp
import numpy as np
import pytest

from privrl import envs
from privrl.mdp.planning import optimal_value, policy_value
from privrl.mdp.types import TabularMDP, TabularPolicy

RIVER = envs.make("drifting-river", states=3, horizon=5, period=1_000)


def always(action: int) -> TabularPolicy:
    return TabularPolicy(jnp.zeros((5, 3, 2)).at[:, :, action].set(1.0))


def test_the_strokes_change_places_and_back() -> None:
    plain = np.asarray(envs.RiverSwim(states=3, horizon=5, kind="osband").mdp.transition)
    np.testing.assert_allclose(RIVER.at(0).mdp.transition, plain)
    np.testing.assert_allclose(RIVER.at(500).mdp.transition, plain[:, :, ::-1], atol=1e-12)
    np.testing.assert_allclose(RIVER.at(1_000).mdp.transition, plain, atol=1e-12)
    quarter = np.asarray(RIVER.at(250).mdp.transition)
    np.testing.assert_allclose(quarter, (plain + plain[:, :, ::-1]) / 2, atol=1e-12)
    np.testing.assert_allclose(np.asarray(RIVER.at(137).mdp.transition).sum(axis=-1), 1.0)


def test_regret_is_against_the_best_of_the_moment() -> None:
    assert float(RIVER.at(0).regret(always(1))) < 1e-3 < float(RIVER.at(0).regret(always(0)))
    assert float(RIVER.at(500).regret(always(0))) == pytest.approx(float(RIVER.at(0).regret(always(1))))
    own = RIVER.mdp.transition
    for seen in (0, 130, 500):
        w = (1 - np.cos(2 * np.pi * seen / 1_000)) / 2
        world = TabularMDP((1 - w) * own + w * own[:, :, ::-1], RIVER.mdp.reward, RIVER.mdp.initial, 5)
        found = float(RIVER.at(seen).regret(always(1)))
        assert found == pytest.approx(float(optimal_value(world) - policy_value(world, always(1))), abs=1e-12)


def test_regret_of_a_fixed_policy_over_all_people() -> None:
    """Against a sum over every single person; without a drift, people times the loss of one."""
    each = sum(float(RIVER.at(n).regret(always(1))) for n in range(0, 1_000, 10)) * 10
    assert RIVER.total_regret(always(1), 1_000) == pytest.approx(each, rel=1e-3)
    still = envs.RiverSwim(states=3, horizon=5, kind="osband")
    assert still.at(77) is still
    assert still.total_regret(always(0), 50) == pytest.approx(50 * float(still.regret(always(0))))


def test_refusals() -> None:
    with pytest.raises(ValueError, match="`period` is 0"):
        envs.make("drifting-river", period=0)
