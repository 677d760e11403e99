"""The least inner product of two terms, for people who return: all pairs of records in random small worlds.

Questions differ from person to person, so the terms of all questions are compared with each other.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.contracts.learner import Plan
from privrl.mdp.features import TableFeatures
from privrl.mdp.types import Trajectory
from privrl.statistics.mixtures import MixtureMoments
from privrl.statistics.next_states import FeatureTransitions
from privrl.statistics.regressions import WeightedTransitions

S, A, H = 3, 2, 2
REWARDS = (0.0, 1.0, 0.5, np.nan, -5.0)
STEPS = np.array([*itertools.product(range(S), range(A), range(-1, S), range(len(REWARDS)))])


def stays(states, actions, after, rewards):
    """Stays of one step, in a horizon of two."""

    def padded(x):
        return jnp.stack([jnp.asarray(x), jnp.zeros_like(jnp.asarray(x))], axis=-1)

    lengths = jnp.ones(len(states), int)
    return Trajectory(padded(states), padded(actions), padded(rewards), padded(after), lengths)


def tables():
    """Features of both signs, of a few directions, with and without a common part."""
    rng = np.random.default_rng(0)
    for shift, size, dim in itertools.product((0.0, 2.0), (1.0, 0.3), (1, 2, 3)):
        table = rng.normal(size=(S, A, dim)) + shift
        yield table * size / np.linalg.norm(table, axis=-1).max()
    yield np.eye(S * A).reshape(S, A, -1)
    yield np.broadcast_to(np.array([[[1.0], [-1.0]]]), (S, A, 1))
    yield np.stack([np.full((S, A), 0.6), np.broadcast_to([0.8, -0.8], (S, A))], axis=-1)


def least(terms, *, steps=1):
    """The smallest inner product; different steps are different entries, so stays of H steps reach H times that."""
    flat = np.asarray(terms).reshape(-1, np.prod(terms.shape[1:]))
    assert np.isfinite(flat).all()
    return steps * float(min((flat @ flat.T).min(), 0.0))  # 0 is the term of a person who does not come


@pytest.mark.parametrize("rewards", [False, True])
def test_inner_products_of_transitions_are_at_least_what_is_claimed(rewards):
    s, a, after, r = STEPS.T
    records, reached = stays(s, a, after, np.array(REWARDS)[r]), []
    for table in tables():
        features = TableFeatures(jnp.asarray(table))
        statistic = FeatureTransitions(features, H, rewards)
        found = least(jax.jit(jax.vmap(lambda x, one=statistic: one.contribution(x, None)))(records), steps=H)
        claimed = statistic.least_inner_product
        assert found >= claimed - 1e-9 and WeightedTransitions(features, H, rewards).least_inner_product == claimed
        assert claimed >= -(statistic.l2("add-remove") ** 2) * (1 + 1e-9)
        reached.append(found / claimed if claimed else 1.0)
    assert max(reached) == pytest.approx(1.0, rel=1e-9)  # and no larger number would do


@pytest.mark.parametrize("norm", [0.3, 0.7, 0.8, 1.0, 1.5])
def test_inner_products_of_mixtures_are_at_least_what_is_claimed(norm):
    """Values at the ends and the middle of their range, for features of all lengths, each under its own question."""
    rng, top, reached = np.random.default_rng(1), 2.0, []
    values = [top * np.array(x) for x in itertools.product((0.0, 0.5, 1.0), repeat=S)] + [np.array([np.nan, -1.0, 9.0])]
    asked, s, after = zip(*itertools.product(values, range(S), range(S)), strict=True)
    queries = jnp.asarray(np.repeat(np.array(asked)[:, None], H, axis=1))
    records = stays(np.array(s), np.zeros(len(s), int), np.array(after), np.zeros(len(s)))
    for dim, size in itertools.product((1, 2, 3), (0.2, 1.0, 10.0)):
        base = jnp.asarray(size * rng.normal(size=(S, A, S, dim)))
        statistic = MixtureMoments(jnp.full(H, top), S, A, base, norm)

        def term(record, query, one=statistic):
            return one.contribution(record, Plan(None, query))

        found, claimed = least(jax.jit(jax.vmap(term))(records, queries)), statistic.least_inner_product
        assert found >= claimed * (1 + 1e-9)
        reached.append(found / claimed)
    assert max(reached) > 0.9
