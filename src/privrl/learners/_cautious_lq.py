"""CautiousLQ: control of a linear system that is never much worse than doing nothing while it learns.

Our own algorithm for the setting of Chowdhury, Zhou and Shroff (2021): belief, cautious gain, pessimistic gate.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from privrl.learners._base import AbstractOnlineLearner, Plan
from privrl.mdp._lq import LinearPolicy, LQTask
from privrl.mdp._riccati import linear_cost, within_norm
from privrl.privacy import Declared, Release, geometric_schedule
from privrl.statistics._innovations import Innovations, Surprise


def _number(value: ArrayLike) -> Float[Array, ""]:
    return jnp.asarray(value, float)


class Belief(eqx.Module):
    mean: Float[Array, "p n"]
    covariance: Float[Array, "p p"]


class Memory(eqx.Module):
    belief: Belief
    surprise: Surprise
    gain: Float[Array, "d n"]
    radius: Float[Array, ""]
    spread: Float[Array, ""]
    seen: Int[Array, ""]


class CautiousLQ(AbstractOnlineLearner):
    task: LQTask
    caution: Float[Array, ""] = eqx.field(converter=_number, default=1.0)
    exploration: Float[Array, ""] = eqx.field(converter=_number, default=0.005)
    clip: Float[Array, ""] = eqx.field(converter=_number, default=1.5)
    forgetting: Float[Array, ""] = eqx.field(converter=_number, default=0.7)
    mismatch: Float[Array, ""] = eqx.field(converter=_number, default=0.0625)
    growth: float = eqx.field(static=True, default=1.5)
    first_block: int = eqx.field(static=True, default=20)
    gram: str = eqx.field(static=True, default="bound")
    variant: str = eqx.field(static=True, default="cov-before")

    @property
    def horizon(self) -> int:
        return self.task.horizon

    def bounds(self) -> dict[str, Any]:
        return {"horizon": self.horizon, "surprises": "clipped at levels from earlier releases", "rewards": "known"}

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        return geometric_schedule(num_users, self.growth, min(self.first_block, num_users))

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        statistic = Innovations(self.task.state_dim, self.task.input_dim)
        return (Declared("surprises", statistic, access="blocks", times=num_blocks),)

    @property
    def prior_variance(self):
        n, d = self.task.state_dim, self.task.input_dim
        return self.task.parameter_radius**2 / ((n + d) * n)

    @property
    def noise(self):
        n = self.task.state_dim
        return self.task.noise_radius**2 / n * jnp.eye(n)

    def init(self) -> Memory:
        n, d = self.task.state_dim, self.task.input_dim
        prior = Belief(jnp.zeros((n + d, n)), self.prior_variance * jnp.eye(n + d))
        one = jnp.ones(())
        return Memory(prior, Surprise(prior.mean, one, one), jnp.zeros((d, n)), one, one, jnp.zeros((), int))

    def plan(self, memory, released, ask, num_seen):
        del ask
        belief = self._updated(memory, released["surprises"], num_seen - memory.seen)
        gains, radius = self._cautious(belief)
        gains = self._gate(belief, gains) * gains
        surprise, spread = self._predicted(belief, gains, radius)
        memory = Memory(belief, surprise, gains[0], radius, spread, num_seen)
        return memory, Plan(LinearPolicy(gains, radius), surprise)

    def _updated(self, memory, release, people):
        task, belief, surprise = self.task, memory.belief, memory.surprise
        n, d, H = task.state_dim, task.input_dim, task.horizon
        p = n + d
        X1, K, r = task.first_moment, memory.gain, memory.radius
        nb = people.astype(float)
        s0 = self.prior_variance
        Th, Sg = belief.mean, belief.covariance
        tau = jnp.concatenate([jnp.full(n, surprise.first_clip), jnp.full(d, surprise.exploration_clip)])
        top = jnp.concatenate([X1, X1 @ K.T], axis=1)
        low = jnp.concatenate([jnp.zeros((d, n)), H * r**2 / d * jnp.eye(d)], axis=1)
        C = nb * jnp.concatenate([top, low]) / tau[:, None]
        Cw2 = task.noise_radius**2
        ik = jnp.concatenate([jnp.eye(n), K])
        extra = ((ik @ X1 @ ik.T).at[n:, n:].add(r**2 / d * jnp.eye(d)) * Sg).sum() * {"bound":1.0,"exact":1-1/n,"none":0.0}[self.gram]
        sampling = nb * jnp.concatenate([jnp.diagonal(X1) * (Cw2 / n + extra), jnp.full(d, r**2 / d * (memory.spread + H * Cw2) / n)])
        N = jnp.diag(sampling / tau**2) + jnp.max(release.noise.variance) * jnp.eye(p)
        some = people > 0
        N = jnp.where(some, N, jnp.eye(p))
        y = release.value
        if self.variant == "cov-before":
            Sg = jnp.linalg.inv(self.forgetting * jnp.linalg.inv(Sg) + (1 - self.forgetting) / s0 * jnp.eye(p))

        def innovation(Sg):
            CS = C @ Sg
            return (1 + self.mismatch) * CS @ C.T + N

        q = (y * jnp.linalg.solve(innovation(Sg), y)).sum() / (p * n)
        Sg = Sg * jnp.where(q > 1 + 3 * math.sqrt(2 / (p * n)), q, 1.0)
        S = innovation(Sg)
        G = jnp.linalg.solve(S, C @ Sg).T
        new = Th + G @ y
        L = jnp.eye(p) - G @ C
        Sg2 = L @ Sg @ L.T + G @ (S - C @ Sg @ C.T) @ G.T
        Sg2 = (Sg2 + Sg2.T) / 2
        if self.variant in ("cov-after", "both-after"):
            prec = jnp.linalg.inv(Sg2)
            Sg3 = jnp.linalg.inv(self.forgetting * prec + (1 - self.forgetting) / s0 * jnp.eye(p))
            if self.variant == "both-after":
                new = Sg3 @ (self.forgetting * prec @ new)
            Sg2 = Sg3
        return Belief(jnp.where(some, new, belief.mean), jnp.where(some, Sg2, belief.covariance))

    def _cautious(self, belief):
        task = self.task
        n, d, H = task.state_dim, task.input_dim, task.horizon
        Th, Sg = belief.mean, self.caution**2 * belief.covariance
        Q, R = task.state_cost, task.input_cost

        def step(P, _):
            M = Th @ P @ Th.T + jnp.trace(P) * Sg
            paid = R + M[n:, n:]
            K = -jnp.linalg.solve(paid, M[n:, :n])
            P = Q + M[:n, :n] + M[:n, n:] @ K
            return (P + P.T) / 2, (K, jnp.trace(paid))

        _, (K, paid) = jax.lax.scan(step, jnp.zeros_like(Q), None, length=H, reverse=True)
        zero = jnp.zeros((H, d, n))
        J = linear_cost(Th[:n].T, Th[n:].T, Q, R, zero, task.first_moment, self.noise, jnp.zeros((d, d)))
        J = jnp.clip(J, jnp.trace(Q @ task.first_moment), H * jnp.linalg.norm(Q, 2))
        kappa = self.exploration * jnp.sqrt(jnp.trace(belief.covariance[n:, n:]) / (d * self.prior_variance))
        r = jnp.minimum(jnp.sqrt(kappa * J * d / paid.sum()), task.gain_bound / 2)
        return within_norm(K, task.gain_bound - r), r

    def _gate(self, belief, gains):
        task = self.task
        n, d = task.state_dim, task.input_dim
        root = jnp.linalg.cholesky(belief.covariance)
        samples = belief.mean + self.caution * (root @ _nodes(n + d, n))

        def cost(theta, a):
            return linear_cost(
                theta[:n].T, theta[n:].T, task.state_cost, task.input_cost, a * gains, task.first_moment, self.noise,
                jnp.zeros((d, d)),
            )

        shares = jnp.linspace(0.0, 1.0, 5)
        J = jax.vmap(lambda theta: jax.vmap(lambda a: cost(theta, a))(shares))(samples)
        D = J - J[:, :1]
        worst = D.mean(axis=0) + 2 * D.std(axis=0)
        return jnp.where(worst[-1] <= 0, 1.0, shares[worst.argmin()])

    def _predicted(self, belief, gains, radius):
        task = self.task
        n, d, H = task.state_dim, task.input_dim, task.horizon
        Th, Sg = belief.mean, belief.covariance
        V = radius**2 / d * jnp.eye(d)

        def step(X, K):
            IK = jnp.concatenate([jnp.eye(n), K])
            Z = (IK @ X @ IK.T).at[n:, n:].add(V)
            known = (Z * Sg).sum()
            X = Th.T @ Z @ Th + known * jnp.eye(n) + self.noise
            return X / jnp.maximum(jnp.trace(X), 1.0), known

        _, known = jax.lax.scan(step, task.first_moment, gains)
        Ex = n * known.sum()
        Cw2 = task.noise_radius**2
        tau_v = radius**2 * (Ex + H * Cw2) + H**2 * radius**4 * n * jnp.trace(Sg[n:, n:]) / d
        tau_x = task.first_radius**2 * (n * known[0] + Cw2)
        return Surprise(Th, self.clip * jnp.sqrt(tau_x), self.clip * jnp.sqrt(tau_v)), Ex


def _primes(count):
    found = []
    k = 2
    while len(found) < count:
        if all(k % f for f in found):
            found.append(k)
        k += 1
    return found


@functools.cache
def _nodes(p: int, n: int):
    from scipy.special import ndtri

    count = max(32, p * n + 8)
    roots = np.sqrt(np.array(_primes(p * n), float))
    z = ndtri(np.mod(np.outer(np.arange(1, count + 1), roots), 1.0))
    z = z - z.mean(axis=0)
    s, U = np.linalg.eigh(z.T @ z / count)
    return (z @ (U / np.sqrt(s)) @ U.T).reshape(count, p, n)
