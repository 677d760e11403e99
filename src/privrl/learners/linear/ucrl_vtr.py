"""UCRL-VTR: optimistic regression on values in linear mixture MDPs (liao-he-gu Algorithm 1, Jia et al. 2020).

P_h(s'|s,a) = <phi(s'|s,a), theta_h> with phi public, theta_h unknown and rewards known. For user k, with v_h the
largest sum of rewards from step h on (steps count from 1 as in the box, 0 in the code):

    A1:6   Q_h = min{v_h, r_h + <theta^_h, phi_{V_{h+1}}> + beta_h ||Sigma_h^{-1/2} phi_{V_{h+1}}||}
    A1:7   V_h = max_a Q_h,  clipped to [0, v_h]
    A1:11  play argmax_a Q_h, ties shared
    A1:12  send phi_V phi_V^T + W_h,   phi_V = phi_{V_{h+1}}(s_h, a_h)
    A1:13  send phi_V V_{h+1}(s_{h+1}) + xi_h
    A1:18  Lambda_h, u_h: the sums of what was sent
    A1:19  Sigma_h = Lambda_h + lambda I + r I,  r = 2 Gamma
    A1:20  theta^_h = Sigma_h^{-1} u_h

The noise is the privatizer's: none (UCRL-VTR), continual (joint privacy) or on every message (LDP-UCRL-VTR).

Departures. (1) The printed Q has no lower clip; the sensitivity needs V in [0, v_h], so V is clipped. (2) beta is
printed up to a constant; here it is `bonus` times the three terms of the proof (Lemma B.1), read off the distribution
of the noise: sqrt(lambda + 3 Gamma) ||theta||, v sqrt(2 ln k + ln det Sigma/lambda) and ||xi||/sqrt(lambda + Gamma).
Without noise this is the radius of Section 6.2 with ln K for the misprinted ln(1/K), which is negative; k is the number
of users so far. (3) Gamma and the bound on ||xi_h|| are proved (`calibration="paper"`: the printed ones). With one-hot
features Lambda has only the blocks (s,a), and only those are sent; with `calibration="paper"` all of it. (4) Users are
grouped into public blocks whose lengths grow; the paper plans after every user (`every_user=True`). (5) The server
computes Q and V (lines 4 to 8) and sends the policy and V; in the paper it sends Sigma and theta^, and every client
computes the same numbers. Clients clip what they are sent, so privacy does not depend on who computes.

Under local privacy this does not learn on RiverSwim with 10,000 users at any epsilon up to 20, printed or tight: the
noise of all messages, and with it the shift 2 Gamma, is larger than the Gram matrix. Use `UCBVI` there.
"""

import math
from typing import ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from privrl.contracts.learner import AbstractOnlineLearner, OnlineAsk, Plan, Releases
from privrl.contracts.release import Declared
from privrl.mdp.types import TabularPolicy, number
from privrl.privacy.continual.mechanisms import every, geometric_schedule
from privrl.privacy.noise.distributions import GaussianNoise, SymmetricNoise
from privrl.statistics.mixtures import MixtureMoments, feature_norm
from privrl.statistics.setting_checks import check_choice

Calibration = Literal["tight", "paper"]


class UCRLVTR(AbstractOnlineLearner):
    """Optimistic value-targeted regression for worlds that mix known kernels with unknown weights.

    >>> world = privrl.envs.make("riverswim", states=3, horizon=4)
    >>> learner = privrl.UCRLVTR(world.rewards, 4)
    >>> privrl.run(world, learner, privrl.Central(epsilon=1, delta=1e-6), episodes=100, key=0)
    Run(UCRLVTR, 1 seed of 100 episodes, joint privacy, epsilon 1, delta 1e-06, simulated noise)

    Arguments:
        rewards: known mean rewards `[G, S, A]`, at least 0; G = 1 or H.
        horizon: number of steps H, at least 2.
        features: phi(s'|s,a) `[S, A, S, d]`; one-hot, for any finite world, if left out.
        stationary: one theta for all steps: regress on the sums over steps (post-processing).
        bonus: the radius of the confidence set, times this.
        regularisation: lambda, in units of the square of the largest return.
        calibration: `"tight"`: only the blocks of Lambda that can differ from 0 are sent, and bounds on their noise are
            proved; `"paper"`: all of Lambda and the printed bounds. Without noise both are the same.
        failure: probability with which a bound on the noise may fail, per step.
        growth, first_block: the public schedule: the first block of users, and how fast the blocks grow.
        every_user: plan after every user instead.
        terminal: public states that end an episode; their V is 0.

    Raises:
        ValueError: a setting is out of its range.
    """

    rewards: Float[Array, "G S A"]
    horizon: int = eqx.field(static=True)
    features: Float[Array, "S A S d"] | None = None
    stationary: bool = eqx.field(static=True, default=False)
    bonus: Float[Array, ""] = eqx.field(converter=number, default=0.1)
    regularisation: Float[Array, ""] = eqx.field(converter=number, default=1.0)
    calibration: Calibration = eqx.field(static=True, default="tight")
    failure: float = eqx.field(static=True, default=0.01)
    growth: float = eqx.field(static=True, default=1.1)
    first_block: int = eqx.field(static=True, default=20)
    every_user: bool = eqx.field(static=True, default=False)
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    reads_newest_sums: ClassVar[bool] = True

    def __check_init__(self) -> None:
        S, A = self.rewards.shape[1:]
        if self.horizon < 2:
            raise ValueError(f"`horizon` is {self.horizon}; with one step and known rewards there is nothing to learn.")
        if self.features is not None and self.features.shape[:3] != (S, A, S):
            raise ValueError(f"`features` has shape {self.features.shape}; `rewards` ask for ({S}, {A}, {S}, d).")
        check_choice("calibration", self.calibration, get_args(Calibration))
        if not isinstance(self.rewards, jax.core.Tracer):
            r = np.asarray(self.rewards)
            if not (np.isfinite(r).all() and r.min() >= 0 and np.asarray(self._ranges())[1] > 0):
                raise ValueError("`rewards` must be finite, at least 0, and positive somewhere after the first step.")

    def bounds(self) -> dict[str, object]:
        top = float(self._ranges()[0])
        return {"horizon": self.horizon, "value range": [0.0, top], "rewards": "known"}

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        if self.every_user:
            return every(num_users, 1)
        return geometric_schedule(num_users, self.growth, min(self.first_block, num_users))

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        return (Declared("moments", self._moments(), access="running", times=num_blocks),)

    def _ranges(self) -> Float[Array, " H"]:
        """v_h: the largest sum of rewards from step h on."""
        largest = jnp.broadcast_to(self.rewards.max(axis=(1, 2)), (self.horizon,))
        if self.rewards.shape[0] == 1:
            return largest * jnp.arange(self.horizon, 0, -1)
        return jnp.cumsum(largest[::-1])[::-1]

    def _moments(self) -> MixtureMoments:
        _, S, A = self.rewards.shape
        with jax.ensure_compile_time_eval():  # sensitivities are numbers even where a plan is being traced
            norm = jnp.ones(()) if self.features is None else feature_norm(self.features)
            return MixtureMoments(self._ranges(), S, A, self.features, norm, self.calibration == "paper")

    def plan(self, memory: None, released: Releases, ask: OnlineAsk, num_seen: Int[Array, ""]) -> tuple[None, Plan]:
        del ask
        H, (_, S, A), moments = self.horizon, self.rewards.shape, self._moments()
        v, release = moments.ranges, released["moments"]
        Lambda, u = moments.matrices(release.value)  # [liao-he-gu A1:18] after a block, not after every user
        std = jnp.asarray(release.noise.std)
        if self.stationary:
            Lambda, u = Lambda.sum(axis=0, keepdims=True), u.sum(axis=0, keepdims=True)
            std = std * math.sqrt(H - 1)
        stages, (B, m) = Lambda.shape[0], moments.blocks
        lam = self.regularisation * v[0] ** 2
        Gamma, xi = self._noise_bounds(std, moments)
        e, U = jnp.linalg.eigh(Lambda)
        e = lam + jnp.maximum(e + 2 * Gamma, 0.0)  # [liao-he-gu A1:19] r = 2 Gamma
        theta = jnp.einsum("gbij,gbj->gbi", U, jnp.einsum("gbij,gbi->gbj", U, u) / e)  # [liao-he-gu A1:20]
        logdet = jnp.log(e / lam).sum(axis=(-1, -2))
        # [liao-he-gu Section 6.2] ln K, printed as ln(1/K)
        sampling_error = 2 * jnp.log(jnp.maximum(num_seen, 2)) + logdet

        def stage(V: Float[Array, " S"], h: Int[Array, ""]) -> tuple[Array, tuple[Array, Array]]:
            g, top = jnp.minimum(h, stages - 1), jnp.where(h + 1 < H, v[jnp.minimum(h + 1, H - 1)], 0.0)
            phi = moments.features(V, top).reshape(B, -1, m)
            width = jnp.sqrt((jnp.einsum("bpi,bij->bpj", phi, U[g]) ** 2 / e[g][:, None]).sum(axis=-1))
            beta = self.bonus * self._radius(lam, Gamma, xi, top, sampling_error[g])
            PV = jnp.einsum("bpi,bi->bp", phi, theta[g]) + beta * width
            r = self.rewards[jnp.minimum(h, self.rewards.shape[0] - 1)]
            Q = jnp.minimum(v[h], r + PV.reshape(S, A))  # [liao-he-gu A1:6] by the server; printed: by the client
            V = jnp.clip(Q.max(axis=-1), 0.0, v[h])  # [liao-he-gu A1:7] the lower clip is ours
            V = V.at[np.array(self.terminal, int)].set(0.0)
            return V, (V, Q)

        _, (V, Q) = jax.lax.scan(stage, jnp.zeros(S), jnp.arange(H), reverse=True)
        return None, Plan(TabularPolicy.greedy(Q), V)  # [liao-he-gu A1:11] ties shared; policy and V are sent

    def _noise_bounds(self, std: Float[Array, ""], moments: MixtureMoments) -> tuple[Array, Array]:
        """Gamma, a bound on the spectral norm of the noise in each block of Lambda_h, and one on the norm of that in u.

        An upper triangle of independent N(0, s^2) entries, and a diagonal like it, has no larger spectral norm (in the
        sense of the bound) than a Gaussian ensemble whose diagonal has twice the variance: more independent noise
        raises the mean of a convex function, and the Lipschitz constant is that of the off-diagonal entries.
        """
        B, m = moments.blocks
        if self.calibration == "paper":
            Gamma = std * (math.sqrt(4 * m) + 2 * math.log(6 * self.horizon / self.failure))  # [liao-he-gu Lemma B.1]
            return Gamma, std * math.sqrt(m * math.log(12 * m * self.horizon / self.failure))
        each = self.failure / (2 * B)
        Gamma = SymmetricNoise(std * math.sqrt(2.0) / moments.weight, m).spectral_bound(each)
        return Gamma, GaussianNoise(std, (B * m,)).norm_bound(self.failure / 2)

    def _radius(
        self,
        lam: Float[Array, ""],
        Gamma: Float[Array, ""],
        xi: Float[Array, ""],
        top: Float[Array, ""],
        sampling_error: Float[Array, ""],
    ) -> Float[Array, ""]:
        """A bound on ||theta^ - theta||_Sigma, given those on the noise and V <= `top`.

        Write G for the exact Gram matrix. Sigma - G has eigenvalues in [lambda + Gamma, lambda + 3 Gamma], so
        (Sigma - G) theta has norm at most sqrt(lambda + 3 Gamma) ||theta||, and Sigma >= lambda I + G.
        """
        _, S, A = self.rewards.shape
        # One-hot: theta is SA rows of probabilities.
        size = math.sqrt(S * A if self.features is None else self.features.shape[-1])  # [liao-he-gu Definition 3.1]
        bias = size * jnp.sqrt(lam + 3 * Gamma)  # [liao-he-gu Lemma B.1]
        # [liao-he-gu Lemma B.1] used `bonus` times
        return bias + top * jnp.sqrt(sampling_error) + xi / jnp.sqrt(lam + Gamma)
