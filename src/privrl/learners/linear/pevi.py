"""PEVI: pessimistic value iteration by regularised least squares (Jin, Yang and Wang 2021), the baseline of qiao-wang.

    for h = H, ..., 1:
        Lambda_h = sum phi phi^T + (lambda + shift) I                                        (a release)
        w_h      = Lambda_h^{-1} sum phi (r + V_{h+1}(s') - m_h)                             (a release)
        Q_h      = clip(phi^T w_h + m_h - C sqrt(d) ||phi||_{Lambda_h^{-1}}, 0, H-h+1)
        V_h      = max_a Q_h,  pi_h greedy, ties shared

`m_h` is the midpoint of the range of r + V_{h+1}: V_{h+1} comes from earlier releases, so its range is public and
centring it costs nothing. `shift` keeps Lambda_h positive
definite under noise: it is the bound on the spectral norm of the noise, 0 without noise.
"""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.learner import AbstractOfflineLearner, Ask, Solution
from privrl.contracts.release import Declared
from privrl.learners.restriction import allowed_table, list_rules
from privrl.mdp.features import AbstractFeatures
from privrl.mdp.rules import Rules
from privrl.mdp.types import TabularPolicy
from privrl.statistics.moments import Gram, Targets


class AbstractPessimisticRegression(AbstractOfflineLearner):
    """What PEVI and VAPVI share: backward induction on ridge regressions with an elliptical penalty.

    Arguments:
        features: phi(s, a) with norm at most 1.
        horizon: number of steps H.
        bonus: C, the size of the pessimistic penalty; a public choice that the certificate does not depend on.
        ridge: lambda.
        failure: probability with which a noise bound may fail (utility only, never privacy).
        rules: public rules; those that do not depend on the previous action restrict every choice.
    """

    features: AbstractFeatures
    horizon: int = eqx.field(static=True)
    bonus: float = eqx.field(static=True, default=0.1)
    ridge: float = eqx.field(static=True, default=0.1)
    failure: float = eqx.field(static=True, default=0.05)
    rules: Rules = eqx.field(static=True, default=Rules())

    @property
    def space(self) -> tuple[int, int]:
        return self.features.num_states, self.features.num_actions

    @property
    def largest_array(self) -> int:
        return self.features.dim * max(self.features.dim, self.features.num_states * self.features.num_actions)

    def bounds(self) -> dict[str, object]:
        own = {"feature norm": 1.0, "reward range": [0.0, 1.0], "horizon": self.horizon, "rewards": "estimated"}
        return own | list_rules(self.rules)

    @abc.abstractmethod
    def values(self, ask: Ask, h: int, V: Float[Array, " S"]) -> Float[Array, "S A"]:
        """Q_h from V_{h+1}."""

    def fit(self, ask: Ask) -> Solution:
        V = jnp.zeros(self.features.num_states)  # [qiao-wang A2:2]
        pi = []
        for h in reversed(range(self.horizon)):  # [qiao-wang A2:3] our h counts from 0
            Q = self.values(ask, h, V)
            allowed = allowed_table(self.rules, self.features.num_states)
            Q = Q if allowed is None else jnp.where(allowed, Q, -jnp.inf)
            V = Q.max(axis=-1)
            pi.append(TabularPolicy.greedy(Q[None]).probabilities[0])  # [qiao-wang A2:14] ties shared
        return Solution(TabularPolicy(jnp.stack(pi[::-1]).reshape(self.horizon, *self.space), self.rules))


class PEVI(AbstractPessimisticRegression):
    """Pessimistic value iteration on linear features of a finite world.

    >>> world = privrl.envs.make("riverswim", states=3, horizon=4)
    >>> learner = privrl.PEVI(world.features, 4)
    >>> privrl.fit(world, learner, privrl.Central(epsilon=1, delta=1e-6), episodes=200, key=0)
    Result(released without evidence, TabularPolicy, PEVI, central privacy, epsilon 1, delta 1e-06, simulated noise)
    """

    def declare(self) -> tuple[Declared, ...]:
        return tuple(Declared(name, times=self.horizon, gaussian=True) for name in ("gram", "targets"))

    def values(self, ask: Ask, h: int, V: Float[Array, " S"]) -> Float[Array, "S A"]:
        H = self.horizon
        gram = ask("gram", Gram(self.features, jnp.asarray(h)))
        statistic = Targets(self.features, jnp.asarray(h), V, V.min(), V.max())
        targets = ask("targets", statistic)
        ridge = self.ridge + gram.noise.spectral_bound(self.failure / H)
        regression = (gram.value, targets.value, statistic.midpoint, ridge)
        return pessimistic_values(self.features.table, *regression, self.bonus, jnp.asarray(float(H - h)))


@eqx.filter_jit
def pessimistic_values(
    phi: Float[Array, "S A d"],
    gram: Float[Array, "d d"],
    targets: Float[Array, " d"],
    midpoint: Float[Array, ""],
    ridge: Float[Array, ""],
    bonus: float,
    largest: Float[Array, ""],
    extra: float = 0.0,
) -> Float[Array, "S A"]:
    """Ridge regression with an elliptical penalty and a constant `extra` one, clipped to [0, largest]."""
    d = phi.shape[-1]
    Lambda = gram + ridge * jnp.eye(d)
    w = jnp.linalg.solve(Lambda, targets)
    solved = jnp.linalg.solve(Lambda, phi.reshape(-1, d).T).T.reshape(phi.shape)
    Gamma = bonus * math.sqrt(d) * jnp.sqrt(jnp.maximum((phi * solved).sum(-1), 0.0))
    return jnp.clip(phi @ w + midpoint - Gamma - extra, 0.0, largest)
