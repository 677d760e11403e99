"""The interface of policies: a policy consists of arrays, by which it is saved and certified."""

from dataclasses import fields

import equinox as eqx
import numpy as np


class AbstractPolicy(eqx.Module):
    """A rule that chooses actions."""

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that the policy consists of, by name. Results save them, and certificates name their hash."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}
