"""PEVI against a plain rendering over episodes, and what it costs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_data, tiny_world

import privrl
from privrl.learners.linear.pevi import PEVI
from privrl.learners.linear.vapvi import VAPVI
from privrl.mdp.features import TableFeatures
from privrl.privacy.trust.privatizers import PairingError

H = 4


@pytest.fixture(scope="module")
def data():
    return tiny_data(tiny_world(), 60)


def random_features(seed=2):
    phi = np.random.default_rng(seed).normal(size=(3, 2, 5))
    return TableFeatures(jnp.asarray(phi / np.linalg.norm(phi, axis=-1, keepdims=True)))


def plain_pevi(episodes, phi, bonus, ridge):
    """Jin, Yang and Wang's Algorithm 2 episode by episode, centred as in the module docstring."""
    S, A, d = phi.shape
    V, Qs = np.zeros(S), np.zeros((H, S, A))
    for h in reversed(range(H)):
        m = (V.min() + V.max() + 1) / 2
        Lambda, b = ridge * np.eye(d), np.zeros(d)
        for k in range(len(episodes.length)):
            f = phi[episodes.states[k, h], episodes.actions[k, h]]
            Lambda += np.outer(f, f)
            b += f * (episodes.rewards[k, h] + V[episodes.next_states[k, h]] - m)
        inverse = np.linalg.inv(Lambda)
        width = np.sqrt(np.einsum("sai,ij,saj->sa", phi, inverse, phi))
        Qs[h] = np.clip(phi @ inverse @ b + m - bonus * np.sqrt(d) * width, 0, H - h)
        V = Qs[h].max(axis=1)
    return Qs


def test_without_noise_it_is_the_algorithm(data):
    features = random_features()
    learner = PEVI(features, H, bonus=0.3, ridge=0.5)
    (batch,) = data.batches(60)
    Q = plain_pevi(batch, np.asarray(features.table), 0.3, 0.5)
    policy = privrl.fit(data, learner, privrl.NonPrivate()).policy.probabilities
    best = np.abs(Q - Q.max(-1, keepdims=True)) <= 1e-9
    np.testing.assert_allclose(policy, best / best.sum(-1, keepdims=True), atol=1e-12)
    assert (Q > 0).any(axis=(1, 2)).all() and (best.sum(-1) == 1).any()  # the comparison is not one of ties alone


def test_the_span_is_never_dearer_than_the_range_and_cheaper_somewhere(data):
    result = privrl.fit(data, PEVI(random_features(), H), privrl.Central(rho=50.0), key=jax.random.key(0))
    targets = next(r for r in result.certificate.releases if r["name"] == "targets")
    charged = sorted(noise["sensitivity"] for noise in targets["noise"] for _ in range(noise["times"]))
    assert all(s <= r + 1e-9 for s, r in zip(charged, [1.0, 2.0, 3.0, 4.0], strict=True))
    assert sum(charged) < 0.9 * 10.0


@pytest.mark.parametrize(
    "learner",
    [PEVI(random_features(), H), VAPVI(random_features(), 3), VAPVI(random_features(), H)]
    + [VAPVI(random_features(), H, split=True)],
    ids=["pevi", "vapvi, short", "vapvi", "vapvi, split"],
)
def test_laplace_noise_is_refused_before_anything_is_read_or_reserved(learner, monkeypatch):
    """Before, the first release of a matrix refused it: the study was open, and a store held it."""

    def unreachable(*_, **__):
        raise AssertionError("Somebody's record was read, or something was reserved.")

    monkeypatch.setattr("privrl.studies.offline.procedure.Curator", unreachable)
    monkeypatch.setattr("privrl.privacy.store.release_store.ReleaseStore.open_study", unreachable)
    pure = privrl.Central(epsilon=1.0, mechanism="laplace")
    with privrl.ReleaseStore.in_memory() as store, pytest.raises(PairingError, match=r"Nothing was released"):
        privrl.fit(tiny_data(tiny_world(learner.horizon), 5), learner, pure, store=store)
