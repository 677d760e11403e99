"""draft"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from privrl.learners._base import AbstractOnlineLearner, Plan
from privrl.learners._optimism import ConfidenceSet, most_optimistic
from privrl.mdp._lq import LinearPolicy, LQTask
from privrl.mdp._riccati import optimal_cost, riccati, within_norm
from privrl.privacy import Declared, GaussianNoise, Release, SymmetricNoise, every, geometric_schedule
from privrl.statistics._lq_moments import LQCross, LQGram, LQMoments, joint_trace, joint_weight

def _number(value: ArrayLike) -> Float[Array, ""]:
    return jnp.asarray(value, float)


class OFULQ(AbstractOnlineLearner):
    task: LQTask
    radius: Float[Array, ""] = eqx.field(converter=_number, default=0.1)
    ridge: Float[Array, ""] = eqx.field(converter=_number, default=1.0)
    strategy: str = eqx.field(static=True, default="optimism")
    exploration: Float[Array, ""] = eqx.field(converter=_number, default=0.2)
    trace_bound: float | None = eqx.field(static=True, default=None)
    growth: float = eqx.field(static=True, default=1.25)
    first_block: int = eqx.field(static=True, default=20)
    calibration: str = eqx.field(static=True, default="joint")
    failure: float = eqx.field(static=True, default=0.05)
    eta: Float[Array, ""] = eqx.field(converter=_number, default=2.0)

    @property
    def horizon(self):
        return self.task.horizon

    def bounds(self):
        return {"horizon": self.horizon}

    def schedule(self, num_users):
        if self.calibration == "paper":
            return every(num_users, 1)
        return geometric_schedule(num_users, self.growth, min(self.first_block, num_users))

    def _stat(self):
        g = float(self.task.gain_bound)
        tau = joint_trace(g, self.horizon) if self.trace_bound is None else self.trace_bound
        return LQMoments(self.task.state_dim, self.task.input_dim, self.horizon, joint_weight(g), tau)

    def declare(self, num_blocks):
        return (Declared("moments", self._stat(), access="running", times=num_blocks),)

    def init(self):
        return jnp.zeros((), int)

    def plan(self, memory, released, ask, num_seen):
        n, d = self.task.state_dim, self.task.input_dim
        p = n + d
        r = released["moments"]
        c = jnp.sqrt((math.sqrt(2) - 1) * (1 + self.task.gain_bound**2))
        T1, T2 = r.value[:p, :p], r.value[:p, p:] / c
        s = r.noise.scale
        Lam = SymmetricNoise(s, p).spectral_bound(self.failure)
        L = GaussianNoise(s / (math.sqrt(2) * c), (p, n)).norm_bound(self.failure)
        lmin, lmax = self.ridge + (self.eta-1) * Lam, self.ridge + (self.eta+1) * Lam
        v, E = jnp.linalg.eigh(T1 + (self.ridge + self.eta * Lam) * jnp.eye(p))
        v = jnp.maximum(v, lmin)
        V = (E * v) @ E.T
        est = (E / v) @ (E.T @ T2)
        nu = L / jnp.sqrt(lmin)
        beta = self.task.noise_radius * jnp.sqrt(2 * math.log(2 / self.failure) + n * jnp.log(v / lmin).sum()) + jnp.sqrt(lmax) * self.task.parameter_radius + nu
        C = ConfidenceSet.around(est, V, self.radius * beta, self.task.parameter_radius)
        if self.strategy == "optimism":
            th = most_optimistic(self._cost, C, n)
            rad = 0.
        else:
            th = C.parameters(C.centre)
            rad = self.exploration * self.task.gain_bound * (1. + num_seen) ** -0.25
        gains = riccati(th[:n].T, th[n:].T, self.task.state_cost, self.task.input_cost, self.horizon)[0]
        return memory + 1, Plan(LinearPolicy(within_norm(gains, self.task.gain_bound - rad), rad))

    def _cost(self, th):
        t, n = self.task, self.task.state_dim
        W = t.noise_radius**2 / (n + 2) * jnp.eye(n)
        return optimal_cost(th[:n].T, th[n:].T, t.state_cost, t.input_cost, t.first_moment, W, self.horizon)
