"""The interface of noise distributions: what a learner may know about the noise in a release."""

import abc
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

White = Literal["normal", "laplace"] | None
NoiseKind = Literal["gaussian", "laplace"]
"""The noise of sums: Gaussian for an L2 sensitivity, Laplace for an L1 sensitivity (pure differential privacy)."""


class AbstractNoise(eqx.Module):
    """The distribution of zero-mean noise in an array of `shape`.

    Every bound fails with probability at most `failure`. `white` is the kind of white noise that `scaled` needs; it
    is `None` if the noise is not made from white noise.
    """

    shape: eqx.AbstractVar[tuple[int, ...]]
    white: eqx.AbstractClassVar[White]

    @property
    @abc.abstractmethod
    def variance(self) -> Float[Array, "..."]:
        """Variance of the entries, broadcastable to `shape`."""

    @property
    def std(self) -> Float[Array, "..."]:
        """Standard deviation of the entries, broadcastable to `shape`."""
        return jnp.sqrt(self.variance)

    @abc.abstractmethod
    def norm_bound(self, failure: float) -> Float[Array, ""]:
        """Bound on the L2 (Frobenius) norm of the whole array."""

    @abc.abstractmethod
    def spectral_bound(self, failure: float) -> Float[Array, ""]:
        """Bound on the largest singular value of a square matrix."""

    @abc.abstractmethod
    def max_bound(self, failure: float) -> Float[Array, ""]:
        """Bound on the largest absolute entry."""

    @abc.abstractmethod
    def from_white(self, white: ArrayLike) -> Float[Array, "..."]:
        """Turns standard white noise of `shape` (of the kind `white`) into noise of this distribution."""
