"""Paths of the Gaussian process on [0, 1] with mean 0 and covariance exp(-beta |x - y|).

The process is Markov, so on equally spaced points it is a filter of white noise (`mesh_path`), which `whiten`
undoes.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int


def mesh_points(depth: int) -> Float[Array, " n"]:
    """The points k 2^-depth of [0, 1], n = 2^depth + 1 of them."""
    return jnp.arange(2**depth + 1) * 2.0**-depth


def nearest(points: Float[Array, "*batch"], depth: int) -> Int[Array, "*batch"]:
    """The numbers of the mesh points nearest to `points`; raises if a point lies outside [0, 1]."""
    outside = ~((points >= 0) & (points <= 1)).all()
    points = eqx.error_if(points, outside, "`points` must lie in [0, 1]; rescale them to that interval.")
    return jnp.round(points * 2.0**depth).astype(int)


@jax.jit
def whiten(values: Float[Array, "*m n"], beta: ArrayLike) -> Float[Array, "*m n"]:
    """The innovations at n >= 2 equally spaced points: e_0 = f_0, e_i = (f_i - r f_{i-1})/sqrt(1 - r^2).

    Here r = e^{-beta/(n-1)}. The innovations of a path are white noise; for all values, sum e_i^2 = f^T K^{-1} f.
    """
    gap = jnp.asarray(beta, values.dtype) / (values.shape[-1] - 1)
    # f_i - r f_{i-1} as a difference and a small multiple, so that no digits cancel
    news = jnp.diff(values) - jnp.expm1(-gap) * values[..., :-1]
    return jnp.concatenate([values[..., :1], news * whitening_factor(values.shape[-1], beta)], axis=-1)


def whitening_factor(n: int, beta: ArrayLike) -> Float[Array, ""]:
    """1/sqrt(1 - r^2), the factor of the differences at n mesh points in `whiten`."""
    return 1.0 / jnp.sqrt(-jnp.expm1(-2.0 * jnp.asarray(beta, float) / (n - 1)))


@jax.jit
def mesh_path(white: Float[Array, "*m n"], beta: ArrayLike) -> Float[Array, "*m n"]:
    """Paths at n >= 2 equally spaced points of [0, 1] from white noise: the inverse of `whiten`.

    f = C e with the Cholesky factor C of the kernel matrix, as the filter f_i = r f_{i-1} + sqrt(1 - r^2) e_i that it
    is, in log n steps over all points: with z the shift by one point, 1/(1 - r z) is the product of the factors
    1 + (r z)^(2^k), of which those that shift by less than n matter. Each power of r is computed on its own,
    because in short floats r itself has lost digits that its powers need.
    """
    n = white.shape[-1]
    gap = jnp.asarray(beta, white.dtype) / (n - 1)
    x = white.at[..., 1:].multiply(jnp.sqrt(-jnp.expm1(-2.0 * gap)))
    for k in range((n - 1).bit_length()):
        x = x.at[..., 2**k :].add(jnp.exp(-gap * 2**k) * x[..., : -(2**k)])
    return x
