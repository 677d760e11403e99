"""APVI: adaptive pessimistic value iteration on counts [qiao-wang Algorithm 1].

     2: n(s,a), n(s,a,s') by (3), P by (5), V_{H+1} = 0                       (releases, then post-processing)
     3: for h = H, ..., 1:
     4:     Q_h     = r_h + P_h V_{h+1}
     5:     Gamma_h = C1 sqrt(Var_P(V_{h+1}) iota / (n - E)) + C2 R E iota / n   where n > E, otherwise C H
     6:     Q_h     = Q_h - Gamma_h
     7:     Q_h     = clip(Q_h, 0, H-h+1)
     8:     pi_h    = argmax_a Q_h,  V_h = max_a Q_h

E is twice the bound on the largest noise, iota = ln(HSA/failure). The paper has S H in place of R, the range of V_{h+1}:
with it line 5 exceeds H at every size of interest, see docs/design.md#apvi. Without noise E = 0 and the paper's own
non-private form has iota R / n there, so line 5 reads E + 1. Where no action of a state is trusted (n <= E), the
most-taken action is played instead of an arbitrary one.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.learners._base import AbstractOfflineLearner, Ask
from privrl.learners._consistency import consistent_counts
from privrl.mdp import TabularPolicy
from privrl.privacy import Declared
from privrl.statistics import Counting, RewardSums, TransitionCounts, VisitCounts


class APVI(AbstractOfflineLearner):
    """Pessimistic value iteration on (noisy) counts of a finite world.

    Arguments:
        num_states, num_actions, horizon: the size of the world, public.
        rewards: known mean rewards `[G, S, A]` (G = 1 or H), or `None`: then reward sums are released and paid for.
        arrival_rewards: known rewards `[S]` for entering a state, on top of `rewards`.
        counting: `"per-stage"` (the paper), `"pooled"` or `"first-visit"` (stationary worlds; H times fewer cells).
        contribution_norm: clip each episode's vector of counts to this L2 norm.
        bonus: C1, the Bernstein term.
        noise_bonus: C2, the term for what noise and few samples hide.
        failure: probability with which a noise bound may fail (utility only, never privacy).
    """

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    rewards: Float[Array, "G S A"] | None = None
    arrival_rewards: Float[Array, " S"] | None = None
    counting: Counting = eqx.field(static=True, default="per-stage")
    contribution_norm: float | None = eqx.field(static=True, default=None)
    bonus: float = eqx.field(static=True, default=0.1)
    noise_bonus: float = eqx.field(static=True, default=0.03)
    failure: float = eqx.field(static=True, default=0.05)

    @property
    def space(self) -> tuple[int, int]:
        return self.num_states, self.num_actions

    @property
    def _estimates_rewards(self) -> bool:
        return self.rewards is None and self.arrival_rewards is None

    def bounds(self) -> dict[str, Any]:
        return {
            "horizon": self.horizon,
            "counting": self.counting,
            "contribution norm": self.contribution_norm or "none",
            "reward range": [0.0, 1.0],
            "rewards": "estimated" if self._estimates_rewards else "known",
        }

    def declare(self) -> tuple[Declared, ...]:
        stages = self.horizon if self.counting == "per-stage" else 1
        names = ("visits", "transitions") + (("rewards",) if self._estimates_rewards else ())
        return tuple(Declared(name, times=stages) for name in names)

    def fit(self, ask: Ask) -> TabularPolicy:
        S, A, H = self.num_states, self.num_actions, self.horizon
        V = jnp.zeros(S)
        pi = []
        model = None
        for h in reversed(range(H)):  # [qiao-wang A1:3]
            if model is None or self.counting == "per-stage":
                model = self._model(ask, h if self.counting == "per-stage" else None)
            P, n, E, r = model
            if self.rewards is not None:
                r = r + self.rewards[min(h, self.rewards.shape[0] - 1)]
            iota = math.log(H * S * A / self.failure)
            Q = _pessimistic_values(P, n, E, r, self._arrival(), V, iota, self.bonus, self.noise_bonus, H - h)
            trusted = (n > E).any(axis=-1, keepdims=True)
            choice = jnp.where(trusted, jnp.where(n > E, Q, -1.0), n)  # see the module's last sentence
            pi.append(TabularPolicy.greedy(choice[None]).probabilities[0])  # [qiao-wang A1:8]
            V = (pi[-1] * Q).sum(axis=-1)
        return TabularPolicy(jnp.stack(pi[::-1]).reshape(H, S, A))

    def _arrival(self) -> Float[Array, " S"]:
        return jnp.zeros(self.num_states) if self.arrival_rewards is None else self.arrival_rewards

    def _model(self, ask: Ask, stage: int | None) -> tuple[Array, Array, Array, Array]:
        """Kernel, counts, noise width E and mean rewards, from releases about one stage or all."""
        shape = (self.num_states, self.num_actions, self.horizon, self.counting, self.contribution_norm, stage)
        visits = ask("visits", VisitCounts(*shape))
        transitions = ask("transitions", TransitionCounts(*shape))
        each = self.failure / (2 * (1 if stage is None else self.horizon))
        half = jnp.maximum(visits.noise.max_bound(each), transitions.noise.max_bound(each))
        counts = consistent_counts(transitions.value, visits.value, half)  # [qiao-wang eq. 3]
        n = counts.sum(axis=-1)
        E = 2 * half
        known = (n > E)[..., None]
        P = jnp.where(known, counts / jnp.where(known, n[..., None], 1.0), 1.0 / self.num_states)  # [qiao-wang eq. 5]
        r = jnp.zeros_like(n)
        if self._estimates_rewards:
            sums = ask("rewards", RewardSums(*shape)).value
            r = jnp.where(n > E, jnp.clip(sums / jnp.where(n > E, n, 1.0), 0.0, 1.0), 0.0)
        return P, n, E, r


@eqx.filter_jit
def _pessimistic_values(
    P: Float[Array, "S A S"],
    n: Float[Array, "S A"],
    E: Float[Array, ""],
    r: Float[Array, "S A"],
    arrival: Float[Array, " S"],
    V: Float[Array, " S"],
    iota: float,
    bonus: float,
    noise_bonus: float,
    most: int,
) -> Float[Array, "S A"]:
    """[qiao-wang A1:4-7] for one step."""
    G = V + arrival
    mean = P @ G
    Q = r + mean  # [qiao-wang A1:4]
    variance = jnp.maximum(P @ G**2 - mean**2, 0.0)
    span = G.max() - G.min()
    trusted = n > E
    left = jnp.where(trusted, n - E, 1.0)
    Gamma = bonus * jnp.sqrt(variance * iota / left) + noise_bonus * span * (E + iota) / jnp.where(trusted, n, 1.0)
    Q = jnp.where(trusted, Q - Gamma, 0.0)  # [qiao-wang A1:5-6]
    return jnp.clip(Q, 0.0, most)  # [qiao-wang A1:7]
