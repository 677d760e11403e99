"""LAP, part 1: centres and half-widths of measurements, from noisy histograms."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_TINY = 1e-12


@eqx.filter_jit
def standardised(
    histograms: Float[Array, "F bins"], edges: Float[Array, " edges"]
) -> tuple[Float[Array, " F"], Float[Array, " F"]]:
    """c = the median, and s = (q90 - q10)/2, at least 1.5 bins, of each measurement; 0 and 1 where nothing was seen.

    The last entry of a histogram, the share of missing values, is not used. Sums up to each edge are made monotone by
    the mean of their running maximum from below and their running minimum from above.
    """
    width = edges[1] - edges[0]

    def one(shares: Float[Array, " bins"]) -> tuple[Array, Array]:
        total = jnp.append(0.0, jnp.cumsum(shares[:-1]))
        rising = jax.lax.cummax(total) + jax.lax.cummin(total[::-1])[::-1]
        level = (rising - rising[0]) / jnp.maximum(rising[-1] - rising[0], _TINY)
        low, middle, high = jnp.interp(jnp.array([0.1, 0.5, 0.9]), level, edges)
        seen = total[-1] > 0
        return jnp.where(seen, middle, 0.0), jnp.where(seen, jnp.maximum((high - low) / 2, 0.75 * width), 1.0)

    return jax.vmap(one)(histograms)
