"""The range of the outcome of a pilot, from what a fit enforced on every record."""

from collections.abc import Mapping
from typing import Any


def outcome_bounds(bounds: Mapping[str, Any]) -> tuple[float, float]:
    """The range of returns that a fit enforced."""
    if found := bounds.get("return range"):
        return float(found[0]), float(found[1])
    low, high = bounds.get("reward range", (0.0, 1.0))
    if (bound := bounds.get("return bound")) is not None:
        return min(float(low), 0.0), float(bound)
    horizon = bounds.get("horizon", 1)
    return min(float(low), 0.0) * horizon, float(high) * horizon
