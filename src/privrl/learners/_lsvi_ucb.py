"""LSVI-UCB for finite linear worlds (Jin et al. 2020), from one continual release of transition moments.

What is released at the public end of each block: M_h = sum phi(s,a) e_{s'}^T for every step h, and how many episodes
began in each state. No Gram matrix is released, and no value function is ever asked about: M_h V is post-processing.

    schedule   intervals of 1, 1.3, 1.3^2, ... episodes; the first tenth of each plays the optimistic policy, the rest
               the greedy one, and both parts end with a release
    counts     n_h = states of the block's people at step h: from v^T dM_{h-1} (who arrived) and dM_h 1 (who left),
               by inverse variance, projected on {n >= 0, sum n = length of the block};  v solves phi(s,a)^T v = 1
    Gram       G_h += sum_s n_h(s) sum_a pi_h(a|s) phi phi^T, with pi the policy that was published: always PSD
    moments    M_h += (G_h v - M_h 1) 1^T / S, since M_h 1 = G_h v without noise
    planning   for h = H, ..., 1, with V = V_{h+1} in [lo, hi], R = hi - lo, u = V - (lo + hi)/2, q = R^2/12:
                 tau^2 = q/m2,  s2 = s^2 (|u|^2 + c q),  D_i = g_i^2 tau^2 + g_i q + s2         (G_h = sum g_i b_i b_i^T)
                 PV    = (lo + hi)/2 + sum_i x_i tau^2 g_i (M_h u)_i / D_i,  clipped to [lo, hi]
                 width = sqrt(r sum_i x_i^2 q/(g_i + 1/12) + sum_i x_i^2 tau^2 s2/D_i)
                 Q_h   = r_h + min(PV + bonus width, hi);  V_h = max_a Q_h;  pi_h greedy, ties shared

The estimate is the posterior mean of a regression whose prior makes PV uniform on the range of V: m2 is the mean of
|phi|^2, s^2 the variance of an entry of M_h, c = 1/(1/|v|^2 + 1/S) what the counts add to it, and
r = clip(12 Var/R^2, .02, 1) with Var the estimated variance of V(s'). Centring matters most: a ridge that shrinks V
towards 0 locks in. Without noise s^2 = 0, and the same lines are the algorithm without privacy.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.learners._base import AbstractOnlineLearner, Plan
from privrl.learners._consistency import lowered_to
from privrl.mdp import AbstractFeatures, OneHotFeatures, TabularPolicy
from privrl.privacy import Declared, Release, every
from privrl.statistics._next_states import FeatureTransitions, StartCounts

_LONGEST = 2**53  # nobody counts more episodes than this


class Seen(eqx.Module):
    """What is remembered between plans, all of it public: the last plan and releases, and the Gram matrices so far."""

    policy: TabularPolicy
    moments: Float[Array, "H slots d"]
    starts: Float[Array, " S"]
    gram: Float[Array, "H d d"]
    num_seen: Int[Array, ""]


class Spectrum(eqx.Module):
    """Gram matrices in their eigenbases: eigenvalues g, the bases (columns), and the features x in them."""

    g: Float[Array, "*H d"]
    basis: Float[Array, "*H d d"]
    x: Float[Array, "*H S A d"]

    @classmethod
    def of(cls, gram: Float[Array, "H d d"], features: AbstractFeatures) -> "Spectrum":
        H, d = gram.shape[:2]
        phi = features.table
        if isinstance(features, OneHotFeatures):  # diagonal already
            basis = jnp.broadcast_to(jnp.eye(d), gram.shape)
            return cls(jnp.diagonal(gram, axis1=1, axis2=2), basis, jnp.broadcast_to(phi, (H, *phi.shape)))
        g, basis = jnp.linalg.eigh(gram)
        return cls(jnp.maximum(g, 0.0), basis, jnp.einsum("sai,hij->hsaj", phi, basis, precision="highest"))


class LSVIUCB(AbstractOnlineLearner):
    """Optimistic least-squares value iteration on linear features of a finite world.

    Arguments:
        features: phi(s, a) with norm at most 1, of which some combination is constantly 1 (as in every linear MDP).
        horizon: number of steps H.
        rewards: known mean rewards `[G, S, A]` in [0, 1], G = 1 or H. Left out they are estimated, and paid for.
        arrival_rewards: known payments `[S]` in [0, 1] for entering a state, instead of `rewards`.
        terminal: public states that end an episode and pay nothing.
        bonus: size of the optimistic bonus.
        growth: how fast the intervals of the schedule grow.
        exploration: share of each interval that plays the optimistic policy.
        every_episode: plan after every episode, always optimistically, instead of on the schedule.
    """

    features: AbstractFeatures
    horizon: int = eqx.field(static=True)
    rewards: Float[Array, "G S A"] | None = None
    arrival_rewards: Float[Array, " S"] | None = None
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    bonus: Float[Array, ""] = eqx.field(converter=lambda x: jnp.asarray(x, float), default=1.0)
    growth: float = eqx.field(static=True, default=1.3)
    exploration: float = eqx.field(static=True, default=0.1)
    every_episode: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if not (self.growth > 1.0 and 0.0 < self.exploration <= 1.0):
            raise ValueError(
                f"`growth` is {self.growth} and `exploration` {self.exploration}; use a growth above 1 and a share in "
                "(0, 1]."
            )
        if self.rewards is not None and self.arrival_rewards is not None:
            raise ValueError("`rewards` and `arrival_rewards` are both given; say in one way what is known.")
        S = self.features.num_states
        outside = [s for s in self.terminal if not 0 <= s < S]
        if outside:
            raise ValueError(f"`terminal` names {outside}; states are numbered from 0 to {S - 1}.")
        if not isinstance(self.features.table, jax.core.Tracer):
            gap = float(jnp.max(jnp.abs(self.features.table @ constant_weights(self.features) - 1.0)))
            if not gap <= 1e-6:
                raise ValueError(
                    "No combination of the `features` is constantly 1, so no linear MDP has them (probabilities add up "
                    "to 1). Append a constant feature and divide by the largest norm."
                )

    @property
    def _estimates_rewards(self) -> bool:
        return self.rewards is None and self.arrival_rewards is None

    @property
    def _live(self) -> Bool[Array, " S"]:
        return jnp.ones(self.features.num_states, bool).at[jnp.asarray(self.terminal, int)].set(False)

    def bounds(self) -> dict[str, Any]:
        known = "estimated" if self._estimates_rewards else "known"
        bounds: dict[str, Any] = {"feature norm": 1.0, "horizon": self.horizon, "rewards": known}
        return bounds | ({"reward range": [0.0, 1.0]} if self._estimates_rewards else {})

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        if self.every_episode:
            return every(num_users, 1)
        ends, _ = explore_then_exploit(self.growth, self.exploration)
        return np.append(ends[ends < num_users], num_users)

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        moments = FeatureTransitions(self.features, self.horizon, with_rewards=self._estimates_rewards)
        starts = StartCounts(self.features.num_states)
        return (
            Declared("moments", moments, access="running", times=num_blocks, weight=self.horizon),
            Declared("starts", starts, access="running", times=num_blocks, weight=1.0),
        )

    def init(self) -> Seen:
        H, S, A, d = self.horizon, self.features.num_states, self.features.num_actions, self.features.dim
        moments = jnp.zeros((H, S + self._estimates_rewards, d))
        policy = TabularPolicy.uniform(H, S, A)
        return Seen(policy, moments, jnp.zeros(S), jnp.zeros((H, d, d)), jnp.zeros((), int))

    def plan(
        self,
        memory: Seen,
        released: Mapping[str, Release],
        ask: Callable[[str, int, Any], Release],
        num_seen: Int[Array, ""],
    ) -> tuple[Seen, Plan]:
        del ask
        S = self.features.num_states
        moments, starts = released["moments"], released["starts"]
        v = constant_weights(self.features)
        dM = (moments.value - memory.moments)[:, :S]
        pi = memory.policy.probabilities
        n = state_counts(
            dM,
            starts.value - memory.starts,
            pi,
            self.features.table,
            v,
            self._live,
            (num_seen - memory.num_seen).astype(float),
            moments.noise.variance,
            starts.noise.variance,
        )
        gram = memory.gram + gram_of_policy(n * self._live, pi, self.features.table)
        M = consistent_moments(moments.value[:, :S], gram, v)
        Q = self._values(M, moments.value[:, S:], gram, v, moments.noise.variance, self._optimism(num_seen))
        policy = TabularPolicy.greedy(Q)
        return Seen(policy, moments.value, starts.value, gram, num_seen), Plan(policy)

    def _optimism(self, num_seen: Int[Array, ""]) -> Float[Array, ""]:
        """The size of the bonus in the coming block: 0 where the schedule plays the greedy policy."""
        if self.every_episode:
            return self.bonus
        ends, optimistic = explore_then_exploit(self.growth, self.exploration)
        block = jnp.searchsorted(jnp.asarray(ends), num_seen, side="right")
        return jnp.where(jnp.asarray(optimistic)[block], self.bonus, 0.0)

    def _values(
        self,
        M: Float[Array, "H S d"],
        reward_moments: Float[Array, "H columns d"],
        gram: Float[Array, "H d d"],
        v: Float[Array, " d"],
        variance: Float[Array, ""],
        bonus: Float[Array, ""],
    ) -> Float[Array, "H S A"]:
        """Backward induction: Q of every step."""
        S, A = self.features.num_states, self.features.num_actions
        spectrum = Spectrum.of(gram, self.features)
        m2 = (self.features.table**2).sum(axis=-1).mean()
        paid = jnp.zeros(S) if self.arrival_rewards is None else self.arrival_rewards

        def stage(V: Float[Array, " S"], inputs: Any) -> tuple[Array, Array]:
            known, M_h, R_h, at = inputs
            PV = optimistic_mean(at, M_h, V + paid, v, m2, variance, bonus)
            Q = PV + (mean_reward(at, R_h[0], v, m2, variance, bonus) if self._estimates_rewards else known)
            return jnp.where(self._live, Q.max(axis=-1), 0.0), Q

        known = jnp.zeros((1, S, A)) if self.rewards is None else self.rewards
        known = jnp.broadcast_to(known, (self.horizon, S, A))
        _, Q = jax.lax.scan(stage, jnp.zeros(S), (known, M, reward_moments, spectrum), reverse=True)
        return Q


@lru_cache(maxsize=64)
def explore_then_exploit(growth: float, exploration: float) -> tuple[Int[np.ndarray, " B"], Bool[np.ndarray, " B"]]:
    """Public ends of blocks without end, and which of them explore.

    Interval i has ceil(growth^i) episodes; the first share `exploration` of them, at least one, explores.
    """
    ends, explores, end, i = [], [], 0, 0
    while end < _LONGEST:
        length = math.ceil(growth**i)
        first = max(1, math.floor(exploration * length))
        for size, flag in ((first, True), (length - first, False)):
            if size > 0:
                end += size
                ends.append(end)
                explores.append(flag)
        i += 1
    return np.array(ends, np.int64), np.array(explores)


def constant_weights(features: AbstractFeatures) -> Float[Array, " d"]:
    """The smallest v with phi(s, a)^T v = 1 everywhere."""
    if isinstance(features, OneHotFeatures):
        return jnp.ones(features.dim)
    X = features.table.reshape(-1, features.dim)
    return jnp.linalg.lstsq(X, jnp.ones(X.shape[0]))[0]


def state_counts(
    dM: Float[Array, "H S d"],
    dstarts: Float[Array, " S"],
    pi: Float[Array, "H S A"],
    phi: Float[Array, "S A d"],
    v: Float[Array, " d"],
    live: Bool[Array, " S"],
    length: Float[Array, ""],
    variance: Float[Array, ""],
    start_variance: Float[Array, ""],
) -> Float[Array, "H S"]:
    """How many people of a block were in each state at each step; whoever reached a terminal state stays in it.

    Arrivals v^T dM_{h-1} have noise of variance |v|^2 s^2. Departures dM_h 1 = sum_s n(s) phi_pi(s) + noise of variance
    S s^2 per coordinate, and where the policy mixes actions also what their luck adds. With `ratio` the variance of an
    arrival over that of a departure, n minimises |n - arrivals|^2 + ratio |sum_s n(s) phi_pi(s) - departures|^2. All
    blocks share one scale of noise, so the ratio is about right whatever the correlation of consecutive releases;
    without noise arrivals are exact, and the ratio is 0.
    """
    S = dM.shape[1]
    mean = jnp.einsum("hsa,sad->hsd", pi, phi, precision="highest") * live[:, None]
    luck = jnp.einsum("hsa,sa->hs", pi, (phi**2).sum(axis=-1)) * live - (mean**2).sum(axis=-1)
    arrivals = jnp.concatenate([dstarts[None], jnp.matmul(dM[:-1], v, precision="highest")])
    of_arrivals = jnp.full(dM.shape[0], (v @ v) * variance).at[0].set(start_variance)
    of_departures = S * variance + length * jnp.maximum(luck, 0.0).mean(axis=-1)
    ratio = of_arrivals / jnp.where(of_arrivals > 0, of_departures, 1.0)
    system = jnp.eye(S) + ratio[:, None, None] * jnp.einsum("hsd,htd->hst", mean, mean, precision="highest")
    known = arrivals + ratio[:, None] * jnp.einsum("hsd,hd->hs", mean, dM.sum(axis=1), precision="highest")
    estimates = jnp.linalg.solve(system, known[..., None])[..., 0]

    def project(gone: Float[Array, " S"], estimate: Float[Array, " S"]) -> tuple[Array, Array]:
        n = lowered_to(estimate + gone, length)
        return jnp.where(live, 0.0, n), n

    return jax.lax.scan(project, jnp.zeros(S), estimates)[1]


def gram_of_policy(
    counts: Float[Array, "H S"], pi: Float[Array, "H S A"], phi: Float[Array, "S A d"]
) -> Float[Array, "H d d"]:
    """sum_s n_h(s) sum_a pi_h(a|s) phi phi^T: what people in these states contribute under a published policy."""
    weighted = (counts[..., None] * pi)[..., None] * phi
    return jnp.einsum("hsai,saj->hij", weighted, phi, precision="highest")


def consistent_moments(
    M: Float[Array, "H S d"], gram: Float[Array, "H d d"], v: Float[Array, " d"]
) -> Float[Array, "H S d"]:
    """Moments whose sum over next states is G v, as it is without noise; what is missing is spread evenly."""
    missing = jnp.matmul(gram, v, precision="highest") - M.sum(axis=1)
    return M + missing[:, None, :] / M.shape[1]


def regression(
    at: Spectrum,
    targets: Float[Array, " d"],
    width: Float[Array, ""],
    size: Float[Array, ""],
    v: Float[Array, " d"],
    m2: Float[Array, ""],
    variance: Float[Array, ""],
) -> tuple[Float[Array, "S A"], Float[Array, "S A"]]:
    """Posterior mean of x^T w, and how much of its variance is due to privacy noise.

    `targets` is a sum of phi y with y centred in a public range of this `width`, plus noise of variance
    `size * variance` per coordinate; the prior of x^T w is uniform on the range.
    """
    S = at.x.shape[0]
    q = width**2 / 12.0
    tau2 = q / m2
    c = 1.0 / (1.0 / (v @ v) + 1.0 / S)
    s2 = variance * (size + c * q)
    D = at.g**2 * tau2 + at.g * q + s2
    gain = tau2 / jnp.where(D > 0, D, 1.0)
    w = gain * at.g * jnp.matmul(targets, at.basis, precision="highest")
    return jnp.matmul(at.x, w, precision="highest"), jnp.matmul(at.x**2, gain * s2, precision="highest")


def optimistic_mean(
    at: Spectrum,
    M: Float[Array, "S d"],
    V: Float[Array, " S"],
    v: Float[Array, " d"],
    m2: Float[Array, ""],
    variance: Float[Array, ""],
    bonus: Float[Array, ""],
) -> Float[Array, "S A"]:
    """The mean of V(s') after every (s, a), plus `bonus` times its uncertainty, within the range of V."""
    lo, hi = V.min(), V.max()
    R, mid = hi - lo, (lo + hi) / 2
    u = V - mid

    def mean_of(u: Float[Array, " S"], R: Float[Array, ""]) -> tuple[Array, Array]:
        return regression(at, jnp.matmul(u, M, precision="highest"), R, (u**2).sum(), v, m2, variance)

    centred, doubt = mean_of(u, R)
    centred = jnp.clip(centred, -R / 2, R / 2)
    squares, _ = mean_of(u**2 - R**2 / 8, R**2 / 4)
    squares = jnp.clip(squares + R**2 / 8, 0.0, R**2 / 4)
    spread = 12.0 * (squares - centred**2) / jnp.where(R > 0, R**2, 1.0)
    luck = R**2 / 12.0 * jnp.matmul(at.x**2, 1.0 / (at.g + 1.0 / 12.0), precision="highest")
    width = jnp.sqrt(jnp.clip(spread, 0.02, 1.0) * luck + doubt)
    return jnp.minimum(mid + centred + bonus * width, hi)


def mean_reward(
    at: Spectrum,
    targets: Float[Array, " d"],
    v: Float[Array, " d"],
    m2: Float[Array, ""],
    variance: Float[Array, ""],
    bonus: Float[Array, ""],
) -> Float[Array, "S A"]:
    """Mean rewards in [0, 1] from the sums of phi (r - 1/2), plus `bonus` times their uncertainty."""
    centred, doubt = regression(at, targets, jnp.ones(()), jnp.ones(()), v, m2, variance)
    luck = jnp.matmul(at.x**2, 1.0 / (at.g + 1.0 / 12.0), precision="highest") / 12.0
    return jnp.clip(0.5 + jnp.clip(centred, -0.5, 0.5) + bonus * jnp.sqrt(luck + doubt), 0.0, 1.0)
