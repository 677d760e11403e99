"""TAP, part 4: advantages of any value function from all rounds, and a policy that stays with practice where they fail.

Round j released sums b_j of r + gamma F_j(s') - F_j(s) by (s, a), noise s_j. The advantage of another function F,

    d(F) = r + g E[F(s')] - F(s) = b_j/N + E[(g F - gamma F_j)(s')] - (F - F_j)(s),

follows with the kernel, at a variance of (s_j/N)^2 plus lam times the kernel's own variance for g F - gamma F_j, which
is small where F is near F_j. With known rewards the kernel alone is one more source. Sources are weighted by precision,
the sampling variance of a visit is added, and the sum is shrunk (`tap_shrinkage.py`). lam is what the newest round
shows the kernel's own claim to be wrong by.

The choice is anchored to practice (`anchor.py`), with  mean - z deviation  as score and kappa the anchor times the root
mean square of the deviations.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from privrl.learners.tabular.advantages import over_practice
from privrl.learners.tabular.anchor import Practice, anchored
from privrl.learners.tabular.tap_kernel import Kernel
from privrl.learners.tabular.tap_shrinkage import posterior

_TINY = 1e-12
_LEAST_LAM, _MOST_LAM = 0.2, 50.0
_ITERATIONS = 30
_CLOSE = 1e-4  # of the largest return


class Evidence(eqx.Module):
    """All releases about advantages so far; a round that is still to come has `made` 0.

    `sums` by (s, a) have noise `noise`, and were taken with the functions `values`; `visit_variance` is the sampling
    variance of one visit. `rewards` and their variances are known where `model` is 1.
    """

    practice: Practice
    kernel: Kernel
    live: Bool[Array, " S"]
    sums: Float[Array, "R SA"]
    noise: Float[Array, " R"]
    values: Float[Array, "R S"]
    made: Float[Array, " R"]
    visit_variance: Float[Array, ""]
    rewards: Float[Array, " SA"]
    reward_variances: Float[Array, " SA"]
    model: Float[Array, ""]
    lam: Float[Array, ""]

    @property
    def visits(self) -> Float[Array, " SA"]:
        """At least 1, and 1 where nothing is visible."""
        return jnp.where(self.practice.visible, jnp.maximum(self.practice.visits, 1.0), 1.0).ravel()


class Judgement(eqx.Module):
    """Public settings of the choice: see `TAP`; and which actions rules allow."""

    discount: float = eqx.field(static=True)
    largest_return: float = eqx.field(static=True)
    anchor: float = eqx.field(static=True)
    pessimism: float = eqx.field(static=True)
    support: float = eqx.field(static=True)
    spread: float = eqx.field(static=True)
    allowed: Bool[Array, "S A"] | None = None


def advantages(
    evidence: Evidence, F: Float[Array, " S"], discount: float, released: float
) -> tuple[Float[Array, " SA"], Float[Array, " SA"]]:
    """d(F) with discount g, and its variance without sampling; `released` is gamma, the discount of the rounds."""
    N, A = evidence.visits, evidence.practice.visits.shape[1]
    F = F[None, :]
    G = jnp.concatenate([discount * F, discount * F - released * evidence.values])
    mean, variance = evidence.kernel.moments(G)
    here = jnp.repeat(F - evidence.values, A, axis=1)
    model = evidence.rewards[None, :] + mean[:1] - jnp.repeat(F, A, axis=1)
    d = jnp.concatenate([model, evidence.sums / N[None, :] + mean[1:] - here])
    error = evidence.lam * variance
    error = error.at[0].add(evidence.reward_variances).at[1:].add((evidence.noise[:, None] / N[None, :]) ** 2)
    weight = jnp.append(evidence.model, evidence.made)[:, None] / (error + _TINY)
    total = weight.sum(axis=0)
    return (weight * d).sum(axis=0) / jnp.maximum(total, _TINY), 1.0 / jnp.maximum(total, _TINY)


@eqx.filter_jit
def with_round(
    evidence: Evidence,
    k: Float[Array, ""],
    sums: Float[Array, "S A"],
    noise: Float[Array, ""],
    F: Float[Array, " S"],
    visit_variance: Float[Array, ""],
    judgement: Judgement,
) -> Evidence:
    """The evidence with round k, and lam from how far it is from what was expected of it.

    The innovation b_k/N - d(F_k) has variance lam times the claimed one, plus that of the round's own noise. Sampling
    errors are the same on both sides.
    """
    N = evidence.visits
    expected, claim = advantages(
        eqx.tree_at(lambda e: e.lam, evidence, jnp.ones(())), F, judgement.discount, judgement.discount
    )
    own = (noise / N) ** 2
    weight = jnp.where(evidence.practice.visible.ravel(), 1.0 / (claim + own + _TINY), 0.0)
    innovation = sums.ravel() / N - expected
    lam = (weight * (innovation**2 - own)).sum() / jnp.maximum((weight * claim).sum(), _TINY)
    known = (jnp.append(evidence.model, evidence.made).sum() > 0) & (evidence.kernel.rest < 1).any()
    at = k.astype(int)
    return eqx.tree_at(
        lambda e: (e.sums, e.noise, e.values, e.made, e.visit_variance, e.lam),
        evidence,
        (
            evidence.sums.at[at].set(sums.ravel()),
            evidence.noise.at[at].set(noise),
            evidence.values.at[at].set(F),
            evidence.made.at[at].set(1.0),
            visit_variance,
            jnp.where(known, jnp.clip(lam, _LEAST_LAM, _MOST_LAM), 1.0),
        ),
    )


def _improved(
    evidence: Evidence, F: Float[Array, " S"], discount: float, judgement: Judgement
) -> tuple[Float[Array, "S A"], Float[Array, " S"], Float[Array, " S"]]:
    """The policy that is greedy after F, the value of one more step of it, and its advantage over practice."""
    practice = evidence.practice
    d, error = advantages(evidence, F, discount, judgement.discount)
    shape = practice.visits.shape
    error = error + evidence.visit_variance / evidence.visits
    judged = posterior(
        d.reshape(shape),
        error.reshape(shape),
        practice.visits,
        practice.visible,
        judgement.largest_return,
        judgement.spread,
    )
    score = judged.mean - judgement.pessimism * judged.deviation
    pi = anchored(score, judgement.anchor * judged.typical, practice, judgement.support, judgement.allowed)
    gain = (pi * score).sum(axis=1)
    V = jnp.where(evidence.live, jnp.clip(F + gain, 0.0, judgement.largest_return), 0.0)
    return pi, V, over_practice(pi, judged.mean, jnp.where(practice.visible, practice.visits, 0.0))


@eqx.filter_jit
def improved(
    evidence: Evidence, F: Float[Array, " S"], judgement: Judgement
) -> tuple[Float[Array, "S A"], Float[Array, " S"]]:
    """Value iteration on the evidence, until values hardly move or 30 times: a stationary policy and its values."""

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        F, _, _, number = carry
        pi, better, _ = _improved(evidence, F, judgement.discount, judgement)
        return better, pi, jnp.abs(better - F).max(), number + 1

    def goes_on(carry: tuple[Array, Array, Array, Array]) -> Array:
        return (carry[3] < _ITERATIONS) & (carry[2] > _CLOSE * judgement.largest_return)

    start = (F, jnp.zeros(evidence.practice.visits.shape), jnp.asarray(jnp.inf), jnp.zeros((), int))
    F, pi, _, _ = jax.lax.while_loop(goes_on, step, start)
    return pi, F


@eqx.filter_jit
def ahead_of_practice(evidence: Evidence, F: Float[Array, " S"], judgement: Judgement) -> Float[Array, " S"]:
    """How much more the policy that is greedy after F is estimated to gain in each state than practice."""
    return jnp.where(evidence.live, _improved(evidence, F, judgement.discount, judgement)[2], 0.0)


@eqx.filter_jit
def planned_by_step(evidence: Evidence, judgement: Judgement, horizon: int) -> Float[Array, "H S A"]:
    """Backward induction on the evidence without a discount: a policy that knows how many steps are left."""

    def step(V: Array, nothing: None) -> tuple[Array, Array]:
        del nothing
        pi, V, _ = _improved(evidence, V, 1.0, judgement)
        return V, pi

    _, policies = jax.lax.scan(step, jnp.zeros(evidence.live.shape), None, length=horizon)
    return policies[::-1]
