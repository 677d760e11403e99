"""A world behind a table: exact values against enumeration and sampling, and what practice hides."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.envs.zoo.hidden_severity import HiddenSeverity
from privrl.envs.zoo.hidden_state import HiddenEnv
from privrl.mdp.types import TabularPolicy


@pytest.fixture(scope="module")
def tiny() -> HiddenEnv:
    """Two signs of two bins, two severities, two doses, two steps: 10 full states recorded as 6."""
    return HiddenSeverity("2x2", 2, 2, horizon=2, seed=3)


@pytest.fixture(scope="module")
def table() -> HiddenEnv:
    return HiddenSeverity()


def by_enumeration(env: HiddenEnv, policy: TabularPolicy) -> float:
    """The value of a policy on recorded states, summed over every path of full states."""
    P, seen = np.asarray(env.full.mdp.transition)[0], np.asarray(env.observation)
    paid, pi = np.asarray(env.full.arrival), np.asarray(policy.probabilities)
    X, A = P.shape[:2]
    total = 0.0
    for first in np.flatnonzero(np.asarray(env.full.mdp.initial)):
        paths = [(int(first), float(env.full.mdp.initial[first]), 0.0)]
        for h in range(env.horizon):
            paths = [
                (y, p * pi[h, seen[x], a] * P[x, a, y], r + (0.0 if x in env.full.terminal else paid[y]))
                for x, p, r in paths
                for a, y in itertools.product(range(A), range(X))
                if P[x, a, y] > 0
            ]
        total += sum(p * r for _, p, r in paths)
    return total


def test_values_are_sums_over_paths(tiny: HiddenEnv) -> None:
    rng = np.random.default_rng(0)
    for _ in range(3):
        policy = TabularPolicy(jnp.asarray(rng.dirichlet(np.ones(2), size=(2, 6))))
        assert float(tiny.value(policy)) == pytest.approx(by_enumeration(tiny, policy), abs=1e-12)


def test_no_change_at_one_step_improves_the_best_policy(tiny: HiddenEnv) -> None:
    best, value_of = tiny.best_policy(), jax.jit(lambda pi: tiny.value(TabularPolicy(pi)))
    value = float(value_of(best.probabilities))
    for h, choices in itertools.product(range(2), itertools.product(range(2), repeat=4)):
        changed = np.array(best.probabilities)
        changed[h, :4] = np.eye(2)[list(choices)]
        assert float(value_of(changed)) <= value + 1e-12
    ends = np.full((2, 2, 2), 0.5)
    every = [
        float(value_of(np.concatenate([np.eye(2)[np.reshape(choices, (2, 4))], ends], axis=1)))
        for choices in itertools.product(range(2), repeat=8)
    ]
    assert value <= max(every) + 1e-12 <= float(tiny.optimal_value) + 2e-12
    assert value >= float(tiny.value(tiny.mode_policy())) - 1e-12


def test_stays_are_recorded_without_severity(table: HiddenEnv) -> None:
    stays = table.sample(table.behaviour_policy(), 20_000, jax.random.key(0))
    returns = np.asarray(stays.rewards).sum(axis=1)
    assert abs(returns.mean() - float(table.value(table.behaviour_policy()))) < 4.5 * returns.std() / np.sqrt(20_000)
    taken = np.arange(table.horizon) < np.asarray(stays.length)[:, None]
    states, actions = np.asarray(stays.states)[taken], np.asarray(stays.actions)[taken]
    assert states.max() < 108 and np.asarray(stays.next_states).max() == 109
    count = np.zeros((110, 5))
    np.add.at(count, (states, actions), 1)
    often = count.sum(axis=1) > 2000
    frequency = count[often] / count[often].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(frequency, np.asarray(table.behaviour)[often], atol=0.05)


@pytest.mark.slow
def test_the_table_of_108_cells_is_as_hard_as_the_one_it_stands_for(table: HiddenEnv) -> None:
    """Practice .901, its most frequent action .927, practice drawn again by cell .885, the best dose .952."""
    measured = {
        0.901: table.behaviour_policy(),
        0.927: table.mode_policy(),
        0.885: table.recorded_policy(),
        0.952: table.best_policy(),
    }
    for known, policy in measured.items():
        assert float(table.value(policy)) == pytest.approx(known, abs=0.006)


def test_within_a_cell_the_treated_die_more_where_doses_follow_severity() -> None:
    """The same people, doses at random: treatment does not look harmful."""

    def slope(follows: float) -> float:
        env = HiddenSeverity(follows=follows)
        stays = env.sample(env.behaviour_policy(), 40_000, jax.random.key(1))
        taken = np.arange(env.horizon) < np.asarray(stays.length)[:, None]
        cell, dose = np.asarray(stays.states)[taken], np.asarray(stays.actions)[taken].astype(float)
        lived = np.repeat(np.asarray(stays.rewards).sum(axis=1), np.asarray(stays.length))
        seen = np.bincount(cell, minlength=110)
        centred = [x - (np.bincount(cell, x, 110) / np.maximum(seen, 1))[cell] for x in (dose, lived)]
        return float(centred[0] @ centred[1] / (centred[0] @ centred[0]))

    assert slope(1.0) < -0.005 and slope(0.0) > 0.002


def test_broken_promises_are_refused(tiny: HiddenEnv) -> None:
    def build(**changes: object) -> HiddenEnv:
        names = ("full", "observation", "num_states", "name", "terminal", "arrival")
        return HiddenEnv(**({name: getattr(tiny, name) for name in names} | changes))

    with pytest.raises(ValueError, match="`observation` .* 10 states below 3"):
        build(num_states=3)
    with pytest.raises(ValueError, match="exactly the ends"):
        build(terminal=(4,))
    with pytest.raises(ValueError, match="`arrival`"):
        build(arrival=jnp.ones(6))
    with pytest.raises(ValueError, match="`signs` is 'many'; give the bins"):
        HiddenSeverity("many")
    with pytest.raises(ValueError, match="`follows` is 2"):
        HiddenSeverity("2x2", follows=2)


def test_a_world_crosses_jit(tiny: HiddenEnv) -> None:
    value = eqx.filter_jit(lambda env, policy: env.value(policy))(tiny, tiny.uniform_policy())
    assert float(value) == pytest.approx(float(tiny.value(tiny.uniform_policy())), abs=1e-14)
