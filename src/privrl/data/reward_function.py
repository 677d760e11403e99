"""A secret reward function, in place of a table of people."""

import hmac
from collections.abc import Callable
from typing import final

import numpy as np
from jaxtyping import Array, Float

from privrl.data.schema.guard import redact_errors
from privrl.privacy.functions.paths import mesh_points


@final
class RewardFunction:
    """A reward for every place of [0, 1], known at the mesh points k 2^-depth; each value lies in [0, 1].

    The object holds the secret. It stays with the curator, and printing it shows no value.

    >>> import privrl
    >>> privrl.data.RewardFunction.from_function(lambda x: 0.5 - abs(x - 0.5), depth=2)
    RewardFunction(5 mesh points)
    """

    values: Float[np.ndarray, " n"]

    def __init__(self, values: object) -> None:
        """Store `values` at the n = 2^depth + 1 points of `privrl.privacy.functions.paths.mesh_points(depth)`.

        Raises:
            ValueError: if the number of values is not 2^depth + 1, or a value is outside [0, 1].
        """
        with redact_errors("`values` are not numbers", "Give one number per mesh point."):
            given = np.array(values, dtype=np.float64)
        n = given.shape[0] if given.ndim == 1 else 0
        if n < 2 or (n - 1) & (n - 2):
            raise ValueError(
                f"`values` has shape {given.shape}; it must hold 2^depth + 1 numbers, one per mesh point. Or use "
                "`RewardFunction.from_function(function, depth=...)`."
            )
        if not bool(((given >= 0.0) & (given <= 1.0)).all()):  # NaN fails both comparisons
            raise ValueError(
                "A reward is outside [0, 1] or not a number. Rescale the rewards with public constants that are valid "
                "for every possible reward function."
            )
        given.setflags(write=False)
        self.values = given

    @classmethod
    def from_function(cls, function: Callable[[Float[Array, " n"]], object], *, depth: int = 7) -> "RewardFunction":
        """Evaluate a function of arrays of places on the mesh."""
        return cls(function(mesh_points(depth)))

    def digest(self, key: bytes) -> bytes:
        """A keyed digest, by which a different function is noticed; without the key it reveals nothing."""
        return hmac.digest(key, self.values.astype("<f8").tobytes(), "sha256")

    def __repr__(self) -> str:
        return f"RewardFunction({len(self.values)} mesh points)"
