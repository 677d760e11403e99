import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mdp.worlds import random_policy, random_world

from privrl.mdp.planning import occupancy, optimal_value, optimal_values, policy_value, policy_values
from privrl.mdp.types import TabularMDP, TabularPolicy


def by_paths(mdp: TabularMDP, policy: TabularPolicy) -> tuple[float, np.ndarray]:
    """Value and occupancy by adding up every path, in plain Python."""
    P, r, pi = np.asarray(mdp.transition), np.asarray(mdp.reward), np.asarray(policy.probabilities)
    H, S, A = pi.shape
    value, taken = 0.0, np.zeros((H, S, A))
    for states in itertools.product(range(S), repeat=H):
        for actions in itertools.product(range(A), repeat=H):
            g = [h if len(P) > 1 else 0 for h in range(H)]
            chance = float(mdp.initial[states[0]])
            for h in range(H):
                chance *= pi[h, states[h], actions[h]]
                if h + 1 < H:
                    chance *= P[g[h], states[h], actions[h], states[h + 1]]
            value += chance * sum(r[g[h], states[h], actions[h]] for h in range(H))
            for h in range(H):
                taken[h, states[h], actions[h]] += chance
    return value, taken


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_value_and_occupancy_match_the_sum_over_all_paths(seed: int, stationary: bool) -> None:
    mdp = random_world(seed, stationary=stationary)
    policy = random_policy(seed, mdp)
    value, taken = by_paths(mdp, policy)
    assert float(policy_value(mdp, policy)) == pytest.approx(value, abs=1e-12)
    np.testing.assert_allclose(occupancy(mdp, policy), taken, atol=1e-12)


@pytest.mark.parametrize("stationary", [True, False])
def test_optimal_value_is_the_best_of_all_deterministic_policies(stationary: bool) -> None:
    mdp = random_world(3, stationary=stationary)
    H, S, A = 3, 2, 2
    choices = np.array(list(itertools.product(range(A), repeat=H * S))).reshape(-1, H, S)
    values = jax.jit(jax.vmap(lambda p: policy_value(mdp, TabularPolicy(p))))(jnp.asarray(np.eye(A)[choices]))
    assert float(optimal_value(mdp)) == pytest.approx(float(values.max()), abs=1e-12)


def test_greedy_policy_of_optimal_action_values_has_no_regret() -> None:
    mdp = random_world(5, H=6, S=4, A=3)
    V, Q = optimal_values(mdp)
    greedy = TabularPolicy.greedy(Q)
    assert V.shape == (7, 4) and not V[-1].any()
    np.testing.assert_allclose(V, policy_values(mdp, greedy), atol=1e-12)
    assert abs(float(optimal_value(mdp) - policy_value(mdp, greedy))) < 1e-12
    assert float(optimal_value(mdp) - policy_value(mdp, random_policy(5, mdp))) > 1e-3


def test_a_stationary_world_equals_its_copies_over_stages() -> None:
    mdp = random_world(7, H=5, S=3, A=2, stationary=True)
    copies = TabularMDP(jnp.repeat(mdp.transition, 5, 0), jnp.repeat(mdp.reward, 5, 0), mdp.initial, 5)
    policy = random_policy(7, mdp)
    np.testing.assert_allclose(policy_values(mdp, policy), policy_values(copies, policy), atol=1e-14)
    np.testing.assert_allclose(optimal_values(mdp)[1], optimal_values(copies)[1], atol=1e-14)
    np.testing.assert_allclose(occupancy(mdp, policy), occupancy(copies, policy), atol=1e-14)


def test_planning_runs_in_float64_under_jit_and_vmap() -> None:
    mdp = random_world(9)
    policies = jax.vmap(TabularPolicy)(jnp.stack([random_policy(i, mdp).probabilities for i in range(4)]))
    values = jax.jit(jax.vmap(policy_value, in_axes=(None, 0)))(mdp, policies)
    one_by_one = [float(policy_value(mdp, random_policy(i, mdp))) for i in range(4)]
    assert values.dtype == jnp.float64
    np.testing.assert_allclose(values, one_by_one, atol=1e-14)
