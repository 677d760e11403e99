"""TAP, part 2: where (s, a) lead, from noisy counts of next states.

Nearly all entries of a row of next-state counts are 0, and which are not is unknown. Entries of rows with about as many
visits (the same whole part of log2 N) share a prior of true counts on a grid, fitted to their noisy values by
expectation maximisation (a nonparametric maximum likelihood estimate); x is the posterior mean and v the variance.
Entries far above the noise are taken as they are. The posterior mean of the smallest value of a group is subtracted:
it stands for entries that are 0. Then

    p = x/max(N, sum x),   rest = 1 - sum p                             (ends included)

and nothing is known about where the rest leads: as far as anybody can tell half as far from average as now,

    E[G(s')] = p G + rest (m + (G(s) - m)/2),   m the mean of G over visits
    variance = sum v (G - pG)^2/N^2 + rest^2 Var(G)/2                   what this estimate may be off by
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

_TINY = 1e-12
_LOWEST, _HIGHEST, _PER_UNIT = -6.0, 12.0, 8  # noisy values, in standard deviations of the noise, are binned
_GROUPS = 24
_EM_STEPS = 200
_GRID = np.concatenate([[0.0], np.geomspace(0.125, 16.0, 40)])
_BINS = int((_HIGHEST - _LOWEST) * _PER_UNIT)
_MIDDLES = _LOWEST + (np.arange(_BINS) + 0.5) / _PER_UNIT
_LIKELIHOOD = np.exp(-0.5 * (_MIDDLES[:, None] - _GRID) ** 2)


@eqx.filter_jit
def denoised(
    noisy: Float[Array, "K columns"], noise: Float[Array, ""], group: Int[Array, " K"]
) -> tuple[Float[Array, "K columns"], Float[Array, "K columns"]]:
    """Posterior means and variances of non-negative counts, rows of one `group` (below 24) sharing a prior.

    Rows of a negative group are left out, and are 0.
    """
    z = jnp.asarray(noisy) / jnp.maximum(noise, _TINY)
    at = jnp.clip(((z - _LOWEST) * _PER_UNIT).astype(int), 0, _BINS - 1)
    used = (group >= 0)[:, None]
    far = z >= _HIGHEST
    place = jnp.clip(group, 0, _GROUPS - 1)[:, None] * _BINS + at
    seen = jnp.zeros(_GROUPS * _BINS).at[place].add(jnp.where(used & ~far, 1.0, 0.0)).reshape(_GROUPS, _BINS)
    L, grid = jnp.asarray(_LIKELIHOOD), jnp.asarray(_GRID)[None, :]
    share = seen / jnp.maximum(seen.sum(axis=1, keepdims=True), 1.0)

    def step(prior: Array, nothing: None) -> tuple[Array, None]:
        del nothing
        return prior * ((share / jnp.maximum(prior @ L.T, _TINY)) @ L), None

    start = jnp.full((_GROUPS, len(_GRID)), 1.0 / len(_GRID))
    prior, _ = jax.lax.scan(step, start, None, length=_EM_STEPS)
    total = jnp.maximum(prior @ L.T, _TINY)
    mean, square = prior @ (L * grid).T / total, prior @ (L * grid**2).T / total
    lowest = jnp.where(seen > 0, mean, jnp.inf).min(axis=1, initial=1e6)[jnp.clip(group, 0, _GROUPS - 1), None]
    flat = (mean.ravel()[place], jnp.maximum(square - mean**2, 0.0).ravel()[place])
    x = jnp.where(far, z, jnp.maximum(flat[0] - lowest, 0.0))
    v = jnp.where(far, 1.0, flat[1])
    x, v = jnp.where(noise > 0, x * noise, jnp.maximum(noisy, 0.0)), jnp.where(noise > 0, v * noise**2, 0.0)
    return jnp.where(used, x, 0.0), jnp.where(used, v, 0.0)


def groups(visits: Float[Array, " K"], used: Bool[Array, " K"]) -> Int[Array, " K"]:
    """Rows of about as many visits; -1 where they are not used."""
    level = jnp.floor(jnp.log2(jnp.maximum(visits, 1.0))).astype(int)
    return jnp.where(used, jnp.clip(level, 0, _GROUPS - 1), -1)


class Kernel(eqx.Module):
    """Estimated next states of K pairs (numbers s A + a; numbers from SA on are padding); others are unknown.

    `probabilities` and `variances` are `[K, S]`, `ends` the variance of the probability of an end. `rest [SA]` is what
    is not accounted for, and `weights` the shares of states in all visits.
    """

    pairs: Int[Array, " K"]
    probabilities: Float[Array, "K S"]
    variances: Float[Array, "K S"]
    ends: Float[Array, " K"]
    rest: Float[Array, " SA"]
    weights: Float[Array, " S"]

    @classmethod
    def unknown(cls, weights: Float[Array, " S"], num_actions: int) -> "Kernel":
        """No pair at all."""
        S = weights.shape[0]
        none = jnp.full(1, S * num_actions)
        return cls(none, jnp.zeros((1, S)), jnp.zeros((1, S)), jnp.zeros(1), jnp.ones(S * num_actions), weights)

    @property
    def concentration(self) -> Float[Array, " K"]:
        """sum_s' p^2, one over the number of next states where they are equally likely."""
        return (self.probabilities**2).sum(axis=1)

    def moments(self, G: Float[Array, "B S"]) -> tuple[Float[Array, "B SA"], Float[Array, "B SA"]]:
        """For each function of states its mean after every (s, a), and the variance of that estimate."""
        A = self.rest.shape[0] // G.shape[1]
        mean = G @ self.weights
        spread = ((G - mean[:, None]) ** 2) @ self.weights
        known = G @ self.probabilities.T
        v = self.variances
        error = (G**2) @ v.T - 2.0 * known * (G @ v.T) + known**2 * (v.sum(axis=1) + self.ends)[None, :]
        elsewhere = jnp.repeat(mean[:, None] + 0.5 * (G - mean[:, None]), A, axis=1)
        put = jax.vmap(lambda x: jnp.zeros(self.rest.shape[0]).at[self.pairs].set(x, mode="drop"))
        return (
            put(known) + self.rest[None, :] * elsewhere,
            put(jnp.maximum(error, 0.0)) + 0.5 * self.rest[None, :] ** 2 * spread[:, None],
        )


@eqx.filter_jit
def kernel(
    noisy: Float[Array, "K columns"],
    noise: Float[Array, ""],
    pairs: Int[Array, " K"],
    visits: Float[Array, " SA"],
    weights: Float[Array, " S"],
) -> tuple[Kernel, Float[Array, "K ends"], Float[Array, "K ends"]]:
    """The kernel of some pairs, and means and variances of the columns of ends, as probabilities."""
    S, SA = weights.shape[0], visits.shape[0]
    N = jnp.maximum(visits.at[pairs].get(mode="fill", fill_value=1.0), 1.0)
    group = groups(N, pairs < SA)
    parts = [denoised(noisy[:, :S], noise, group)]
    parts += [denoised(noisy[:, [j]], noise, group) for j in range(S, noisy.shape[1])]
    x, v = (jnp.concatenate([part[i] for part in parts], axis=1) for i in (0, 1))
    p = x / jnp.maximum(N, x.sum(axis=1))[:, None]
    v = v / N[:, None] ** 2
    rest = jnp.ones(SA).at[pairs].set(jnp.clip(1.0 - p.sum(axis=1), 0.0, 1.0), mode="drop")
    return Kernel(pairs, p[:, :S], v[:, :S], v[:, S:].sum(axis=1), rest, weights), p[:, S:], v[:, S:]
