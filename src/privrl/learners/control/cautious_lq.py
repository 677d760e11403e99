"""CautiousLQ: control of an unknown linear system that is never much worse than doing nothing while it learns.

Our own algorithm for the setting of Chowdhury, Zhou and Shroff: they are optimistic, and optimism about a linear system
is expensive until it is known. Public are Q, R, H, gamma, the radius Smax of the parameters, the noise bound Cw and the
second moment X1 of the first state. Theta = [A, B]^T, p = n + d, z = [x; u].

1. Blocks of people with one policy each, growing by 1.5; each person is in one block, so there is no last user.
2. Belief: the columns of Theta are independent N(Th_j, Sg), at first N(0, s0 I) with s0 = Smax^2/(p n).
3. Cautious gain: Riccati recursion with M = E[Theta P Theta^T] = Th P Th^T + tr(P) Sg in place of what is known:
   K = -(R + M_uu)^{-1} M_ux, P <- Q + M_xx + M_xu K; then ||K_h|| <= gamma - r.
4. Exploration: v_h uniform on the sphere of radius r <= gamma/2, with r^2/d sum_h tr(R + M_uu) = kappa J, where J is
   the believed cost of doing nothing within [tr(Q X1), H ||Q||] and kappa = .005 sqrt(tr Sg_BB/(d s0)): it costs at
   most half a per cent of what doing nothing costs, and vanishes as B becomes known.
5. Gate: with D_a = J(a K) - J(0) over nodes that stand for the belief, a = 1 if mean + 2 sd of D_1 is at most 0,
   otherwise the best of {0, 1/4, 1/2, 3/4, 1} in mean + 2 sd. The first gain that is played is thus a safe one.
6. People report surprises, clipped at 1.5 times the root mean square that the belief predicts (`Innovations`).
7. Their sums over a block are released with noise.
8. Kalman step on the belief, with what is known of mean, sampling and noise of the sums. Before it the covariance is
   forgotten a little, Sg^-1 <- .7 Sg^-1 + .3/s0; and if the sums are more surprising than the belief allows, Sg is
   widened until they are not.

Step 5 needs no random numbers: the nodes are a fixed point set of mean 0 and covariance I (`_nodes`). In step 8 the
sampling noise of s_x is nb X1 (Cw^2/n + tr(Sg Z_1)), made like that of s_v: without its second part the mean of
x_1 x_1^T over a first block of 20 people passes for X1, and without noise one run in thirty of `lq-4d` does harm. With
`caution=0` the learner takes its mean belief for the truth: certainty equivalence with exploration, a baseline.

With `returns` > 0 people return, and the number nb of records in a block is secret. A share of the budget then counts
them (release `records`), and nb is what `learners/returns.py` makes of the count, with relative variance
nu^2 = Var/nb^2. Both releases are paid for in full. Two people whose surprises are opposite have equal counts, so no
two are as far apart as is certified. The sums are nb C_1 (Theta - Th_0) + errors, with Th_0 the belief that was
published. If nb is off by a factor 1 + nu, the errors of column j grow by the variance nu^2 C (Sg + D_j D_j^T) C^T,
D = Th - Th_0, of which step 8 takes the mean over columns: the first part is more of the mismatch, the second is 0
unless plans lag.

**Formal guarantee.** A plan is a function of releases, of public numbers of first arrivals and of settings:
post-processing. With `returns` = 0 nothing is released or computed otherwise than without it.
"""

import functools
import math
from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from privrl.contracts.learner import AbstractOnlineLearner, OnlineAsk, Plan, Releases
from privrl.contracts.release import Declared, Release
from privrl.learners.returns import check_returns, number_of_records
from privrl.mdp.lq import LinearPolicy, LQTask
from privrl.mdp.riccati import clip_norm, linear_cost
from privrl.mdp.types import number
from privrl.privacy.continual.mechanisms import geometric_schedule
from privrl.statistics.gradients import EpisodeCount
from privrl.statistics.innovations import FirstStates, Innovations, Surprise

_RECORDS = 0.15  # budget of the number of records, against that of everything else


class Belief(eqx.Module):
    """Independent N(mean_j, covariance) for the columns of Theta = [A, B]^T."""

    mean: Float[Array, "p n"]
    covariance: Float[Array, "p p"]


class Memory(eqx.Module):
    """What the learner knows: all of it computed from releases, so public."""

    belief: Belief
    surprise: Surprise  # what was published to those who are in the next sums,
    gain: Float[Array, "d n"]  # the gain of its first step,
    radius: Float[Array, ""]  # its exploration,
    spread: Float[Array, ""]  # and its predicted squared surprise, summed over steps, without noise
    first_sum: Float[Array, "n n"]  # released sums of x_1 x_1^T / r1^2, where these are released,
    first_noise: Float[Array, ""]  # the variance of the noise in them,
    counted: Shaped[Array, ""]  # and the number of records in them
    seen: Int[Array, ""]  # people who are accounted for


class CautiousLQ(AbstractOnlineLearner):
    """Learns to control a linear system from clipped surprises, with a gate against harm.

    >>> world = privrl.envs.make("lq-scalar")
    >>> learner = privrl.CautiousLQ(world.task)
    >>> privrl.run(world, learner, privrl.Central(epsilon=1, delta=1e-6), episodes=100, key=0)
    Run(CautiousLQ, 1 seed of 100 episodes, joint privacy, epsilon 1, delta 1e-06, simulated noise)

    Arguments:
        task: what is public about the system.
        first_moment: X1 where the first state is not uniform on its sphere; public.
        first_moment_share: share of the budget for learning X1, since a wrong one biases the belief; `first_moment` is
            then a guess.
        caution: how many of its own standard deviations the learner fears; 0 is certainty equivalence.
        exploration: the largest cost of exploration, as a share of what doing nothing costs.
        pessimism: standard deviations of the gate.
        clip: clip level of surprises, in predicted root mean squares.
        forgetting: what remains of the old precision in each block.
        mismatch: variance of what the model of the sums misses, relative to their mean squares.
        growth, first_block: the public schedule. Where the noise is large (mu < sqrt(p n)/20), a first block of
            sqrt(p n)/mu people wastes less.
        returns: how many further episodes of each person may be in the sums, where how many are is secret.

    Below a stake (J_zero - J*)/J_zero of about 5% exploration can cost more than a tenth of what there is to win.

    Raises:
        ValueError: a setting is out of its range.
    """

    task: LQTask
    first_moment: Float[Array, "n n"] | None = None
    first_moment_share: float = eqx.field(static=True, default=0.0)
    caution: Float[Array, ""] = eqx.field(converter=number, default=1.0)
    exploration: Float[Array, ""] = eqx.field(converter=number, default=0.005)
    pessimism: Float[Array, ""] = eqx.field(converter=number, default=2.0)
    clip: Float[Array, ""] = eqx.field(converter=number, default=1.5)
    forgetting: Float[Array, ""] = eqx.field(converter=number, default=0.7)
    mismatch: Float[Array, ""] = eqx.field(converter=number, default=0.0625)
    growth: float = eqx.field(static=True, default=1.5)
    first_block: int = eqx.field(static=True, default=20)
    returns: int = eqx.field(static=True, default=0)
    one_plan_per_block: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_returns(self.returns)
        if not 0.0 <= self.first_moment_share < 1.0:
            raise ValueError(f"`first_moment_share` is {self.first_moment_share}; a share lies in [0, 1).")

    @property
    def horizon(self) -> int:
        return self.task.horizon

    def bounds(self) -> dict[str, object]:
        return {"horizon": self.horizon, "surprises": "clipped at levels from earlier releases", "costs": "known"}

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        return geometric_schedule(num_users, self.growth, min(self.first_block, num_users))

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        n, d, share = self.task.state_dim, self.task.input_dim, self.first_moment_share
        declared = [Declared("surprises", Innovations(n, d), access="blocks", times=num_blocks, weight=1.0 - share)]
        if share > 0.0:
            first = FirstStates(n, self.task.first_radius)
            declared.append(Declared("first states", first, access="blocks", times=num_blocks, weight=share))
        if self.returns:
            declared.append(Declared("records", EpisodeCount(), access="blocks", times=num_blocks, weight=_RECORDS))
        return tuple(declared)

    def with_returns(self, returns: int) -> "CautiousLQ":
        return replace(self, returns=returns)

    def init(self) -> Memory:
        n, p = self.task.state_dim, self.task.state_dim + self.task.input_dim
        prior = Belief(jnp.zeros((p, n)), self._prior_variance * jnp.eye(p))
        one, zero = jnp.ones(()), jnp.zeros((), int)
        gain = jnp.zeros((p - n, n))
        counted = jnp.zeros(()) if self.returns else zero
        return Memory(
            prior, Surprise(prior.mean, one, one), gain, one, one, jnp.zeros((n, n)), 0.0 * one, counted, zero
        )

    def acted_on(self, memory: Memory, published: Memory, others: Int[Array, ""]) -> Memory:
        changed = (published.surprise, published.gain, published.radius, published.spread, memory.seen + others)
        return eqx.tree_at(lambda m: (m.surprise, m.gain, m.radius, m.spread, m.seen), memory, changed)

    def plan(self, memory: Memory, released: Releases, ask: OnlineAsk, num_seen: Int[Array, ""]) -> tuple[Memory, Plan]:
        del ask
        first_sum, first_noise = memory.first_sum, memory.first_noise
        if self.first_moment_share > 0.0:
            first_sum = first_sum + released["first states"].value
            first_noise = first_noise + jnp.max(released["first states"].noise.variance)
        people, unsure = num_seen - memory.seen, None
        if self.returns:
            count, most = released["records"], self.returns * num_seen.astype(float)
            people, variance = number_of_records(count.value, count.noise.variance, people.astype(float), most)
            unsure = variance / jnp.maximum(people, 1.0) ** 2
        counted = memory.counted + people
        X1 = self._first_moment(first_sum, first_noise, counted)
        belief = self._updated(memory, X1, released["surprises"], people, unsure)
        gains, r = self._cautious(belief, X1)
        gains = self._gate(belief, X1, gains) * gains
        surprise, spread = self._predicted(belief, X1, gains, r)
        memory = Memory(belief, surprise, gains[0], r, spread, first_sum, first_noise, counted, num_seen)
        return memory, Plan(LinearPolicy(gains, r), surprise)

    @property
    def _prior_variance(self) -> Float[Array, ""]:
        n, p = self.task.state_dim, self.task.state_dim + self.task.input_dim
        return self.task.parameter_radius**2 / (p * n)

    def _first_moment(
        self, total: Float[Array, "n n"], variance: Float[Array, ""], counted: Shaped[Array, ""]
    ) -> Float[Array, "n n"]:
        """X1: public, or the released mean, leaning on the public guess as long as the noise is large."""
        guess = self.task.first_moment if self.first_moment is None else self.first_moment
        if self.first_moment_share == 0.0:
            return guess
        n, r1, people = self.task.state_dim, self.task.first_radius, jnp.maximum(counted, 1).astype(float)
        uncertainty = 1 / n**2  # of the guess, relative to r1^2: it may be wrong by its own size
        weight = (counted > 0) * uncertainty / (uncertainty + variance / people**2 + uncertainty / people)
        mean = weight * (total + total.T) / (2 * people) + (1 - weight) * guess / r1**2
        s, U = jnp.linalg.eigh(mean)
        return r1**2 * (U @ jnp.diag(jnp.clip(s, 1e-3 / n, 1.0)) @ U.T)

    def _updated(
        self,
        memory: Memory,
        X1: Float[Array, "n n"],
        release: Release,
        people: Shaped[Array, ""],
        unsure: Float[Array, ""] | None = None,
    ) -> Belief:
        """Step 8: updates the belief about Theta from the sums of the last block of `people`. If their number is read
        off a release, `unsure` is its relative variance."""
        task, r, K, Sg = self.task, memory.radius, memory.gain, memory.belief.covariance
        n, d, H, Cw2 = task.state_dim, task.input_dim, task.horizon, task.noise_radius**2
        p, num, one = n + d, people.astype(float), jnp.eye(n + d)
        clips = memory.surprise
        tau = jnp.repeat(jnp.stack([clips.first_clip, clips.exploration_clip]), np.array([n, d]), total_repeat_length=p)
        Sg = jnp.linalg.inv(self.forgetting * jnp.linalg.inv(Sg) + (1 - self.forgetting) / self._prior_variance * one)

        XI = jnp.concatenate([X1, X1 @ K.T], axis=1)  # E x_1 z_1^T
        C = jnp.zeros((p, p)).at[:n].set(XI).at[n:, n:].set(H * r**2 / d * jnp.eye(d))
        C = num * C / tau[:, None]  # the sums are C (Theta - published belief) + errors
        y = release.value - C @ (memory.belief.mean - clips.parameters)  # and y = C (Theta - Th) + errors
        Z1 = _moment(X1, K, r)
        sampling = jnp.zeros((p, p)).at[:n, :n].set(X1 * (Cw2 / n + (Sg * Z1).sum()))
        sampling = sampling.at[n:, n:].set(r**2 / d * (memory.spread + H * Cw2) / n * jnp.eye(d))
        N = num * sampling / jnp.outer(tau, tau) + jnp.max(release.noise.variance) * one
        mismatch = self.mismatch
        if unsure is not None:
            shift = C @ (memory.belief.mean - clips.parameters)
            mismatch, N = mismatch + unsure, N + unsure * shift @ shift.T / n
        N = jnp.where(people > 0, N, one)  # before the first block C is 0 and y is 0, so any errors will do

        def errors(Sg: Float[Array, "p p"]) -> Float[Array, "p p"]:
            return mismatch * C @ Sg @ C.T + N

        q = (y * jnp.linalg.solve(C @ Sg @ C.T + errors(Sg), y)).sum() / (p * n)
        Sg = jnp.where(q > 1 + 3 * math.sqrt(2 / (p * n)), q, 1.0) * Sg
        G = jnp.linalg.solve(C @ Sg @ C.T + errors(Sg), C @ Sg).T
        kept = one - G @ C
        posterior = kept @ Sg @ kept.T + G @ errors(Sg) @ G.T  # positive definite whatever the rounding
        belief = Belief(memory.belief.mean + G @ y, (posterior + posterior.T) / 2)
        return jax.tree.map(lambda new, old: jnp.where(people > 0, new, old), belief, memory.belief)

    def _cautious(self, belief: Belief, X1: Float[Array, "n n"]) -> tuple[Float[Array, "H d n"], Float[Array, ""]]:
        """Steps 3 and 4: gains under the belief, and the radius of exploration."""
        task, n, d, H = self.task, self.task.state_dim, self.task.input_dim, self.task.horizon
        Th, Sg, Q, R = belief.mean, self.caution**2 * belief.covariance, task.state_cost, task.input_cost

        def step(P: Float[Array, "n n"], _: None) -> tuple[Array, tuple[Array, Array]]:
            M = Th @ P @ Th.T + jnp.trace(P) * Sg
            K = -jnp.linalg.solve(R + M[n:, n:], M[n:, :n])  # [chowdhury-zhou-shroff eq. 3] in expectation
            P = Q + M[:n, :n] + M[:n, n:] @ K  # [chowdhury-zhou-shroff eq. 4] in expectation
            return (P + P.T) / 2, (K, jnp.trace(R + M[n:, n:]))

        _, (K, paid) = jax.lax.scan(step, jnp.zeros((n, n)), None, length=H, reverse=True)
        J = self._cost(Th, jnp.zeros((H, d, n)), X1)
        J = jnp.clip(J, (Q * X1).sum(), H * jnp.linalg.norm(Q, 2))
        kappa = self.exploration * jnp.sqrt(jnp.trace(belief.covariance[n:, n:]) / (d * self._prior_variance))
        r = jnp.minimum(jnp.sqrt(kappa * J * d / paid.sum()), task.gain_bound / 2)
        return clip_norm(K, task.gain_bound - r), r

    def _gate(self, belief: Belief, X1: Float[Array, "n n"], gains: Float[Array, "H d n"]) -> Float[Array, ""]:
        """Step 5: the share of the gains that is safe to play."""
        spread = jnp.linalg.cholesky(belief.covariance) @ _nodes(*belief.mean.shape)
        possible = belief.mean[None] + self.caution * spread
        shares = jnp.linspace(0.0, 1.0, 5)
        costs = jax.vmap(lambda Theta: jax.vmap(lambda a: self._cost(Theta, a * gains, X1))(shares))(possible)
        D = costs - costs[:, :1]
        feared = D.mean(axis=0) + self.pessimism * D.std(axis=0)
        return jnp.where(feared[-1] <= 0, 1.0, shares[feared.argmin()])

    def _cost(
        self, Theta: Float[Array, "p n"], gains: Float[Array, "H d n"], X1: Float[Array, "n n"]
    ) -> Float[Array, ""]:
        """J of these gains if Theta were true, without exploration."""
        task, n, d = self.task, self.task.state_dim, self.task.input_dim
        costs = (task.state_cost, task.input_cost)
        return linear_cost(Theta[:n].T, Theta[n:].T, *costs, gains, X1, self.task.largest_noise, jnp.zeros((d, d)))

    def _predicted(
        self, belief: Belief, X1: Float[Array, "n n"], gains: Float[Array, "H d n"], r: Float[Array, ""]
    ) -> tuple[Surprise, Float[Array, ""]]:
        """Step 6: the clip levels, and Ex = n sum_h tr(Sg Z_h), from the second moments that the belief predicts."""
        task, Th, Sg = self.task, belief.mean, belief.covariance
        n, d, H, Cw2 = task.state_dim, task.input_dim, task.horizon, task.noise_radius**2

        def step(X: Float[Array, "n n"], K: Float[Array, "d n"]) -> tuple[Array, Array]:
            Z = _moment(X, K, r)
            uncertainty = (Sg * Z).sum()
            X = Th.T @ Z @ Th + uncertainty * jnp.eye(n) + self.task.largest_noise
            return X / jnp.maximum(jnp.trace(X), 1.0), uncertainty

        _, uncertainty = jax.lax.scan(step, X1, gains)
        Ex = n * uncertainty.sum()
        first = jnp.trace(X1) * (n * uncertainty[0] + Cw2)
        explored = r**2 * (Ex + H * Cw2) + H**2 * r**4 * n * jnp.trace(Sg[n:, n:]) / d
        return Surprise(Th, self.clip * jnp.sqrt(first), self.clip * jnp.sqrt(explored)), Ex


def _moment(X: Float[Array, "n n"], K: Float[Array, "d n"], r: Float[Array, ""]) -> Float[Array, "p p"]:
    """E z z^T of z = [x; K x + v], with E x x^T = X and v uniform on the sphere of radius r."""
    d, n = K.shape
    stacked = jnp.concatenate([jnp.eye(n), K])
    return (stacked @ X @ stacked.T).at[n:, n:].add(r**2 / d * jnp.eye(d))


@functools.cache
def _nodes(p: int, n: int) -> Float[np.ndarray, "nodes p n"]:
    """Fixed points that stand for a standard normal p x n matrix: 32 of them, or p n + 8 for large systems.

    Fractional parts of i sqrt(prime_j) (Richtmyer's sequence) through the normal quantile function, then moved and
    stretched to mean 0 and covariance I: means and standard deviations of whatever is linear in Theta are then exact.
    """
    from scipy.special import ndtri

    primes = [k for k in range(2, 12 * p * n + 4) if all(k % f for f in range(2, math.isqrt(k) + 1))][: p * n]
    i = np.arange(1, max(32, p * n + 8) + 1)
    z = ndtri(np.mod(np.outer(i, np.sqrt(primes)), 1.0))
    z -= z.mean(axis=0)
    s, U = np.linalg.eigh(z.T @ z / len(i))
    return (z @ (U / np.sqrt(s)) @ U.T).reshape(len(i), p, n)
