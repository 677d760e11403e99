"""Planning from noisy sums over (s, a): backward induction on shrunken advantages, for the value alpha + beta F.

For h = H-1, ..., 0, with alpha = beta = 0 at the end:

    W      = clip(alpha + beta F(s), 0, 1)                             what staying as one is would be worth
    e      = T1 - (T1 + T0) W + beta M + R                             visits times advantage, privacy noise s2
    s2     = sT^2 ((1-W)^2 + W^2) + beta^2 sM^2 + sR^2
    v      = sum(T1 (1-W)^2 + T0 W^2 + R r_max)/sum N                  sampling variance of one visit
    p      = g + action effect + state effect                          the prior mean, fitted to all cells
    k      = tau^2 n/(tau^2 n^2 + s2 + n v)                            best linear weight of e - n p
    score  = p + k (e - n p) - z sqrt(tau^2 (1 - k n))
    V      = clip(W + best score, 0, 1), then (alpha, beta) by weighted least squares of V on (1, F)

Candidates have N above half a standard deviation of its noise, and n = N there; elsewhere n = e = 0. Where a state has
no candidate the most-taken action is played. The variances of effects are fitted by moments (empirical Bayes). The fit
of tau^2 weighs cells by n^2, so it hears the few frequent cells, whose state effect is mostly their own; `spread`
multiplies tau to make up for that. Everything here is a deterministic function of releases.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from privrl.mdp.types import TabularPolicy

_TINY = 1e-12
# Fitted variances of advantages lie in this range: standard deviations of .001 to .1 of the largest return.
SMALLEST, LARGEST = 1e-6, 1e-2


class CellSums(eqx.Module):
    """Estimated sums over stays by (s, a), and the noise variance of their entries.

    N visits; T1 and T0 endings weighted with r and 1 - r; M moves of the feature; R rewards paid on the way. Returns
    are in units of the largest one, and `reward_unit` is the largest single reward in them.
    """

    N: Float[Array, "S A"]
    T1: Float[Array, "S A"]
    T0: Float[Array, "S A"]
    M: Float[Array, "S A"]
    R: Float[Array, "S A"]
    visit_noise: Float[Array, ""]
    ending_noise: Float[Array, ""]
    move_noise: Float[Array, ""]
    reward_noise: Float[Array, ""]
    reward_unit: Float[Array, ""]


class ShrunkenPlan(eqx.Module):
    """A policy, its value per step, its estimated advantage over practice at each step, and the share of privacy in the
    variance of a typical advantage."""

    policy: TabularPolicy
    values: Float[Array, "H S"]
    advantages: Float[Array, "H S"]
    noise_share: Float[Array, ""]


def weighted_mean(x: Float[Array, " S"], w: Float[Array, " S"]) -> Float[Array, ""]:
    return (x * w).sum() / jnp.maximum(w.sum(), _TINY)


def weighted_line(
    y: Float[Array, " S"], x: Float[Array, " S"], w: Float[Array, " S"]
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Intercept, slope and R^2 of the weighted regression of y on x; a constant x explains nothing."""
    dx, dy = x - weighted_mean(x, w), y - weighted_mean(y, w)
    xx, yy, xy = weighted_mean(dx**2, w), weighted_mean(dy**2, w), weighted_mean(dx * dy, w)
    slope = jnp.where(xx > _TINY, xy / jnp.maximum(xx, _TINY), 0.0)
    explained = jnp.where(yy > _TINY, slope * xy / jnp.maximum(yy, _TINY), 0.0)
    return weighted_mean(y, w) - slope * weighted_mean(x, w), slope, explained


def shrunken_means(
    e: Float[Array, " k"], n: Float[Array, " k"], noise: Float[Array, " k"], largest: float, smallest: float = 0.0
) -> Float[Array, " k"]:
    """Posterior means of effects f with e = n f + error, E error^2 = `noise`, f ~ (0, t2), t2 fitted by moments."""
    t2 = _spread(e, n, noise, smallest, largest)
    return t2 * n * e / jnp.maximum(t2 * n**2 + noise, _TINY)


def advice_strength(ahead: Float[Array, " S"], w: Float[Array, " S"]) -> Float[Array, " S"]:
    """Advantages over practice in units of twice their root mean square over states, within [0, 1]; 1 without any.

    `mdp/assistance.py` derives why advice is given in proportion to them. The unit was chosen on `endings-50x4`,
    `endings-200x6`, `in-flight-60x4` and `holes-50x4`, among 1, 1.5, 2 and 3.
    """
    unit = 2.0 * jnp.sqrt(weighted_mean(ahead**2, w))
    return jnp.where(unit > 0.0, jnp.clip(ahead / jnp.where(unit > 0.0, unit, 1.0), 0.0, 1.0), 1.0)


@eqx.filter_jit
def plan(
    sums: CellSums,
    F: Float[Array, " S"],
    w: Float[Array, " S"],
    live: Bool[Array, " S"],
    horizon: int,
    pessimism: float,
    spread: float,
    allowed: Bool[Array, "S A"] | None = None,
) -> ShrunkenPlan:
    """Backward induction, see the module; states that are not `live` are terminal and worth nothing.

    Only `allowed` actions are chosen. Sums of the others still count in the prior, which describes practice.
    """
    candidate = (sums.N - 0.5 * jnp.sqrt(sums.visit_noise) > 0) & live[:, None]
    n = jnp.where(candidate, sums.N, 0.0)
    typical = (n**2).sum() / jnp.maximum(n.sum(), _TINY)
    may = jnp.ones_like(candidate) if allowed is None else allowed
    most_taken = jnp.where(may, jnp.where(live[:, None], sums.N, 0.0), -jnp.inf)
    trusted = (candidate & may).any(axis=1, keepdims=True)

    def step(
        carry: tuple[Array, Array], nothing: None
    ) -> tuple[tuple[Array, Array], tuple[Array, Array, Array, Array]]:
        del nothing
        alpha, beta = carry
        W = jnp.clip(alpha + beta * F, 0.0, 1.0)[:, None]
        e, s2 = _advantages(sums, W, beta, candidate)
        v = _sampling_variance(sums, W, live)
        noise = s2 + n * v
        mean_s2 = s2.sum() / jnp.maximum(candidate.sum(), 1)
        q = mean_s2 / jnp.maximum(mean_s2 + typical * v, _TINY)
        z = pessimism + jnp.minimum(1.0, 3.0 * q)
        p = _prior(e, n, noise)
        tau2 = spread**2 * _spread(e - n * p, n, noise, SMALLEST, LARGEST)
        k = tau2 * n / jnp.maximum(tau2 * n**2 + noise, _TINY)
        variance = tau2 * jnp.clip(1.0 - k * n, 0.0, 1.0)
        mean = p + k * (e - n * p)
        score = mean - z * jnp.sqrt(variance)
        choice = jnp.where(trusted, jnp.where(candidate & may, score, -jnp.inf), most_taken)
        pi = TabularPolicy.greedy(choice[None]).probabilities[0]
        best = (pi * jnp.where(trusted, score, p)).sum(axis=1)
        V = jnp.where(live, jnp.clip(W[:, 0] + best, 0.0, 1.0), 0.0)
        return weighted_line(V, F, w)[:2], (pi, V, over_practice(pi, mean, n), q)

    start = (jnp.zeros(()), jnp.zeros(()))
    _, (pi, V, ahead, q) = jax.lax.scan(step, start, None, length=horizon)
    return ShrunkenPlan(TabularPolicy(pi[::-1]), V[::-1], ahead[::-1], q[-1])


def over_practice(
    pi: Float[Array, "S A"], mean: Float[Array, "S A"], visits: Float[Array, "S A"]
) -> Float[Array, " S"]:
    """How much more the policy is estimated to gain in a state than practice, which took actions in proportion to their
    visits; 0 where it chooses an action without visits."""
    n = jnp.maximum(visits, 0.0)
    practice = (n * mean).sum(axis=1) / jnp.maximum(n.sum(axis=1), _TINY)
    return jnp.where((pi * n).sum(axis=1) > 0.0, (pi * mean).sum(axis=1) - practice, 0.0)


def _advantages(
    sums: CellSums, W: Float[Array, "S 1"], beta: Float[Array, ""], candidate: Bool[Array, "S A"]
) -> tuple[Float[Array, "S A"], Float[Array, "S A"]]:
    """Visits times advantage over W, and its privacy variance."""
    e = sums.T1 - (sums.T1 + sums.T0) * W + beta * sums.M + sums.R
    s2 = sums.ending_noise * ((1.0 - W) ** 2 + W**2) + beta**2 * sums.move_noise + sums.reward_noise
    return jnp.where(candidate, e, 0.0), jnp.where(candidate, s2, 0.0)


def _sampling_variance(sums: CellSums, W: Float[Array, "S 1"], live: Bool[Array, " S"]) -> Float[Array, ""]:
    """The variance of one visit's contribution, mean square over all visits (rewards: r^2 <= r_max r)."""
    squares = sums.T1 * (1.0 - W) ** 2 + sums.T0 * W**2 + sums.R * sums.reward_unit
    total = jnp.where(live[:, None], squares, 0.0).sum()
    visits = jnp.where(live[:, None], sums.N, 0.0).sum()
    return jnp.clip(total / jnp.maximum(visits, 1.0), 1e-6, 1.0)


def _prior(e: Float[Array, "S A"], n: Float[Array, "S A"], noise: Float[Array, "S A"]) -> Float[Array, "S A"]:
    """What (s, a) is expected to be worth before its own data: overall mean, action effect, state effect."""
    by_action = action_effects(e, n, noise)[0][None, :]
    rest = e - n * by_action
    g = rest.sum() / jnp.maximum(n.sum(), _TINY)
    rest = rest - n * g
    by_state = shrunken_means(rest.sum(axis=1), n.sum(axis=1), noise.sum(axis=1), LARGEST)
    return g + by_action + by_state[:, None]


def action_effects(
    e: Float[Array, "S A"], n: Float[Array, "S A"], noise: Float[Array, "S A"]
) -> tuple[Float[Array, " A"], Float[Array, " A"]]:
    """What an action adds in every state alike, from contrasts between the actions of one state: mean and variance.

    Weighted least squares of e/n on state and action effects, the state effects eliminated: L x = b with L a Laplacian
    over actions. Its noise has covariance L, so E[b^T b] = tr L + t2 tr L^2 for effects of variance t2. The weights
    allow every cell the largest spread, so that no frequent cell speaks for its action alone.
    """
    D = jnp.maximum(LARGEST * n**2 + noise, _TINY)
    weight, weighted = n**2 / D, n * e / D
    share = weight / jnp.maximum(weight.sum(axis=1, keepdims=True), _TINY)
    b = (weighted - share * weighted.sum(axis=1, keepdims=True)).sum(axis=0)
    L = jnp.diag(weight.sum(axis=0)) - share.T @ weight
    t2 = jnp.clip((b @ b - jnp.trace(L)) / jnp.maximum((L**2).sum(), _TINY), 0.0, LARGEST)
    covariance = t2 * jnp.linalg.inv(jnp.eye(b.shape[0]) + t2 * L)
    return covariance @ b, jnp.diag(covariance)


def _spread(
    e: Float[Array, "*cells"], n: Float[Array, "*cells"], noise: Float[Array, "*cells"], low: float, high: float
) -> Float[Array, ""]:
    """The variance t2 of f in e = n f + error, from E[e^2] = t2 n^2 + noise, within [low, high]."""
    return jnp.clip((e**2 - noise).sum() / jnp.maximum((n**2).sum(), _TINY), low, high)
