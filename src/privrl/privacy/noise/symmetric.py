"""Symmetric matrices in whole numbers: only the upper triangle is summed, and it is mirrored after the release.

The noise of a symmetric release has one draw for [i, j] and [j, i]. If both entries were summed, a person whose two
entries are rounded to different whole numbers would show in release[i, j] - release[j, i] without any noise. So one
number stands for the pair, from the person's contribution to the release.

**Formal guarantee.** A contribution x is replaced by (x + x^T)/2, the projection onto symmetric matrices, which brings
no two matrices further apart in the Frobenius norm: a statistic's sensitivity holds for the released matrix, even if
its contributions are not symmetric.
"""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped


def pack_triangle(x: Float[Array, "*batch d d"]) -> Float[Array, "*batch n"]:
    """The upper triangle of (x + x^T)/2, row by row."""
    i, j = np.triu_indices(x.shape[-1])
    return (x[..., i, j] + x[..., j, i]) / 2.0


def double_triangle(upper: Shaped[Array, "*batch n"]) -> Shaped[Array, "*batch m"]:
    """The entries of the whole matrix in some order: the triangle, then the entries above the diagonal again."""
    return jnp.concatenate([upper, upper[..., ~_diagonal(upper.shape[-1])]], axis=-1)


def mirror_triangle(upper: Shaped[np.ndarray, " n"]) -> Shaped[np.ndarray, "d d"]:
    """The symmetric matrix of an upper triangle."""
    dim = _dim(len(upper))
    i, j = np.triu_indices(dim)
    matrix = np.empty((dim, dim), upper.dtype)
    matrix[i, j] = matrix[j, i] = upper
    return matrix


def on_diagonal(upper: Shaped[np.ndarray, " n"]) -> Shaped[np.ndarray, " n"]:
    """Which entries of an upper triangle are on the diagonal."""
    return _diagonal(len(upper))


def _diagonal(size: int) -> Shaped[np.ndarray, " n"]:
    i, j = np.triu_indices(_dim(size))
    return i == j


def _dim(size: int) -> int:
    return (math.isqrt(8 * size + 1) - 1) // 2
