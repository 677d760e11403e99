"""Releasing functions of several numbers: a combination of finitely many public features, theta . phi(x).

The kernel of `released.py` belongs to one dimension. Here a function of x in [0, 1]^p is its weights theta, so
releasing theta with noise releases the function, exactly, for any number of queries anywhere: the noise is the
process xi . phi(x) with xi white. That noise lies in the span of the features. A function outside of the span has a
residual that the noise does not cover: adding noise to *answers* would publish the residual as it is. So weights are
released, never values.
"""

import os
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from privrl.privacy.functions.released import read_arrays, write_arrays
from privrl.privacy.noise.distributions import GaussianNoise

Features = Callable[[Float[Array, " p"]], Float[Array, " d"]]


class ReleasedLinearFunction(eqx.Module):
    """Noisy combinations of public features. They can be published and queried any number of times.

    **Formal guarantee.** Answers are a function of the released weights (post-processing), whose cost is counted once:
    mu = distance/scale, where neighbours' weights are at most `distance` apart (L2, all rows together).

    Attributes:
        weights: theta plus white noise, one function per row.
        scale: the scale of the noise.
        features: phi, a public function from one point to d numbers.
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
        """The distribution of the noise in the weights: white."""
        return GaussianNoise(self.scale, self.weights.shape)

    def __call__(self, points: Float[Array, "*batch p"]) -> Float[Array, "..."]:
        """The noisy functions at each point; one row for each function."""
        phi = jnp.vectorize(self.features, signature="(p)->(d)")(points)
        return jnp.tensordot(self.weights, phi, axes=(-1, -1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the released weights to a file (NumPy's npz, without pickle). Features are code and are not saved."""
        write_arrays(path, "linear function", {"weights": self.weights, "scale": self.scale})

    @classmethod
    def load(cls, path: str | os.PathLike[str], features: Features) -> "ReleasedLinearFunction":
        """Reads what `save` wrote, to the last bit."""
        return cls(**read_arrays(path, "linear function", ("weights", "scale")), features=features)
