"""LAP, part 2: empirical-Bayes regression on noisy moments, with what earlier rounds have measured.

For moments G (positive semidefinite) and y of the same people, the model is

    y = z + noise of variance s^2,    z = G theta + sampling error of covariance v G,    theta ~ N(0, tau^2 I)

In the eigenbasis of G, with eigenvalues g, everything is diagonal. A round begins with z ~ N(m, p) and ends with

    D = p + s^2;    m' = m + p/D (y - m),    p' = p s^2/D
    E theta = A m',    Var theta = A v + A^2 p',    A = tau^2/(tau^2 g + v)

In the first round m = 0 and p = tau^2 g^2 + v g, so E theta = tau^2 g y/(tau^2 g^2 + v g + s^2), ridge regression. In
a later one, m is that of the round before and p = p' + q^2 g^2: when F_k becomes F_k+1, the advantage of an action over
the mean of all moves by what the change of F is worth to it, q at a time, and the sampling error is that of the same
people. So the noise of all rounds is averaged as far as they agree; without noise, m' = y and nothing is carried.
tau and q are the most likely of 24 values from 1e-4 to 3, one for all actions.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_SCALES = np.geomspace(1e-4, 3.0, 24)
_TINY = 1e-12


class Eigenbasis(eqx.Module):
    """Positive semidefinite matrices by their eigenvalues and eigenvectors."""

    values: Float[Array, "A d"]
    vectors: Float[Array, "A d d"]

    @classmethod
    def of(cls, G: Float[Array, "A d d"]) -> "Eigenbasis":
        """The nearest positive semidefinite matrices."""
        g, U = jnp.linalg.eigh(G)
        return cls(jnp.maximum(g, 0.0), U)

    @property
    def matrices(self) -> Float[Array, "A d d"]:
        return (self.vectors * self.values[:, None]) @ jnp.swapaxes(self.vectors, 1, 2)

    def rotated(self, y: Float[Array, "A d"]) -> Float[Array, "A d"]:
        """U^T y."""
        return jnp.einsum("aji,aj->ai", self.vectors, y)

    def back(self, y: Float[Array, "A d"]) -> Float[Array, "A d"]:
        """U y."""
        return jnp.einsum("aij,aj->ai", self.vectors, y)


class Carried(eqx.Module):
    """m and p of z in the eigenbasis; p is infinite before the first round."""

    mean: Float[Array, "A d"]
    variance: Float[Array, "A d"]

    @classmethod
    def nothing(cls, num_actions: int, dim: int) -> "Carried":
        return cls(jnp.zeros((num_actions, dim)), jnp.full((num_actions, dim), jnp.inf))


def regressed(
    G: Eigenbasis, y: Float[Array, "A d"], noise: Float[Array, ""], sampling: Float[Array, ""], before: Carried
) -> tuple[Float[Array, "A d"], Float[Array, "A d"], Carried]:
    """E theta, Var theta in the eigenbasis, and what the next round begins with; `noise` is s^2, `sampling` is v."""
    g, y = G.values, G.rotated(y)
    v, s2 = sampling + _TINY, noise + _TINY * (1.0 + g.max()) ** 2
    scales = jnp.asarray(_SCALES)[:, None, None] ** 2
    first = jnp.isinf(before.variance)
    tau2 = _likeliest(scales * g[None] ** 2 + v * g[None] + s2, y)
    q2 = _likeliest(scales * g[None] ** 2 + jnp.where(first, 0.0, before.variance)[None] + s2, y - before.mean)
    p = jnp.where(first, tau2 * g**2 + v * g, before.variance + q2 * g**2)
    D = p + s2
    carried = Carried(before.mean + p / D * (y - before.mean), p * s2 / D)
    A = tau2 / (tau2 * g + v)
    return G.back(A * carried.mean), A * v + A**2 * carried.variance, carried


def _likeliest(D: Float[Array, "K A d"], y: Float[Array, "A d"]) -> Float[Array, ""]:
    """The square of the scale under which y ~ N(0, D) is most likely."""
    likelihood = -0.5 * (jnp.log(D) + y[None] ** 2 / D).sum(axis=(1, 2))
    return jnp.asarray(_SCALES)[likelihood.argmax()] ** 2


class Moments(eqx.Module):
    """G_a for every action, their sum, and the noise of an entry on the diagonal of one of them."""

    by_action: Eigenbasis
    together: Eigenbasis
    noise: Float[Array, ""]

    @classmethod
    @eqx.filter_jit
    def of(cls, noisy: Float[Array, "A d d"], noise: Float[Array, ""]) -> "Moments":
        by_action = Eigenbasis.of(noisy)
        return cls(by_action, Eigenbasis.of(by_action.matrices.sum(axis=0, keepdims=True)), noise)

    @property
    def steps(self) -> Float[Array, ""]:
        """How many steps there are: the first feature is 1/2."""
        return jnp.maximum(4.0 * self.together.matrices[0, 0, 0], 1.0)

    @property
    def trace(self) -> Float[Array, ""]:
        return jnp.maximum(self.together.values.sum(), _TINY)

    @property
    def practice(self) -> Float[Array, "d A"]:
        """B = (G + 2 sigma sqrt(A d) I)^-1 (2 G_a e_1)_a: P(a|s) = phi^T B, at no cost, as sum phi 1[a] is in G_a."""
        A, d = self.by_action.values.shape
        loading = 2.0 * self.noise * np.sqrt(A * d) + 1e-6 * self.trace / d
        counts = 2.0 * self.by_action.matrices[:, :, 0].T
        return jnp.linalg.solve(self.together.matrices[0] + loading * jnp.eye(d), counts)


class Advantages(eqx.Module):
    """theta0, theta by action, and kappa: the root mean square of posterior standard deviations over steps."""

    change: Float[Array, " d"]
    by_action: Float[Array, "A d"]
    deviation: Float[Array, ""]


@eqx.filter_jit
def common(
    moments: Moments, b: Float[Array, " d"], noise: Float[Array, ""], sampling: Float[Array, ""]
) -> Float[Array, " d"]:
    """The weights that all actions have in common: f of F_1 = 1/2 + phi^T f, and theta0."""
    return regressed(moments.together, b[None], noise**2, sampling, Carried.nothing(1, b.shape[0]))[0][0]


@eqx.filter_jit
def advantages(
    moments: Moments, b: Float[Array, "A d"], noise: Float[Array, ""], sampling: Float[Array, ""], before: Carried
) -> tuple[Advantages, Carried]:
    """What the TD errors of one round add to what was known.

    theta0 is what all actions have in common. What an action has of its own, theta_a, is measured with the noise of b_a
    and with that of G_a times theta0 + theta_a, whose size comes from a first fit without it.
    """
    A, G = b.shape[0], moments.by_action
    change = common(moments, b.sum(axis=0), noise * np.sqrt(A), sampling)
    rest = b - G.matrices @ change
    extra = noise**2 + moments.noise**2 * (change**2).sum()
    first, _, _ = regressed(G, rest, extra, sampling, before)
    extra += moments.noise**2 * (first**2).sum(axis=1).mean()
    theta, variance, carried = regressed(G, rest, extra, sampling, before)
    along = jnp.einsum("aji,jk,aki->ai", G.vectors, moments.together.matrices[0], G.vectors) / moments.steps
    return Advantages(change, theta, jnp.sqrt((variance * along).sum(axis=1).mean())), carried
