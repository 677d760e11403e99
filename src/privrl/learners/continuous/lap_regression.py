"""LAP, part 2: empirical-Bayes regression on noisy moments, with what earlier rounds have measured.

For moments G (positive semidefinite) and y of the same people, the model is

    y = z + noise of variance s^2,    z = G theta + sampling error of covariance v G,    theta ~ N(0, tau^2 I)

In the eigenbasis of G, with eigenvalues g, everything is diagonal. What has been measured of z so far is a mean m with
variance p; the first round has m = y and p = s^2, and in a later one

    p <- p + q^2 g^2;    m <- m + p/(p + s^2) (y - m),    p <- p s^2/(p + s^2)

for when F_k becomes F_k+1, the advantage of an action over the mean of all moves by what the change of F is worth to
it, q at a time, and the sampling error is that of the same people. So the noise of all rounds is averaged as far as
they agree; without noise m = y, and nothing is carried. From m and p follows, as in a ridge regression,

    D = tau^2 g^2 + v g + p;    E theta = tau^2 g m/D,    Var theta = tau^2 (v g + p)/D

tau and q have 24 values from 1e-4 to 3; q^2 and theta are averaged over them, weighted by their likelihoods.

Rare actions have noisy G_a. Each is drawn toward w_a G, its share of all steps times the sum over actions,

    G_a <- w_a G + k_a (G_a - w_a G),    k_a = max(0, 1 - s_G^2 d (d + 1)/2 / |G_a - w_a G|^2)

as far as its distance is what noise alone would make it: d (d + 1)/2 entries of variance s_G^2.

All of this is a few small matrices, once for each release: NumPy, so that nothing is compiled for it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_SCALES = np.geomspace(1e-4, 3.0, 24)
_TINY = 1e-12


class Eigenbasis(NamedTuple):
    """Positive semidefinite matrices by their eigenvalues and eigenvectors."""

    values: Float[np.ndarray, "A d"]
    vectors: Float[np.ndarray, "A d d"]

    @classmethod
    def of(cls, G: Float[np.ndarray, "A d d"]) -> "Eigenbasis":
        """The nearest positive semidefinite matrices."""
        g, U = np.linalg.eigh(G)
        return cls(np.maximum(g, 0.0), U)

    @property
    def matrices(self) -> Float[np.ndarray, "A d d"]:
        return (self.vectors * self.values[:, None]) @ np.swapaxes(self.vectors, 1, 2)

    def rotated(self, y: Float[np.ndarray, "A d"]) -> Float[np.ndarray, "A d"]:
        """U^T y."""
        return np.einsum("aji,aj->ai", self.vectors, y)

    def back(self, y: Float[np.ndarray, "A d"]) -> Float[np.ndarray, "A d"]:
        """U y."""
        return np.einsum("aij,aj->ai", self.vectors, y)


class Carried(NamedTuple):
    """m and p of z in the eigenbasis; p is infinite before the first round."""

    mean: Float[np.ndarray, "A d"]
    variance: Float[np.ndarray, "A d"]

    @classmethod
    def nothing(cls, num_actions: int, dim: int) -> "Carried":
        return cls(np.zeros((num_actions, dim)), np.full((num_actions, dim), np.inf))


def regressed(
    G: Eigenbasis, y: Float[np.ndarray, "A d"], noise: float, sampling: float, before: Carried
) -> tuple[Float[np.ndarray, "A d"], Float[np.ndarray, "A d"], Carried]:
    """E theta, Var theta in the eigenbasis, and what the next round begins with; `noise` is s^2, `sampling` is v."""
    from scipy.special import softmax  # here: it takes long to import

    g, y = G.values, G.rotated(y)
    s2 = noise + _TINY * (1.0 + g.max()) ** 2
    scales = _SCALES[:, None, None] ** 2
    first = np.isinf(before.variance)
    p = np.where(first, 0.0, before.variance)
    steps = _likelihoods(scales * g[None] ** 2 + (p + s2)[None], y - before.mean)
    p = p + (softmax(steps, axis=0)[..., None] * scales).sum(axis=0) * g**2
    m = np.where(first, y, before.mean + p / (p + s2) * (y - before.mean))
    p = np.where(first, s2, p * s2 / (p + s2))
    error = sampling * g + p
    D = scales * g[None] ** 2 + error[None]
    weights = softmax(_likelihoods(D, m), axis=0)[..., None]
    means, variances = scales * g[None] * m[None] / D, scales * error[None] / D
    theta = (weights * means).sum(axis=0)
    return G.back(theta), (weights * (variances + means**2)).sum(axis=0) - theta**2, Carried(m, p)


def _likelihoods(D: Float[np.ndarray, "K A d"], y: Float[np.ndarray, "A d"]) -> Float[np.ndarray, "K A"]:
    """How likely y ~ N(0, D) is under each scale, for every action; logarithms."""
    return -0.5 * (np.log(D) + y[None] ** 2 / D).sum(axis=2)


def _nearer(noisy: Float[np.ndarray, "A d d"], noise: float) -> Float[np.ndarray, "A d d"]:
    """Matrices drawn toward their share of the sum, as far as noise explains how far they are from it."""
    d, counts = noisy.shape[-1], noisy[:, 0, 0]
    share = counts / max(counts.sum(), _TINY)
    typical = share[:, None, None] * noisy.sum(axis=0)[None]
    apart = ((noisy - typical) ** 2).sum(axis=(1, 2))
    k = np.maximum(1.0 - noise**2 * d * (d + 1) / 2 / np.maximum(apart, _TINY), 0.0)
    return typical + k[:, None, None] * (noisy - typical)


class Moments(NamedTuple):
    """G_a for every action, their sum, sum phi 1[a] (twice the first column of a noisy G_a, as the first feature is
    1/2), and the noise of an entry on the diagonal of one of them."""

    by_action: Eigenbasis
    together: Eigenbasis
    counts: Float[np.ndarray, "A d"]
    noise: float

    @classmethod
    def of(cls, noisy: Float[np.ndarray, "A d d"], noise: float) -> "Moments":
        by_action = Eigenbasis.of(_nearer(noisy, noise))
        together = Eigenbasis.of(by_action.matrices.sum(axis=0, keepdims=True))
        return cls(by_action, together, 2.0 * noisy[:, :, 0], noise)

    @property
    def steps(self) -> float:
        """How many steps there are: the first feature is 1/2."""
        return max(4.0 * float(self.together.matrices[0, 0, 0]), 1.0)

    @property
    def trace(self) -> float:
        return max(float(self.together.values.sum()), _TINY)

    @property
    def practice(self) -> Float[np.ndarray, "d A"]:
        """B = (G + 2 sigma sqrt(A d) I)^-1 (sum phi 1[a])_a: P(a|s) = phi^T B, at no cost."""
        A, d = self.by_action.values.shape
        loading = 2.0 * self.noise * np.sqrt(A * d) + 1e-6 * self.trace / d
        return np.linalg.solve(self.together.matrices[0] + loading * np.eye(d), self.counts.T)


class Advantages(NamedTuple):
    """theta0, theta by action, and kappa: the root mean square of posterior standard deviations over steps."""

    change: Float[np.ndarray, " d"]
    by_action: Float[np.ndarray, "A d"]
    deviation: float


def common(moments: Moments, b: Float[np.ndarray, " d"], noise: float, sampling: float) -> Float[np.ndarray, " d"]:
    """The weights that all actions have in common: f of F_1 = 1/2 + phi^T f, and theta0."""
    return regressed(moments.together, b[None], noise**2, sampling, Carried.nothing(1, b.shape[0]))[0][0]


def advantages(
    moments: Moments, b: Float[np.ndarray, "A d"], noise: float, sampling: float, before: Carried
) -> tuple[Advantages, Carried]:
    """What the TD errors of one round add to what was known.

    theta0 is what all actions have in common. What an action has of its own, theta_a, is measured with the noise of b_a
    and with that of G_a times theta0 + theta_a, whose size comes from a first fit without it.
    """
    A, G = b.shape[0], moments.by_action
    change = common(moments, b.sum(axis=0), noise * np.sqrt(A), sampling)
    rest = b - G.matrices @ change
    extra = noise**2 + moments.noise**2 * float((change**2).sum())
    first, _, _ = regressed(G, rest, extra, sampling, before)
    extra += moments.noise**2 * float((first**2).sum(axis=1).mean())
    theta, variance, carried = regressed(G, rest, extra, sampling, before)
    along = np.einsum("aji,jk,aki->ai", G.vectors, moments.together.matrices[0], G.vectors) / moments.steps
    return Advantages(change, theta, float(np.sqrt((variance * along).sum(axis=1).mean()))), carried


def standard_values(moments: Moments, first: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """w with phi^T w = (phi^T f - mean)/standard deviation, both over practice's steps: from F_1, what returns to go
    are under practice. The first feature is 1/2, so that it takes the mean."""
    G = moments.together.matrices[0] / moments.steps
    mean = 2.0 * G[0] @ first
    spread = np.sqrt(max(float(first @ G @ first - mean**2), _TINY))
    return (first - 2.0 * mean * (np.arange(len(first)) == 0)) / spread
