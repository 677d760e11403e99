"""The ingredients of one release of a curator: its sensitivity, noise distribution, lattice and value."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.contracts.noise_distribution import AbstractNoise
from privrl.privacy.noise.arithmetic import AbstractArithmetic
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.privacy.noise.lattice import Lattice, choose_lattice


@dataclass(frozen=True)
class Contents:
    """The ingredients of one release. No record is read before the ledger has counted the release.

    Attributes:
        sensitivity: how far one person can move it.
        distribution: the noise distribution for a scale.
        lattice: the lattice of an exact release for a parameter.
        content: the exact value, for the number of the release and the arithmetic.
    """

    sensitivity: float
    distribution: Callable[[float], AbstractNoise]
    lattice: Callable[[float], Lattice]
    content: Callable[[int, AbstractArithmetic], Array | np.ndarray]


def contents_of_vector(name: str, value: Float[Array, "..."], distance: float, bound: float) -> Contents:
    """The contents of a vector with entries within the public `bound`, which one person can move by at most `distance`
    (L2); see `Curator.vector`."""
    for argument, number in (("distance", distance), ("bound", bound)):
        if not 0.0 < number < np.inf:
            raise ValueError(f"`{argument}` of `{name}` is {number}; it must be a positive finite number.")
    if not bool((jnp.abs(value) <= bound).all()):  # also false for NaN
        raise ValueError(f"An entry of `{name}` is beyond the public `bound` {bound:g}, or NaN. Nothing was released.")

    def lattice(parameter: float) -> Lattice:
        return choose_lattice(parameter=parameter, sensitivity=distance, norm=bound, filled=value.size, kind="l2")

    def content(number: int, arithmetic: AbstractArithmetic) -> Array | np.ndarray:
        del number
        return arithmetic.represent(name, value, bound)

    distribution = functools.partial(GaussianNoise, shape=value.shape)
    return Contents(distance, distribution, lattice, content)
