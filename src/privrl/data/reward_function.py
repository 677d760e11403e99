"""A secret that is no table of people: one reward function."""

import hmac
from collections.abc import Callable
from typing import Any, final

import numpy as np
from jaxtyping import Float

from privrl.data.schema.guard import redact_errors
from privrl.privacy.functions.paths import mesh_points


@final
class RewardFunction:
    """A reward for every place of [0, 1], known at the mesh points k 2^-depth; each value in [0, 1].

    The object holds the secret: it stays with the curator, and nothing of it is printed.
    """

    values: Float[np.ndarray, " n"]

    def __init__(self, values: Any) -> None:
        """`values` at the n = 2^depth + 1 points of `privrl.privacy.functions.paths.mesh_points(depth)`."""
        with redact_errors("`values` are not numbers", "Give one per point."):
            given = np.array(values, dtype=np.float64)
        n = given.shape[0] if given.ndim == 1 else 0
        if n < 2 or (n - 1) & (n - 2):
            raise ValueError(
                f"`values` has shape {given.shape}; give one number per mesh point, 2^depth + 1 of them (or use "
                "`RewardFunction.from_function(function, depth=...)`)."
            )
        if not bool(((given >= 0.0) & (given <= 1.0)).all()):  # also where one is not a number
            raise ValueError(
                "A reward is outside [0, 1] or not a number. Rescale the rewards with public constants that would do "
                "for every function that may stand here."
            )
        given.setflags(write=False)
        self.values = given

    @classmethod
    def from_function(cls, function: Callable[[Any], Any], *, depth: int = 7) -> "RewardFunction":
        """A function of arrays of places, evaluated on the mesh."""
        return cls(function(mesh_points(depth)))

    def digest(self, key: bytes) -> bytes:
        """A keyed digest of the function, to notice another one; it says nothing without the key."""
        return hmac.digest(key, self.values.astype("<f8").tobytes(), "sha256")

    def __repr__(self) -> str:
        return f"RewardFunction({len(self.values)} mesh points)"
