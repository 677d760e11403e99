"""PEVI: pessimistic value iteration by regularised least squares (Jin, Yang and Wang 2021), the baseline of qiao-wang.

    for h = H, ..., 1:
        Lambda_h = sum phi phi^T + (lambda + shift) I                                        (a release)
        w_h      = Lambda_h^{-1} sum phi (r + V_{h+1}(s') - m_h)                             (a release)
        Q_h      = clip(phi^T w_h + m_h - C sqrt(d) ||phi||_{Lambda_h^{-1}}, 0, H-h+1)
        V_h      = max_a Q_h,  pi_h greedy, ties shared

`m_h` is the midpoint of the range of r + V_{h+1}: V_{h+1} comes from earlier releases, so its range is public and
centring it costs nothing (`calibration="span"`); `"range"` uses [0, H-h] instead. `shift` keeps Lambda_h positive
definite under noise: it is the bound on the spectral norm of the noise, 0 without noise.
"""

import math
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.learner import AbstractOfflineLearner, Ask
from privrl.contracts.release import Declared
from privrl.mdp.features import AbstractFeatures
from privrl.mdp.types import TabularPolicy
from privrl.statistics.moments import Gram, Targets


class PEVI(AbstractOfflineLearner):
    """Pessimistic value iteration on linear features of a finite world.

    Arguments:
        features: phi(s, a) with norm at most 1.
        horizon: number of steps H.
        bonus: C, the size of the pessimistic penalty; a public choice that the certificate does not depend on.
        ridge: lambda.
        calibration: `"span"` reads the range of V off its released values, `"range"` uses what V can be at most.
        failure: probability with which a noise bound may fail (utility only, never privacy).
    """

    features: AbstractFeatures
    horizon: int = eqx.field(static=True)
    bonus: float = eqx.field(static=True, default=0.1)
    ridge: float = eqx.field(static=True, default=0.1)
    calibration: Literal["span", "range"] = eqx.field(static=True, default="span")
    failure: float = eqx.field(static=True, default=0.05)

    @property
    def space(self) -> tuple[int, int]:
        return self.features.num_states, self.features.num_actions

    def bounds(self) -> dict[str, Any]:
        return {"feature norm": 1.0, "reward range": [0.0, 1.0], "horizon": self.horizon, "rewards": "estimated"}

    def declare(self) -> tuple[Declared, ...]:
        return (Declared("gram", times=self.horizon), Declared("targets", times=self.horizon))

    def fit(self, ask: Ask) -> TabularPolicy:
        (S, A), H = self.space, self.horizon
        V = jnp.zeros(S)
        pi = []
        for h in reversed(range(H)):
            gram = ask("gram", Gram(self.features, jnp.asarray(h)))
            low, high = (V.min(), V.max()) if self.calibration == "span" else (jnp.zeros(()), jnp.asarray(H - h - 1.0))
            statistic = Targets(self.features, jnp.asarray(h), V, low, high)
            targets = ask("targets", statistic)
            shift = gram.noise.spectral_bound(self.failure / H)
            regression = (gram.value, targets.value, statistic.midpoint, self.ridge + shift)
            Q = pessimistic_values(self.features.table, *regression, self.bonus, jnp.asarray(float(H - h)))
            V = Q.max(axis=-1)
            pi.append(TabularPolicy.greedy(Q[None]).probabilities[0])
        return TabularPolicy(jnp.stack(pi[::-1]).reshape(H, S, A))


@eqx.filter_jit
def pessimistic_values(
    phi: Float[Array, "S A d"],
    gram: Float[Array, "d d"],
    targets: Float[Array, " d"],
    midpoint: Float[Array, ""],
    ridge: Float[Array, ""],
    bonus: float,
    most: Float[Array, ""],
    extra: float = 0.0,
) -> Float[Array, "S A"]:
    """Ridge regression with an elliptical penalty and a constant `extra` one, clipped to [0, most]."""
    d = phi.shape[-1]
    Lambda = gram + ridge * jnp.eye(d)
    w = jnp.linalg.solve(Lambda, targets)
    solved = jnp.linalg.solve(Lambda, phi.reshape(-1, d).T).T.reshape(phi.shape)
    Gamma = bonus * math.sqrt(d) * jnp.sqrt(jnp.maximum((phi * solved).sum(-1), 0.0))
    return jnp.clip(phi @ w + midpoint - Gamma - extra, 0.0, most)
