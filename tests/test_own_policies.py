"""Policies of classes that others define: a network on measurements, from `fit` to the report, and what is refused."""

import math
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from test_cli import call

import privrl
import privrl.testing
from privrl.audit.surface.adversarial_measurements import adversarial_measurements
from privrl.contracts import AbstractOfflineLearner, AbstractPolicy, AbstractStatistic, Declared, Solution
from privrl.contracts import policy as policies
from privrl.mdp import MeasuredPolicy, TabularPolicy, register_policy
from privrl.mdp.quadratic_features import QuadraticFeatures
from privrl.privacy.noise.bounding import clip_by_norm
from privrl.statistics import RewardSums

WORLD = privrl.envs.make("anticoagulation", horizon=4)
STEPS, HIDDEN = 5, 4


def forward(weights, x):
    inner, bias, outer, last = weights
    hidden = jnp.tanh(jnp.matmul(x, inner) + jnp.broadcast_to(bias, (*x.shape[:-1], len(bias))))
    return jnp.matmul(hidden, outer) + jnp.broadcast_to(last, (*x.shape[:-1], len(last)))


@register_policy
class NetworkPolicy(MeasuredPolicy):
    """One hidden layer on standardised measurements; practice is taken to be uniform."""

    inner: jax.Array = eqx.field(kw_only=True)
    bias: jax.Array = eqx.field(kw_only=True)
    outer: jax.Array = eqx.field(kw_only=True)
    last: jax.Array = eqx.field(kw_only=True)

    def scores(self, observation, previous=None):
        x = jnp.nan_to_num(jnp.asarray(observation, float) / 10.0)
        return forward((self.inner, self.bias, self.outer, self.last), x)


class NetworkGradient(AbstractStatistic):
    """The clipped gradient of a person's squared errors: returns predicted from the measurements and the action."""

    weights: tuple
    shape: tuple = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def contribution(self, record, query):
        taken = jnp.arange(record.actions.shape[0]) < record.length
        x, rewards = jnp.nan_to_num(record.states / 10.0), jnp.where(taken, record.rewards, 0.0)
        to_go = jnp.cumsum(rewards[::-1])[::-1]

        def loss(weights):
            Q = forward(weights, x)
            own = jnp.take_along_axis(Q, jnp.clip(record.actions, 0, Q.shape[1] - 1)[:, None], axis=1)[:, 0]
            return jnp.where(taken, (own - to_go) ** 2, 0.0).sum() / 2

        return clip_by_norm(ravel_pytree(jax.grad(loss)(self.weights))[0], 1.0)

    def l2(self, adjacency):
        return 2.0 if adjacency == "replace-one" else 1.0

    def l1(self, adjacency):
        return math.sqrt(self.shape[0]) * self.l2(adjacency)


class NetworkQ(AbstractOfflineLearner):
    """DP-SGD on whole people."""

    columns: tuple = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    @property
    def space(self):
        return len(self.columns), self.num_actions

    @property
    def measurements(self):
        return self.columns

    def bounds(self):
        return {"horizon": self.horizon, "rewards": "estimated"}

    def declare(self):
        return (Declared("gradient", times=STEPS),)

    def fit(self, ask):
        size, A = self.space
        first = np.sin(np.arange(size * HIDDEN)).reshape(size, HIDDEN) / 2
        weights = (jnp.asarray(first), jnp.zeros(HIDDEN), jnp.zeros((HIDDEN, A)), jnp.zeros(A))
        theta, back = ravel_pytree(weights)
        for _ in range(STEPS):
            theta = theta - ask("gradient", NetworkGradient(back(theta), theta.shape)).value / 1_000
        inner, bias, outer, last = back(theta)
        plain = QuadraticFeatures.unscaled(self.columns, ())
        practice = jnp.zeros((plain.dim, A)).at[0].set(1.0)
        given = (plain.centre, plain.half_width, jnp.zeros((A, plain.dim)), practice, jnp.zeros(()), jnp.zeros(()))
        return Solution(NetworkPolicy(self.columns, (), *given, inner=inner, bias=bias, outer=outer, last=last))


@pytest.fixture(scope="module")
def table():
    people = WORLD.sample(WORLD.behaviour_policy(), 3_000, jax.random.key(0))
    return privrl.data.Episodes.from_trajectories(people, features=WORLD.columns, num_actions=WORLD.num_actions)


@pytest.fixture(scope="module")
def learnt(table):
    learner = NetworkQ(WORLD.columns, WORLD.num_actions, WORLD.horizon)
    return privrl.fit(table, learner, privrl.Central(epsilon=3, delta=1e-6), evaluate=0.3, key=0)


def same(left, right):
    return all(np.array_equal(a, b) for a, b in zip(left.arrays().values(), right.arrays().values(), strict=True))


def test_a_network_on_measurements_is_evaluated_saved_loaded_and_reported(learnt, table, tmp_path: Path) -> None:
    assert type(learnt.advice) is NetworkPolicy and learnt.evaluation is not None
    folder = learnt.save(tmp_path / "policy")
    assert not (folder / "policy.json").exists(), "programs elsewhere could not run it"
    loaded = privrl.Result.load(folder)
    assert type(loaded.advice) is type(loaded.policy.advice) is NetworkPolicy
    assert same(loaded.advice, learnt.advice) and same(loaded.policy, learnt.policy)
    rows = WORLD.sample(WORLD.behaviour_policy(), 50, jax.random.key(1)).states
    np.testing.assert_array_equal(loaded.advice.choose(rows), learnt.advice.choose(rows))
    assert np.isfinite(float(WORLD.value(loaded.advice)))
    later = privrl.evaluate(table, loaded, privrl.Central(epsilon=3, delta=1e-6), key=1)
    assert type(later.policy.advice) is NetworkPolicy
    page = tmp_path / "report.html"
    done = call("report", folder, "--out", page, "--trust", __name__, "--show-withheld")
    assert done.code == 0, done.err
    assert "NetworkQ" in page.read_text() and "inr" in page.read_text().lower()


def test_save_refuses_what_load_cannot_read(learnt, tmp_path: Path) -> None:
    class Unknown(AbstractPolicy):
        weights: jax.Array

    other = privrl.Result(Unknown(jnp.ones(3)), learnt.certificate)
    with pytest.raises(TypeError, match="`Unknown` cannot be saved.*register_policy"):
        other.save(tmp_path / "policy")
    assert not (tmp_path / "policy").exists()
    register_policy(Unknown)
    found = privrl.Result.load(privrl.Result(Unknown(jnp.arange(3.0)), learnt.certificate).save(tmp_path / "policy"))
    assert type(found.policy) is Unknown and found.policy.weights.tolist() == [0.0, 1.0, 2.0]


def test_a_class_that_is_not_registered_is_named(learnt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = learnt.save(tmp_path / "policy")
    monkeypatch.setattr(policies, "_registered", {})
    with pytest.raises(ValueError, match=r"test_own_policies\.NetworkPolicy`. Import the module"):
        privrl.Result.load(folder)


@register_policy
class Noted(TabularPolicy):
    """Probabilities, and what they were made of."""

    sums: jax.Array = eqx.field(default_factory=lambda: jnp.zeros(()))


@register_policy
class Scores(AbstractPolicy):
    """Scores without probabilities: only its author can act on them."""

    sums: jax.Array


class BestSum(AbstractOfflineLearner):
    """Takes the action with the largest sum of rewards."""

    horizon: int = eqx.field(static=True)
    acts: bool = eqx.field(static=True)
    space = (3, 2)

    def bounds(self):
        return {"horizon": self.horizon, "rewards": "estimated"}

    def declare(self):
        return (Declared("rewards", RewardSums(3, 2, self.horizon, "pooled")),)

    def fit(self, ask):
        sums = ask("rewards").value
        if not self.acts:
            return Solution(Scores(sums))
        return Solution(
            Noted(TabularPolicy.greedy(jnp.broadcast_to(sums, (self.horizon, 3, 2))).probabilities, sums=sums)
        )


RIVER = privrl.envs.RiverSwim(states=3)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def test_a_subclass_of_tabular_policies_keeps_its_fields(tmp_path: Path) -> None:
    learner = BestSum(RIVER.horizon, True)
    learnt = privrl.fit(river_people(), learner, privrl.Central(**BUDGET), evaluate=0.3, key=0)
    assert type(learnt.advice) is Noted and learnt.evaluation is not None
    alone = privrl.fit(river_people(), learner, privrl.Central(**BUDGET), key=0)
    loaded = privrl.Result.load(alone.save(tmp_path / "policy"))
    assert type(loaded.policy) is Noted and same(loaded.policy, alone.policy)


def test_scores_are_learnt_and_saved_and_neither_valued_nor_chosen(tmp_path: Path) -> None:
    learnt = privrl.fit(RIVER, BestSum(RIVER.horizon, False), privrl.Central(**BUDGET), episodes=200, key=0)
    assert "value" not in learnt.report and "uniform" in learnt.report
    assert same(privrl.Result.load(learnt.save(tmp_path / "policy")).policy, learnt.policy)
    with pytest.raises(TypeError, match="not a policy on numbered states"):
        privrl.choose(river_people(), [learnt, None], **BUDGET)


def river_people():
    people = RIVER.sample(RIVER.uniform_policy(), 500, jax.random.key(0))
    return privrl.data.Episodes.from_trajectories(people, num_states=3, num_actions=2)


def test_only_policies_are_registered() -> None:
    with pytest.raises(TypeError, match="subclass of `privrl.contracts.AbstractPolicy`"):
        register_policy(QuadraticFeatures)


@pytest.mark.slow
def test_a_learner_on_measurements_is_checked_and_audited() -> None:
    """Its statistic is about an episode, and the attacked people have one each."""
    small = privrl.envs.make("anticoagulation", horizon=2)
    privrl.testing.check_learner(NetworkQ(small.columns, small.num_actions, 2), small)


class Loud(NetworkGradient):
    """Gradients that claim a third of what a person can move."""

    def l2(self, adjacency):
        return super().l2(adjacency) / 3


@pytest.mark.parametrize(("kind", "broken"), [(NetworkGradient, False), (Loud, True)])
def test_a_statistic_of_an_episode_of_measurements_is_searched(kind: type, broken: bool) -> None:
    small = privrl.envs.make("anticoagulation", horizon=2)
    size, A = len(small.columns), small.num_actions
    weights = (jnp.ones((size, HIDDEN)), jnp.zeros(HIDDEN), jnp.ones((HIDDEN, A)), jnp.zeros(A))
    statistic = kind(weights, (ravel_pytree(weights)[0].size,))
    found = privrl.audit.sensitivities(statistic, adversarial_measurements(2, small.columns, A))
    assert any(one.broken for one in found) == broken


def test_a_learner_on_measurements_needs_a_world() -> None:
    with pytest.raises(ValueError, match="learns from measurements.*Give `world`"):
        privrl.testing.check_learner(NetworkQ(WORLD.columns, WORLD.num_actions, WORLD.horizon))
