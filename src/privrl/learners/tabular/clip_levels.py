"""Clip levels from noisy histograms of norms, and two releases of one sum as one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.contracts.release import Release

_TINY = 1e-12


class ClipLevel(eqx.Module):
    """A clip level C and what clipping at it does.

    `kept` is the mean of min(1, C/norm): clipped sums are divided by it. `square` is the mean of min(norm, C)^2, and
    `people` how many had a norm at all.
    """

    level: Float[Array, ""]
    kept: Float[Array, ""]
    square: Float[Array, ""]
    people: Float[Array, ""]


def clip_level(histogram: Release, edges: Float[np.ndarray, " bins"], quantile: float) -> ClipLevel:
    """The smallest edge below which the released share of norms is `quantile`; bins within their noise count as 0.

    On the host: it is forty numbers, and a program would be compiled for them.
    """
    h = np.asarray(histogram.value)
    total = max(h.sum(), 1.0)
    at = min(int((np.cumsum(h) < quantile * total).sum()), len(h) - 1)
    C = edges[at]
    middle = edges * np.sqrt(edges[0] / edges[1])
    seen = np.where(h > 2.0 * np.asarray(histogram.noise.std).max(), h, 0.0)
    seen = seen / seen.sum() if seen.sum() > 0 else np.full(len(h), 1.0 / len(h))
    kept, square = seen @ np.minimum(1.0, C / middle), seen @ np.minimum(middle, C) ** 2
    return ClipLevel(*jax.device_put(tuple(np.asarray(x, float) for x in (C, kept, square, total))))


def averaged(
    first: Float[Array, "*shape"], s: Float[Array, ""], second: Float[Array, "*shape"], t: Float[Array, ""]
) -> tuple[Float[Array, "*shape"], Float[Array, ""]]:
    """Two releases of one sum with noise s and t, by precision (the plain mean of two without noise)."""
    both = jnp.maximum(s**2 + t**2, _TINY**2)
    weight = jnp.where(s + t > 0, t**2 / both, 0.5)
    return weight * first + (1.0 - weight) * second, s * t / jnp.sqrt(both)
