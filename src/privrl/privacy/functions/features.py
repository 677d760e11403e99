"""Releasing functions of several numbers: a combination of finitely many public features, theta . phi(x).

The kernel of `released.py` belongs to one dimension. Here a function of x in [0, 1]^p is its weights theta, so
releasing theta with noise releases the function, exactly, for any number of questions anywhere: the noise is the
process xi . phi(x) with xi white. That noise lives in the span of the features and nowhere else. A function that leaves
the span has a rest that no noise covers: adding noise to *answers* would publish the rest as it is, and taking the
weights of its shadow in the span would answer for another function, about which `distance` says nothing. So weights
come first, and values only where they fit.
"""

import math
import os
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from privrl.privacy.functions.released import read_arrays, write_arrays
from privrl.privacy.noise.laws import GaussianNoise

Features = Callable[[Float[Array, " p"]], Float[Array, " d"]]

_TOLERANCE = 2.0**-40  # of the bound: far above the rounding of values, far below anything a person could mean
_WORST = 1e-8  # smallest over largest singular value that still tells the weights apart


class ReleasedLinearFunction(eqx.Module):
    """Noisy combinations of public features, to be asked anything any number of times; may be handed to anybody.

    **Formal guarantee.** Answers are a function of the released weights (post-processing), whose cost is counted once:
    mu = distance/scale, where neighbours' weights are at most `distance` apart (L2, all rows together).

    Attributes:
        weights: theta plus white noise, one function per row.
        scale: of the noise.
        features: phi, public, from one point to d numbers.
    """

    weights: Float[Array, "*m d"]
    scale: Float[Array, ""]
    features: Features

    def __init__(self, weights: Float[Array, "*m d"], scale: ArrayLike, features: Features) -> None:
        self.weights = weights
        self.scale = jnp.asarray(scale, float)
        self.features = features

    @property
    def noise(self) -> GaussianNoise:
        """The law of the noise in the weights: white."""
        return GaussianNoise(self.scale, self.weights.shape)

    def __call__(self, points: Float[Array, "*batch p"]) -> Float[Array, "..."]:
        """The noisy functions at each point; one row for each function."""
        phi = jnp.vectorize(self.features, signature="(p)->(d)")(points)
        return jnp.tensordot(self.weights, phi, axes=(-1, -1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the released weights to a file (NumPy's npz, without pickle). Features are code and stay with you."""
        write_arrays(path, "linear function", {"weights": self.weights, "scale": self.scale})

    @classmethod
    def load(cls, path: str | os.PathLike[str], features: Features) -> "ReleasedLinearFunction":
        """Reads what `save` wrote, to the last bit."""
        return cls(**read_arrays(path, "linear function", ("weights", "scale")), features=features)


def weights_from_values(
    values: Float[Array, "*m N"], points: Float[Array, "N p"], features: Features, *, bound: float
) -> tuple[Float[Array, "*m d"], float]:
    """The weights of functions that are known by their values at public points, and how far rounding can move them.

    Refused unless all values fit: there must be more points than features (otherwise everything fits), points that
    tell the weights apart, and no residual above 2^-40 `bound`. `bound` is public and bounds all values.

    **What this check can and cannot see.** It sees the given points. Functions that leave the span only elsewhere pass,
    however many points there are. They cost no privacy here, because weights are all that is released; but the answers
    elsewhere are those of the combination, and a `distance` that was derived for other functions is void. Where theta
    is at hand, release theta.

    **Formal guarantee.** Let theta be any weights that fit the values within the tolerance t (those of the exact
    function, of which the values are roundings). Both they and the weights that are returned fit, so
    |Phi (theta - returned)| <= 2 t sqrt(entries), hence they differ by at most 2 t sqrt(entries)/s, the second result,
    with s the smallest singular value of Phi. Neighbours whose exact weights are at most D apart are therefore at most
    D + 2 times the second result apart: pass that as `distance`.
    """
    phi = np.asarray(jax.vmap(features)(points))
    v = np.asarray(values)
    if not (0.0 < bound < math.inf and bool((np.abs(v) <= bound).all())):
        raise ValueError(
            f"`bound` is {bound:g}; it must be positive and finite, and every value must be a number within it."
        )
    n, d = phi.shape
    if n <= d:
        raise ValueError(
            f"`values` has {n} points and there are {d} features: anything fits. Give more points than features."
        )
    singular = np.linalg.svd(phi, compute_uv=False)
    if not singular[-1] > _WORST * singular[0]:
        raise ValueError(
            f"The features are not told apart by these {n} points (singular values from {singular[0]:.3g} down to "
            f"{singular[-1]:.3g}). Spread the points, or drop features that are combinations of others."
        )
    rows = v.reshape(-1, n)
    weights = np.linalg.lstsq(phi, rows.T, rcond=None)[0].T
    rounding = d * 2.0**-52 * np.abs(weights) @ np.abs(phi).T  # of the residual itself
    if not bool((np.abs(rows - weights @ phi.T) + rounding <= _TOLERANCE * bound).all()):
        raise ValueError(
            "The values are not a combination of the features: what is left over would get no noise. Nothing was "
            "released. Add the features that are missing, or project the function before anybody's data enter it and "
            "bound the distance of what is projected."
        )
    moved = 2.0 * _TOLERANCE * bound * math.sqrt(v.size) / singular[-1] * 1.001  # the last digits of s are not exact
    return jnp.asarray(weights.reshape(*v.shape[:-1], d)), float(moved)
