"""OFULQ: optimistic control of linear systems, Private-OFU-RL [chowdhury-zhou-shroff Algorithm 1].

People are episodes of x' = Theta^T z + w with z = [x; u] and unknown Theta = [A, B]^T; the costs Q and R are public.

     1: counters of sum z z^T and sum z x'^T      (release `moments`, or `gram` and `cross` of the paper)
     2: for each block of people (the paper: for each person):
     3:     T1, T2 = the released sums
            V      = T1 + (lambda + r Lambda) I,  Theta^ = V^{-1} T2
     4:     C      = {Theta: |Theta - Theta^|_V <= radius beta} and |Theta|_F <= S
            beta   = Cw sqrt(2 ln(2/failure) + n ln det(V/lmin)) + S sqrt(lmax) + L/sqrt(lmin)
            lmin   = lambda + (r - 1) Lambda,  lmax = lambda + (r + 1) Lambda
     5:     Theta~ = the member of C with the least optimal cost J*, in the mean over first states
     6:     for each step h:
     7:         u_h = K_h(Theta~) x_h, the gains cut to spectral norm gamma
     8:         x_{h+1} comes
     9:     the episode's sums go to the counters

Lambda bounds the spectral norm of the noise in T1 and L the Frobenius norm of that in T2. Without noise both are 0, and
this is optimism with the ridge lambda.

What differs from the paper. The paper's beta has the determinant of the raw sum, which is not private: det(V/lmin)
is, and V is at least that sum + lmin I whenever Lambda holds. It asserts that the best gains have norm at most gamma,
which its assumptions do not give (A=.8, B=.5, R=.1 has |K| = 1.2), so gains are cut; no sensitivity rests on that. It
prints one release per person; here blocks end at public, growing times. Its noise and constants are
`OFULQ.paper(...)`.

J* is least wherever A = 0, so as long as Theta = 0 is in C the optimist does nothing at all. With the printed
constants that lasts for tens of thousands of people at epsilon = 1: beta^2 is above 3 Lambda, Lambda tens of sigma_1,
and 0 leaves C only when |Theta^|_V^2, at most |A|^2 times the sum of |x|^2, exceeds it.

A `radius` of 1 is what the concentration inequality asks for. A tenth of that learns much sooner, but C then holds
the true system only part of the time. The inequality itself takes every episode's weight in the sums (the clip) as
given. Until B is known a confidence set holds both signs of it, and an optimist who picks the wrong one does worse
than nothing: expect a running average regret of up to two or three times the zero controller's before it falls.
`CautiousLQ` avoids this.
"""

import math
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from privrl.contracts.learner import AbstractOnlineLearner, OnlineAsk, Plan, Releases
from privrl.contracts.noise_distribution import AbstractNoise
from privrl.contracts.release import Declared
from privrl.learners.control.optimism import ConfidenceSet, most_optimistic
from privrl.mdp.lq import LinearPolicy, LQTask
from privrl.mdp.riccati import clip_norm, optimal_cost, riccati
from privrl.mdp.types import number
from privrl.privacy.continual.mechanisms import every, geometric_schedule
from privrl.privacy.noise.distributions import GaussianNoise, LaplaceNoise, SymmetricNoise
from privrl.statistics.lq_moments import LQCross, LQGram, LQMoments, from_upper, joint_weight
from privrl.statistics.setting_checks import check_choice


class ReleasedSums(eqx.Module):
    """Released sums of z z^T and z x'^T, with a bound on the spectral and on the Frobenius norm of their noise."""

    gram: Float[Array, "p p"]
    cross: Float[Array, "p n"]
    gram_noise: Float[Array, ""]
    cross_noise: Float[Array, ""]


class OFULQ(AbstractOnlineLearner):
    """Optimistic control of an unknown linear system, from running sums over people.

    >>> world = privrl.envs.make("lq-scalar")
    >>> learner = privrl.OFULQ(world.task)
    >>> privrl.run(world, learner, privrl.Central(epsilon=1, delta=1e-6), episodes=100, key=0)
    Run(OFULQ, 1 seed of 100 episodes, joint privacy, epsilon 1, delta 1e-06, simulated noise)

    Arguments:
        task: what is public: costs, horizon, bounds.
        radius: how much of the confidence radius beta to use. 1 covers the truth with high probability; .1 learns
            sooner and covers it part of the time.
        ridge: lambda.
        noise_ridge: r > 1, how many times the bound Lambda on the noise is added to the diagonal.
        strategy: `"optimism"`, or `"certainty"`: the gains of the estimate itself, with exploration.
        exploration: for `"certainty"`: the people of a block explore on a sphere of radius
            `exploration` gamma/(1 + people so far)^(1/4).
        trace_bound: tau of the episode clip; by default the squared norm of the first state, which scales all people to
            the same trace. Only the ratio to the typical trace matters, so small is safe.
        growth, first_block: the public schedule: the first block of people, and how fast the blocks grow.
        failure: with this probability a bound on noise may fail at one plan (utility only, never privacy).
        every_person: plan after every person instead.
        paper_users: the K of the paper's constants; with it, sums are released apart, as the paper does.

    Raises:
        ValueError: a setting is out of its range.
    """

    task: LQTask
    radius: Float[Array, ""] = eqx.field(converter=number, default=0.1)
    ridge: Float[Array, ""] = eqx.field(converter=number, default=0.1)
    noise_ridge: Float[Array, ""] = eqx.field(converter=number, default=1.2)
    strategy: str = eqx.field(static=True, default="optimism")
    exploration: Float[Array, ""] = eqx.field(converter=number, default=0.2)
    trace_bound: float | None = eqx.field(static=True, default=None)
    growth: float = eqx.field(static=True, default=1.25)
    first_block: int = eqx.field(static=True, default=20)
    failure: float = eqx.field(static=True, default=0.05)
    every_person: bool = eqx.field(static=True, default=False)
    paper_users: int | None = eqx.field(static=True, default=None)
    reads_newest_sums: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_choice("strategy", self.strategy, ("optimism", "certainty"))

    @classmethod
    def paper(cls, task: LQTask, num_users: int = 100_000) -> "OFULQ":
        """[chowdhury-zhou-shroff A1] with printed constants, for `Published(..., continual="tree")`.

        `num_users` is the K of the constants, which hold it in logarithms only.
        """
        printed: dict[str, Any] = {"radius": 1.0, "noise_ridge": 2.0, "every_person": True, "paper_users": num_users}
        return cls(task, **printed)

    @property
    def horizon(self) -> int:
        return self.task.horizon

    def bounds(self) -> dict[str, object]:
        enforced: dict[str, object] = {"horizon": self.horizon, "rewards": "known"}
        if self.paper_users is not None:
            return enforced | {"state norm": 1.0, "input norm": float(self.task.gain_bound)}
        return enforced | {"trace of the moments of an episode": self._moments.trace_bound}

    @property
    def _moments(self) -> LQMoments:
        task = self.task
        tau = float(task.first_radius) ** 2 if self.trace_bound is None else self.trace_bound
        return LQMoments(task.state_dim, task.input_dim, task.horizon, joint_weight(float(task.gain_bound)), tau)

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        if self.every_person:
            return every(num_users, 1)
        return geometric_schedule(num_users, self.growth, min(self.first_block, num_users))

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:  # [chowdhury-zhou-shroff A1:1] a leaf is a block
        if self.paper_users is None:
            return (Declared("moments", self._moments, access="running", times=num_blocks),)
        sizes = (self.task.state_dim, self.task.input_dim, self.horizon, float(self.task.gain_bound))
        return (
            Declared("gram", LQGram(*sizes), access="running", times=num_blocks),
            Declared("cross", LQCross(*sizes), access="running", times=num_blocks),
        )

    def plan(self, memory: None, released: Releases, ask: OnlineAsk, num_seen: Int[Array, ""]) -> tuple[None, Plan]:
        del ask
        task, n = self.task, self.task.state_dim
        confident = self.confidence_set(self._sums(released, num_seen))
        explored = jnp.zeros(())
        if self.strategy == "optimism":
            Theta = most_optimistic(self._optimal_cost, confident, n)  # [chowdhury-zhou-shroff A1:5] local searches
        else:
            Theta = confident.parameters(confident.centre)
            explored = jnp.minimum(self.exploration * (1.0 + num_seen) ** -0.25, 0.5) * task.gain_bound
        gains, _ = riccati(Theta[:n].T, Theta[n:].T, task.state_cost, task.input_cost, self.horizon)
        gains = clip_norm(gains, task.gain_bound - explored)  # [chowdhury-zhou-shroff A1:7] cut, Lemma 2 is false
        return None, Plan(LinearPolicy(gains, explored))

    def _sums(self, released: Releases, num_seen: Int[Array, ""]) -> ReleasedSums:
        """The releases, with bounds on their noise, which are 0 without noise."""
        n, p = self.task.state_dim, self.task.state_dim + self.task.input_dim
        if self.paper_users is None:
            moments = released["moments"]  # [chowdhury-zhou-shroff A1:3] both sums in one release
            c = jnp.sqrt((math.sqrt(2.0) - 1.0) * (1.0 + self.task.gain_bound**2))
            gram_noise, cross_noise = _noise_of_blocks(moments.noise, p, n)
            return ReleasedSums(
                moments.value[:p, :p],
                moments.value[:p, p:] / c,
                gram_noise.spectral_bound(self.failure),
                cross_noise.norm_bound(self.failure) / c,
            )
        # The paper's bounds are for all m levels of its tree; a sum over k people has as many nodes as k has digits 1.
        gram, cross = released["gram"], released["cross"]
        K, alpha = self.paper_users, self.failure
        m = max(math.ceil(math.log2(K)), 1)
        all_levels = jnp.sqrt(m / jnp.maximum(jnp.bitwise_count(num_seen).astype(float), 1.0))
        return ReleasedSums(
            from_upper(gram.value, p),
            cross.value,
            all_levels * gram.noise.std.max() * (4 * math.sqrt(p) + math.sqrt(8 * math.log(4 * K / alpha))),
            all_levels * cross.noise.std.max() * (math.sqrt(2 * n * p) + math.sqrt(4 * math.log(2 * K / alpha))),
        )

    def confidence_set(self, sums: ReleasedSums) -> ConfidenceSet:
        """The set of systems that released sums allow, around a ridge regression of them."""
        task, n = self.task, self.task.state_dim
        p = n + task.input_dim
        eta = self.ridge + self.noise_ridge * sums.gram_noise
        lmin = self.ridge + (self.noise_ridge - 1.0) * sums.gram_noise
        v, E = jnp.linalg.eigh(sums.gram + eta * jnp.eye(p))
        v = jnp.maximum(v, lmin)  # changes nothing while the bound on the noise holds
        estimate = (E / v[None]) @ (E.T @ sums.cross)  # [chowdhury-zhou-shroff eq:7]
        chance = 2.0 * math.log(2.0 / self.failure) + n * jnp.log(v / lmin).sum()
        beta = (
            task.noise_radius * jnp.sqrt(chance)  # [chowdhury-zhou-shroff L1] det of the released V, not of the raw sum
            + task.parameter_radius * jnp.sqrt(eta + sums.gram_noise)
            + sums.cross_noise / jnp.sqrt(lmin)
        )
        # [chowdhury-zhou-shroff A1:4] with the radius of L1 as corrected
        return ConfidenceSet.around(estimate, (E * v[None]) @ E.T, self.radius * beta, task.parameter_radius)

    def _optimal_cost(self, Theta: Float[Array, "p n"]) -> Float[Array, ""]:
        """J*, with noise uniform on its sphere."""
        task, n = self.task, self.task.state_dim
        costs = (task.state_cost, task.input_cost, task.first_moment)
        return optimal_cost(Theta[:n].T, Theta[n:].T, *costs, task.largest_noise, self.horizon)


def _noise_of_blocks(noise: AbstractNoise, p: int, n: int) -> tuple[AbstractNoise, AbstractNoise]:
    """The noise of the first p rows and columns of the moments, and that of the p rows next to them."""
    if isinstance(noise, LaplaceNoise):
        gram = LaplaceNoise(noise.scale, (p, p), noise.terms, symmetric=True)
        return gram, LaplaceNoise(noise.scale, (p, n), noise.terms)
    assert isinstance(noise, SymmetricNoise)
    return SymmetricNoise(noise.scale, p), GaussianNoise(noise.scale / math.sqrt(2.0), (p, n))
