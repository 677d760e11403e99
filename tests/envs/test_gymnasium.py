import gymnasium
import numpy as np
import pytest

from privrl import envs
from privrl.mdp.planning import optimal_values


def plain_optimum(id: str, H: int, **arguments) -> float:
    """Finite-horizon optimal return straight from Gymnasium's table, with its own early endings."""
    env = gymnasium.make(id, **arguments).unwrapped
    V = dict.fromkeys(env.P, 0.0)
    for _ in range(H):
        V = {
            s: max(sum(p * (r + (0.0 if done else V[t])) for p, t, r, done in out) for out in env.P[s].values())
            for s in env.P
        }
    return float(sum(p * V[s] for s, p in enumerate(env.initial_state_distrib)))


@pytest.mark.parametrize("arguments", [{}, {"map_name": "8x8"}, {"is_slippery": False}])
def test_frozen_lake_is_exact(arguments: dict) -> None:
    env = envs.make("gym:FrozenLake-v1", horizon=25, **arguments)
    assert float(env.optimal_value) == pytest.approx(plain_optimum("FrozenLake-v1", 25, **arguments), abs=1e-12)


def test_frozen_lake_ends_in_its_holes_and_pays_at_the_goal() -> None:
    env = envs.FromGymnasium("FrozenLake-v1")
    assert env.terminal == (5, 7, 11, 12, 15) and env.num_states == 16
    np.testing.assert_array_equal(env.arrival, np.eye(16)[15])


@pytest.mark.parametrize(("id", "low", "high"), [("CliffWalking-v1", -100.0, 0.0), ("Taxi-v4", -10.0, 20.0)])
def test_rescaled_rewards_keep_the_returns_of_worlds_that_end_early(id: str, low: float, high: float) -> None:
    H = 20
    env = envs.FromGymnasium(id, horizon=H)
    exact = plain_optimum(id, H)
    assert float(env.optimal_value) * (high - low) + H * low == pytest.approx(exact, abs=1e-9)
    assert env.terminal == () and env.arrival is None


def test_a_state_that_ends_only_sometimes_gets_an_extra_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Action 0 moves 0 -> 1 without ending, action 1 moves 0 -> 1 and ends; state 1 pays .5 per step."""
    table = {
        0: {0: [(1.0, 1, 0.0, False)], 1: [(1.0, 1, 0.25, True)]},
        1: {0: [(1.0, 1, 0.5, False)], 1: [(1.0, 1, 0.5, False)]},
    }
    monkeypatch.setattr(
        "privrl.envs.tabular.gymnasium_world._load", lambda id, arguments: (table, np.array([1.0, 0.0]))
    )
    env = envs.FromGymnasium("Toy-v0", horizon=3)
    assert env.num_states == 3 and env.terminal == (2,)
    Q = optimal_values(env.mdp)[1]
    np.testing.assert_allclose(Q[0, 0], [1.0, 0.25], atol=1e-15)


def test_worlds_that_are_not_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="no transition table `P`"):
        envs.make("gym:CartPole-v1")
    with pytest.raises(ValueError, match="Gymnasium cannot make `FrozenLak-v1`"):
        envs.make("gym:FrozenLak-v1")
