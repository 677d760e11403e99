"""LAP, part 1: centres and half-widths of measurements, from noisy histograms; in NumPy, so nothing is compiled."""

import numpy as np
from jaxtyping import Array, Float

_TINY = 1e-12


def standardised(
    histograms: Float[Array | np.ndarray, "F bins"], edges: Float[Array | np.ndarray, " edges"]
) -> tuple[Float[np.ndarray, " F"], Float[np.ndarray, " F"]]:
    """c = the median, and s = (q90 - q10)/2, at least 1.5 bins, of each measurement; 0 and 1 where nothing was seen.

    The last entry of a histogram, the share of missing values, is not used. Sums up to each edge are made monotone by
    the mean of their running maximum from below and their running minimum from above.
    """
    at = np.asarray(edges)
    found = [_one(np.asarray(shares), at) for shares in np.asarray(histograms)]
    centres, half_widths = zip(*found, strict=True)
    return np.array(centres), np.array(half_widths)


def _one(shares: Float[np.ndarray, " bins"], edges: Float[np.ndarray, " edges"]) -> tuple[float, float]:
    total = np.append(0.0, np.cumsum(shares[:-1]))
    if not total[-1] > 0:
        return 0.0, 1.0
    rising = np.maximum.accumulate(total) + np.minimum.accumulate(total[::-1])[::-1]
    level = (rising - rising[0]) / max(rising[-1] - rising[0], _TINY)
    low, middle, high = np.interp([0.1, 0.5, 0.9], level, edges)
    return float(middle), float(max((high - low) / 2, 0.75 * (edges[1] - edges[0])))
