"""Releases whole functions on [0, 1]: noise is drawn once, and then anyone may query them any number of times.

On the mesh k 2^-depth a function is a vector. Whitened (`whiten`), its Euclidean norm is its norm in the space
of the kernel exp(-beta|x-y|), so releasing the function is releasing that vector with white noise; the filter that
makes a path of white noise (`mesh_path`) then gives function plus path. Because the function is whitened, and not the
noise coloured, it can have exact noise in whole numbers, and a store can keep it.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from privrl.contracts.release import Release
from privrl.contracts.untrusted import read_bytes, read_npz
from privrl.privacy.functions.paths import mesh_path, nearest, whiten, whitening_factor
from privrl.privacy.noise.distributions import GaussianNoise

_FORMAT = 1
_ROUNDING = 2.0**-49  # two worlds, eight roundings each, of 2^-53


def rkhs_norm(values: Float[Array, "*m n"], beta: ArrayLike) -> Float[Array, ""]:
    """Norm of functions in the space of the kernel exp(-beta|x-y|), from n >= 2 equally spaced values on [0, 1].

    sqrt(f^T K^{-1} f), the norm of the smallest function through these values. Its square is at most, and for growing n
    tends to, (f(0)^2 + f(1)^2)/2 + 1/(2 beta) int_0^1 (f'^2 + beta^2 f^2) (wang-hegde, Lemma 7). Of several functions,
    one per row, it is the norm of all together: the root of the sum of squares.
    """
    return jnp.sqrt((whiten(values, beta) ** 2).sum())


def tent_distance(height: float, half_width: float, beta: float) -> float:
    """Norm (kernel exp(-beta|x-y|)) of a change in the shape of a tent: h max(0, 1 - |x - c|/w).

    h sqrt(1/(beta w) + beta w/3), by Lemma 7 of wang-hegde: int f'^2 = 2 h^2/w and int f^2 = 2 h^2 w/3.

    **Formal guarantee.** It bounds `rkhs_norm` of the tent's values on every mesh and for every centre, also where
    an edge of [0, 1] cuts the tent: the norm of a function on part of the line is that of its smallest continuation,
    and the whole tent on the whole line, where the norm has no term for edges, is one.
    """
    _positive(height=height, half_width=half_width, beta=beta)
    return height * math.sqrt(1.0 / (beta * half_width) + beta * half_width / 3.0)


def best_beta(half_width: float) -> float:
    """The beta with the smallest norm of tents of half-width w: beta = sqrt3/w, with norm sqrt(2/sqrt3) h = 1.075 h."""
    _positive(half_width=half_width)
    return math.sqrt(3.0) / half_width


def depth_of(n: int) -> int:
    """The depth of a mesh of n = 2^depth + 1 points. Refuses other numbers."""
    depth = (n - 1).bit_length() - 1
    if n < 2 or n != 2**depth + 1:
        raise ValueError(f"`values` has {n} points on its last axis; a mesh has 2^depth + 1. Use `mesh_points(depth)`.")
    return depth


def whiten_functions(
    values: Float[Array, "*m n"], *, distance: float, beta: float, bound: float
) -> tuple[Float[Array, "*m n"], float, float]:
    """Whitens functions into a vector to release with white noise; also the distance of neighbours and a bound.

    **Formal guarantee.** If neighbours' functions are at most `distance` apart in `rkhs_norm`, their vectors as made
    here are apart by at most the second result, raised by 2^-40 of itself. *Proof.* Write r = e^{-beta/(n-1)},
    c = 1/sqrt(1 - r^2), d for the difference of the functions, L for exact whitening: |L d| <= distance. The factors
    c and 1 - r are public and wrong by at most 2^-50 of themselves, which moves L d by 2^-50 |L d| and by
    2^-50 |c (1-r) d| <= 2^-50 |L d|, because the largest eigenvalue of the kernel matrix is below (1+r)/(1-r), so
    |d|^2 <= |L d|^2 (1+r)/(1-r), and c^2 (1-r)^2 = (1-r)/(1+r). In each world an entry is a difference of two numbers
    of size at most `bound`, less a product of such size, times c: roundings of at most 8 c bound 2^-53 in all. So two
    worlds differ by at most 16 sqrt(entries) c bound 2^-53 more.
    """
    _positive(distance=distance, beta=beta, bound=bound)
    depth_of(values.shape[-1])
    if not bool((jnp.abs(values) <= bound).all()):  # also false for NaN
        raise ValueError(
            f"A value is beyond the public `bound` {bound:g}, or NaN. Nothing was released. The bound must hold for "
            "every possible function; choose it without looking at this one."
        )
    c = float(whitening_factor(values.shape[-1], beta))
    rounding = math.sqrt(values.size) * c * bound * _ROUNDING
    if not rounding < 1e-6 * distance:
        raise ValueError(
            f"`distance` {distance:g} is too small relative to `bound` {bound:g} at `beta` {beta:g}: 64-bit numbers "
            f"are not precise enough on {values.shape[-1]} mesh points. Use fewer points or a tighter bound."
        )
    return whiten(values.astype(float), beta), distance + rounding, 2.0 * c * bound * (1.0 + 2.0**-40)


class ReleasedFunction(eqx.Module):
    """Functions on [0, 1] with noise. They can be published and queried any number of times.

    The object holds noisy values on the mesh k 2^-depth and public numbers only: neither the functions, nor the noise,
    nor a key. Points are rounded to the mesh, so the same query always has the same answer.

    **Formal guarantee.** The answers to all queries are a function of the released vector (post-processing), whose
    cost is counted once: mu = distance/scale, where neighbours' functions are at most `distance` apart in `rkhs_norm`.

    Attributes:
        values: function plus noise on the mesh, one function per row. The noise has mean 0 and covariance
            scale^2 exp(-beta|x-y|) within a row, and rows are independent.
        beta: the parameter of the kernel.
        scale: the scale of the noise.
    """

    values: Float[Array, "*m n"]
    beta: Float[Array, ""]
    scale: Float[Array, ""]

    def __init__(self, values: Float[Array, "*m n"], beta: ArrayLike, scale: ArrayLike) -> None:
        self.values = values
        self.beta = jnp.asarray(beta, float)
        self.scale = jnp.asarray(scale, float)

    def __check_init__(self) -> None:
        depth_of(self.values.shape[-1])

    @classmethod
    def from_release(cls, release: Release, beta: ArrayLike) -> "ReleasedFunction":
        """The functions in a release of their whitened values."""
        assert isinstance(release.noise, GaussianNoise)
        return cls(mesh_path(release.value, beta), beta, release.noise.scale)

    @property
    def depth(self) -> int:
        """The mesh has 2^depth cells."""
        return depth_of(self.values.shape[-1])

    @property
    def noise(self) -> GaussianNoise:
        """The distribution of the noise in `whiten(values, beta)`: white."""
        return GaussianNoise(self.scale, self.values.shape)

    def __call__(self, points: Float[Array, "*batch"]) -> Float[Array, "..."]:
        """The noisy functions at the mesh points nearest to `points`; one row for each function."""
        return self.values[..., nearest(points, self.depth)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the released values to a file (NumPy's npz, without pickle)."""
        write_arrays(path, "function", {"values": self.values, "beta": self.beta, "scale": self.scale})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "ReleasedFunction":
        """Reads what `save` wrote, to the last bit."""
        return cls(**read_arrays(path, "function", ("values", "beta", "scale")))


def write_arrays(path: str | os.PathLike[str], kind: str, arrays: Mapping[str, Array]) -> None:
    """Writes arrays and their kind to exactly this path."""
    content = {name: np.asarray(array) for name, array in arrays.items()}
    with open(path, "wb") as file:
        np.savez(file, format=np.asarray(_FORMAT), kind=np.asarray(kind), **content)  # type: ignore[arg-type]


def read_arrays(path: str | os.PathLike[str], kind: str, names: tuple[str, ...]) -> dict[str, Array]:
    """Reads what `write_arrays` wrote. Refuses another kind or format, and numbers that are not finite."""
    what = f"`{os.fspath(path)}` is not a released {kind}"
    try:
        content = read_npz(read_bytes(Path(path)), what)
    except ValueError as error:
        raise ValueError(f"{what}: it cannot be read as NumPy arrays. Write it with `save`.") from error
    if set(content) != {"format", "kind", *names} or str(content["kind"]) != kind:
        raise ValueError(f"{what}: it holds {sorted(content)}. Write it with `save`.")
    if int(content["format"]) != _FORMAT:
        raise ValueError(f"{what} of format {_FORMAT} but of format {int(content['format'])}. Update privrl.")
    if not all(content[name].dtype == np.float64 and np.isfinite(content[name]).all() for name in names):
        raise ValueError(f"{what}: its arrays are not finite numbers in 64 bits.")
    return {name: jnp.asarray(content[name]) for name in names}


def _positive(**arguments: float) -> None:
    for name, value in arguments.items():
        if not 0.0 < value < math.inf:
            raise ValueError(f"`{name}` is {value}; it must be a positive finite number.")
