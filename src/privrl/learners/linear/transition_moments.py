"""What follows from released transition moments M_h = sum phi(s,a) e_{s'}^T: who was where, Gram matrices, regressions.

All of it is post-processing, so none of it costs privacy. Without noise M_h 1 = G_h v, where phi(s,a)^T v = 1.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from privrl.learners.tabular.consistency import lowered_to
from privrl.mdp.features import AbstractFeatures, OneHotFeatures

_RELATIVE = 1e-4  # of a matrix that may be singular: the share of a surprise that is left unexplained


def constant_weights(features: AbstractFeatures) -> Float[Array, " d"]:
    """v, the smallest vector with phi(s, a)^T v = 1 everywhere (in a linear MDP there is one)."""
    if isinstance(features, OneHotFeatures):
        return jnp.ones(features.dim)
    X = features.table.reshape(-1, features.dim)
    return jnp.linalg.lstsq(X, jnp.ones(X.shape[0]))[0]


def state_counts(
    dM: Float[Array, "H S d"],
    starts: Float[Array, " S"],
    pi: Float[Array, "H S A"],
    features: AbstractFeatures,
    live: Bool[Array, " S"],
    length: Float[Array, ""],
    variance: Float[Array, ""],
    start_variance: Float[Array, ""],
) -> Float[Array, "H S"]:
    """The number of people of a block in each state at each step; a person in a state that is not live stays there.

    Arrivals v^T dM_{h-1} (the first ones are `starts`) have noise of variance |v|^2 s^2. Departures dM_h 1 =
    sum_s n(s) phi_pi(s) have noise of variance S s^2 per coordinate and, where the policy mixes actions, their
    sampling error. With `ratio` the variance of an arrival over that of a departure, n minimises
    |n - arrivals|^2 + ratio |sum_s n(s) phi_pi(s) - departures|^2, and is then projected on {n >= 0, sum n = length}.

    s^2 is the variance of a running sum; consecutive ones share most of their noise, so dM has a smaller one. Both
    estimates have the same share, so the ratio does not care (only sampling error is weighed a little too lightly).
    Without noise arrivals are exact and the ratio is 0.
    """
    S, phi, v = dM.shape[1], features.table, constant_weights(features)
    mean = jnp.einsum("hsa,sad->hsd", pi, phi, precision="highest") * live[None, :, None]
    sampling = (jnp.einsum("hsa,sa->hs", pi, (phi**2).sum(axis=-1)) - (mean**2).sum(axis=-1)) * live[None]
    arrivals = jnp.concatenate([starts[None], jnp.matmul(dM[:-1], v, precision="highest")])
    of_arrivals = jnp.full(dM.shape[0], (v @ v) * variance).at[0].set(start_variance)
    of_departures = S * variance + length * jnp.maximum(sampling, 0.0).mean(axis=-1)
    ratio = of_arrivals / jnp.where(of_arrivals > 0, of_departures, 1.0)
    system = jnp.eye(S)[None] + ratio[:, None, None] * jnp.einsum("hsd,htd->hst", mean, mean, precision="highest")
    departures = jnp.einsum("hsd,hd->hs", mean, dM.sum(axis=1), precision="highest")
    estimates = jnp.linalg.solve(system, (arrivals + ratio[:, None] * departures)[..., None])[..., 0]

    def project(gone: Float[Array, " S"], estimate: Float[Array, " S"]) -> tuple[Array, Array]:
        n = lowered_to(estimate + gone, length)
        return jnp.where(live, 0.0, n), n

    return jax.lax.scan(project, jnp.zeros(S), estimates)[1]


def pair_counts(
    n: Float[Array, "H S"],
    pi: Float[Array, "H S A"],
    phi: Float[Array, "S A d"],
    departures: Float[Array, "H d"],
    variance: Float[Array, ""],
) -> Float[Array, "H S A"]:
    """How often each action was taken, if n(s) people met the published policy and left `departures` = sum phi + noise.

    Given n(s), actions are multinomial with mean n pi and covariance n (diag(pi) - pi pi^T), which makes the departures
    vary by L = sum_s n(s) Cov_pi(phi). The linear update on what was seen, with noise of this `variance` per
    coordinate, is n pi (1 + (phi - phi_pi)^T (L + variance I)^-1 (departures - sum_s n phi_pi)); negative counts are
    cut, and each state keeps its n(s). Nothing changes where the policy is deterministic.
    """
    mean = jnp.einsum("hsa,sad->hsd", pi, phi, precision="highest")
    L = gram_of_counts(n[..., None] * pi, phi) - jnp.einsum("hs,hsi,hsj->hij", n, mean, mean, precision="highest")
    surprise = departures - jnp.einsum("hs,hsd->hd", n, mean, precision="highest")
    floor = variance + _RELATIVE * (1.0 + jnp.trace(L, axis1=1, axis2=2))
    z = jnp.linalg.solve(L + floor[:, None, None] * jnp.eye(L.shape[-1])[None], surprise[..., None])[..., 0]
    tilt = jnp.einsum("sad,hd->hsa", phi, z, precision="highest") - jnp.einsum("hsd,hd->hs", mean, z)[..., None]
    taken = pi * jnp.maximum(1.0 + tilt, 0.0)
    total = taken.sum(axis=-1, keepdims=True)
    return n[..., None] * jnp.where(total > 0, taken / jnp.where(total > 0, total, 1.0), pi)


def weighted_pair_counts(
    n: Float[Array, "H S"],
    pi: Float[Array, "H S A"],
    weights: Float[Array, "H S A"],
    phi: Float[Array, "S A d"],
    departures: Float[Array, "H d"],
    variance: Float[Array, ""],
) -> Float[Array, "H S A"]:
    """`pair_counts` times the weights, from weighted departures: w phi in the place of phi."""

    def stage(n: Array, pi: Array, w: Array, left: Array) -> Array:
        return pair_counts(n[None], pi[None], w[..., None] * phi, left[None], variance)[0]

    return jax.vmap(stage)(n, pi, weights, departures) * weights  # [sahu A1:26] from counts


def counted_states(
    counts: Float[Array, "H S"], live: Bool[Array, " S"], can_end: bool, length: Float[Array, ""]
) -> Float[Array, "H S"]:
    """Counts that are not negative and add up to the length of the block, including people in terminal states."""
    counts, lengths = jnp.where(live, counts, 0.0), jnp.broadcast_to(length, counts.shape[:1])
    if not can_end:
        return lowered_to(counts, lengths)
    ended = length - counts.sum(axis=1, keepdims=True)
    return jnp.where(live, lowered_to(jnp.concatenate([counts, ended], axis=1), lengths)[:, :-1], 0.0)


def gram_of_counts(pairs: Float[Array, "H S A"], phi: Float[Array, "S A d"]) -> Float[Array, "H d d"]:
    """sum n(s, a) phi phi^T; positive semidefinite, since counts are not negative."""
    return jnp.einsum("hsai,saj->hij", pairs[..., None] * phi[None], phi, precision="highest")


def consistent_moments(
    M: Float[Array, "H S d"], gram: Float[Array, "H d d"], features: AbstractFeatures
) -> Float[Array, "H S d"]:
    """Moments whose sum over next states is G v, as it is without noise; what is missing is spread evenly."""
    missing = jnp.matmul(gram, constant_weights(features), precision="highest") - M.sum(axis=1)
    return M + missing[:, None, :] / M.shape[1]


class Spectrum(eqx.Module):
    """Gram matrices in their eigenbases, ready for regressions with a known noise distribution.

    `g` are the eigenvalues, the columns of `basis` the eigenvectors, `x` the features in that basis; `m2` is the mean
    of |phi|^2, `variance` the variance of an entry of the moments and `counting` the factor c = 1/(1/|v|^2 + 1/S) with
    which noise in the counts behind a Gram matrix adds to it. If the number of records is not public, its
    variance is part of that of a count. A leading axis of steps is for `lax.scan`.
    """

    g: Float[Array, "*H d"]
    basis: Float[Array, "*H d d"]
    x: Float[Array, "*H S A d"]
    m2: Float[Array, "*H"]
    variance: Float[Array, "*H"]
    counting: Float[Array, "*H"]

    @classmethod
    def of(
        cls,
        gram: Float[Array, "H d d"],
        features: AbstractFeatures,
        variance: Float[Array, ""],
        of_records: Float[Array, ""] | None = None,
    ) -> "Spectrum":
        """Of Gram matrices and moments with this variance; `of_records`, relative to it, is that of the number of
        records where it is read off releases."""
        H, phi, v = gram.shape[0], features.table, constant_weights(features)
        if isinstance(features, OneHotFeatures):  # diagonal already
            g, basis = jnp.diagonal(gram, axis1=1, axis2=2), jnp.broadcast_to(jnp.eye(features.dim), gram.shape)
            x = jnp.broadcast_to(phi, (H, *phi.shape))
        else:
            g, basis = jnp.linalg.eigh(gram)
            x = jnp.einsum("sai,hij->hsaj", phi, basis, precision="highest")
        counting = 1.0 / (1.0 / (v @ v) + 1.0 / features.num_states)
        if of_records is not None:
            counting = counting + of_records
        common = ((phi**2).sum(axis=-1).mean(), variance, counting)
        return cls(jnp.maximum(g, 0.0), basis, x, *(jnp.broadcast_to(number, (H,)) for number in common))

    def regression(
        self, targets: Float[Array, " d"], width: Float[Array, ""], size: Float[Array, ""]
    ) -> tuple[Float[Array, "S A"], Float[Array, "S A"]]:
        """At one step: the posterior mean of phi^T w, and how much of its variance is due to privacy noise.

        `targets` = sum phi y + noise of variance `size` s^2 per coordinate, with y centred in a public range of this
        `width`. The prior has the variance q = width^2/12 of a number that is uniform on the range, and so has y given
        (s, a): with tau^2 = q/m2, s2 = s^2 (size + c q) and D_i = g_i^2 tau^2 + g_i q + s2, in the eigenbasis,
        w_i = tau^2 g_i targets_i/D_i.
        """
        q = width**2 / 12.0
        tau2 = q / self.m2
        s2 = self.variance * (size + self.counting * q)
        D = self.g**2 * tau2 + self.g * q + s2
        gain = tau2 / jnp.where(D > 0, D, 1.0)
        w = gain * self.g * jnp.matmul(targets, self.basis, precision="highest")
        return jnp.matmul(self.x, w, precision="highest"), jnp.matmul(self.x**2, gain * s2, precision="highest")

    def next_mean(self, M: Float[Array, "S d"], V: Float[Array, " S"]) -> tuple[Array, Array]:
        """At one step: the mean of V(s') after every (s, a), within the range of V, and its variance due to noise.

        The prior mean is the average of V over all states.
        """
        lo, hi, middle = V.min(), V.max(), V.mean()
        u = V - middle
        mean, noise_variance = self.regression(jnp.matmul(u, M, precision="highest"), hi - lo, (u**2).sum())
        return jnp.clip(middle + mean, lo, hi), noise_variance

    def sampling_variance(self, width: Float[Array, ""]) -> Float[Array, "S A"]:
        """At one step: the variance of an estimate that averages numbers uniform on a range of this `width`."""
        return width**2 / 12.0 * jnp.matmul(self.x**2, 1.0 / (self.g + 1.0 / 12.0), precision="highest")


def relative_variance(at: Spectrum, M: Float[Array, "S d"], V: Float[Array, " S"]) -> Float[Array, "S A"]:
    """The estimated variance of V(s') after every (s, a), in units of that of a number uniform on the range of V."""
    R, middle = V.max() - V.min(), V.mean()
    mean, _ = at.next_mean(M, V)
    squares, _ = at.next_mean(M, (V - middle) ** 2)
    return 12.0 * (squares - (mean - middle) ** 2) / jnp.where(R > 0, R**2, 1.0)


def variance_weights(
    at: Spectrum, M: Float[Array, "S d"], V: Float[Array, " S"], smallest: Float[Array, ""]
) -> Float[Array, "S A"]:
    """The weights of one step, in units of the largest variance, from the smallest one to 1."""
    relative = jnp.where(V.max() > V.min(), relative_variance(at, M, V), 1.0)  # [sahu A1:24] the variance alone
    return smallest / jnp.clip(relative, smallest, 1.0)  # [sahu A1:25] in units of the largest variance


def optimistic_mean(
    at: Spectrum, M: Float[Array, "S d"], V: Float[Array, " S"], bonus: Float[Array, ""]
) -> Float[Array, "S A"]:
    """The mean of V(s') after every (s, a), plus `bonus` times its uncertainty, at most the largest V."""
    mean, noise_variance = at.next_mean(M, V)
    spread = jnp.clip(relative_variance(at, M, V), 0.02, 1.0)
    width = jnp.sqrt(spread * at.sampling_variance(V.max() - V.min()) + noise_variance)
    return jnp.minimum(mean + bonus * width, V.max())


def mean_reward(at: Spectrum, targets: Float[Array, " d"], bonus: Float[Array, ""]) -> Float[Array, "S A"]:
    """Mean rewards in [0, 1] from the sums of phi (r - 1/2), plus `bonus` times their uncertainty."""
    centred, noise_variance = at.regression(targets, jnp.ones(()), jnp.ones(()))
    width = jnp.sqrt(at.sampling_variance(jnp.ones(())) + noise_variance)
    return jnp.clip(0.5 + jnp.clip(centred, -0.5, 0.5) + bonus * width, 0.0, 1.0)
