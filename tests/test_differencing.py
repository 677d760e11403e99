"""The differencing attack: no better than chance where noise is fresh, and it can find everybody.

Quick tests hold the best attack on a sequence of releases against the same noise, in `audit/test_empirical.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from differencing import differencing

import privrl
from privrl.learners.linear.lsvi_ucb import LSVIUCB
from privrl.learners.linear.lsvi_ucb_plus_plus import LSVIUCBPlusPlus
from privrl.learners.linear.lsvi_ucb_unweighted import LuyoLSVIUCB, NgoLSVIUCB
from privrl.learners.published_noise import lsvi_noise
from privrl.mdp.features import TableFeatures
from privrl.mdp.types import TabularMDP
from privrl.privacy.accounting.gdp import zcdp_rho
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import PairingError
from privrl.privacy.trust.published import Published
from privrl.statistics.regressions import Grams, pack

H, S, A, D, USERS = 2, 3, 4, 5, 400


def world():
    """A linear world whose 12 features are far apart."""
    rng = np.random.default_rng(0)
    phi = rng.dirichlet(np.full(D, 0.3), size=(S, A))
    P = phi @ rng.dirichlet(np.ones(S), size=D)
    mdp = TabularMDP(
        jnp.asarray((P / P.sum(-1, keepdims=True))[None]),
        jnp.asarray(rng.uniform(size=(1, S, A))),
        jnp.full(S, 1 / S),
        H,
    )
    features = TableFeatures(jnp.asarray(phi))
    return privrl.envs.Env(mdp, features, jnp.full((S, A), 1 / A), "differencing")


def published(learner, rho):
    continual = "fresh" if learner.fresh_grams else "tree"
    return Published(lsvi_noise, "sahu", rho=rho, continual=continual)


LEARNERS = {
    "dp-lsvi-ucb++@paper": lambda env: LSVIUCBPlusPlus.paper(env.features, H, rewards=env.rewards),
    "dp-lsvi-ucb-luyo@paper": lambda env: LuyoLSVIUCB(env.features, H, rewards=env.rewards, block=1),
    "dp-lsvi-ucb-ngo@paper": lambda env: NgoLSVIUCB(env.features, H, rewards=env.rewards, most_switches=USERS),
    "dp-lsvi-ucb": lambda env: LSVIUCB(env.features, H, env.rewards, every_episode=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_differences_of_fresh_releases_say_nothing_about_the_user_in_between(name):
    """At epsilon = 1, users released one by one (the worst schedule): right at most twice as often as by chance.

    Chance is the same guesses held against shuffled users: neither features nor users are spread evenly over the 12
    pairs. It is about 1/10, so of 399 guesses 40 with standard deviation 6, and twice that is over 6 of them away. (A
    few more than by chance are right without any leak: the policy of a user is made from noise that is public.)
    """
    env = world()
    learner = LEARNERS[name](env)
    assert len(learner.blocks(USERS)) == USERS
    rho = zcdp_rho(1.0, 1e-5)
    privatizer = published(learner, rho) if name.endswith("@paper") else privrl.Central(rho=rho)
    report = differencing(env, learner, privatizer, users=USERS, key=jax.random.key(0))
    assert not report.broken
    assert report.success <= 2 * report.chance <= 3 / (S * A)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dp-lsvi-ucb++@paper", "dp-lsvi-ucb"])
def test_the_attack_finds_everybody_where_there_is_no_noise_to_speak_of(name):
    """The same attack at an absurd budget: it is the noise that protects, not the attacker's weakness."""
    env = world()
    learner = LEARNERS[name](env)
    privatizer = published(learner, 1e9) if name.endswith("@paper") else privrl.Central(rho=1e9)
    report = differencing(env, learner, privatizer, users=USERS, key=jax.random.key(0))
    assert report.success >= 0.99 and report.broken
    assert report.to_json() == {"users": USERS, "success": report.success, "chance": report.chance, "broken": True}


def test_the_attack_finds_everybody_in_the_printed_algorithm():
    """[sahu A1:1,26] as printed: one K_1 is drawn, and the same K_1 is added for every user.

    A difference is a user's term plus K_1. Guess the first user's term: that gives K_1, hence everybody's term; the
    right guess is the one under which every difference is a feature's.
    """
    env, statistic = world(), Grams(world().features, 1)
    rng = np.random.default_rng(1)
    true = rng.integers(S * A, size=USERS)
    outer = np.asarray(pack(jnp.einsum("kd,ke->kde", *[env.features.table.reshape(-1, D)] * 2)))
    Z = rng.normal(scale=np.sqrt(4 * H * USERS / 4.0), size=(D, D))  # variance 1/(4 rho_0), rho = 1
    K_1 = np.asarray(pack(jnp.asarray((Z + Z.T) / np.sqrt(2))))
    assert outer.shape[1:] == statistic.shape[1:]
    releases = np.cumsum(outer[true] + K_1, axis=0)
    differences = np.diff(releases, axis=0, prepend=0.0)

    def explain(noise):
        distance = (((differences - noise)[:, None] - outer) ** 2).sum(axis=-1)
        return distance.min(axis=1).sum(), distance.argmin(axis=1)

    _, guess = min((explain(differences[0] - one) for one in outer), key=lambda found: found[0])
    assert (guess == true).mean() >= 0.99


def test_schedules_and_channels_that_the_attack_does_not_suit_are_refused():
    env = privrl.audit.tiny_world(2, 2, 2)
    learner = privrl.UCBVI(env.rewards, 2)
    with pytest.raises(PairingError, match="after every user"):
        differencing(env, learner, privrl.Central(rho=1.0), users=200, key=jax.random.key(0))
    single = privrl.UCBVI(env.rewards, 2, first_block=1, growth=1.0001)
    with pytest.raises(PairingError, match="reports"):
        differencing(env, single, privrl.Local(epsilon=1.0), users=5, key=jax.random.key(0))


@pytest.mark.slow
def test_starting_again_draws_nothing_again(tmp_path):
    """The quick tests see that a second fit reads what the first released in `test_durable.py`."""
    env = privrl.audit.tiny_world(2, 3, 2)
    learner = privrl.APVI(3, 2, 2)
    data = privrl.audit.worlds.data_of(env, learner, 50, jax.random.key(0))
    private = privrl.Central(epsilon=0.5, delta=1e-5)
    kept = []
    for _ in range(3):
        with ReleaseStore(tmp_path / "study.db") as store:
            kept.append(privrl.fit(data, learner, private, store=store).policy.probabilities)
    assert np.array_equal(kept[0], kept[1]) and np.array_equal(kept[0], kept[2])
    # New noise would show: another study gives another policy, in at least one of several.
    policies = [privrl.fit(data, learner, private).policy.probabilities for _ in range(4)]
    assert any(not np.array_equal(policies[0], other) for other in policies[1:])
