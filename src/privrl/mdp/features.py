"""Feature maps phi(s, a) of a finite world, with norms that are bounded before any record is read.

Sensitivities are computed from ||phi|| <= 1, so a map that breaks the bound is refused, never clipped silently.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

Indices = Int[Array | np.ndarray, "*batch"]

_MAX_COORDINATES = 2**14  # of one-hot features, whose table has this many rows and columns
_ROUNDING = 1e-9


class AbstractFeatures(eqx.Module):
    """phi(s, a) in R^d with ||phi(s, a)|| <= 1, public."""

    num_states: eqx.AbstractVar[int]
    num_actions: eqx.AbstractVar[int]
    dim: eqx.AbstractVar[int]
    table: eqx.AbstractVar[Float[Array, "S A d"]]

    @abc.abstractmethod
    def of(self, states: Indices, actions: Indices) -> Float[Array, "*batch d"]:
        """The features of these states and actions."""


class OneHotFeatures(AbstractFeatures):
    """One coordinate per (state, action), number s A + a: a tabular world as a linear one. Nothing is stored."""

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    @property
    def dim(self) -> int:
        return self.num_states * self.num_actions

    @property
    def table(self) -> Float[Array, "S A d"]:
        if self.dim > _MAX_COORDINATES:
            raise ValueError(
                f"A table of one-hot features with {self.dim:,} coordinates does not fit into memory; there may be at "
                f"most {_MAX_COORDINATES:,}. Use a learner for finite environments, such as `APVI` or `UCBVI`."
            )
        return jnp.eye(self.dim).reshape(self.num_states, self.num_actions, self.dim)

    def of(self, states: Indices, actions: Indices) -> Float[Array, "*batch d"]:
        return jax.nn.one_hot(jnp.asarray(states) * self.num_actions + jnp.asarray(actions), self.dim, dtype=float)


class TableFeatures(AbstractFeatures):
    """A given table `[S, A, d]` of features, each of norm at most 1."""

    table: Float[Array, "S A d"]

    @property
    def num_states(self) -> int:
        return self.table.shape[0]

    @property
    def num_actions(self) -> int:
        return self.table.shape[1]

    @property
    def dim(self) -> int:
        return self.table.shape[2]

    def of(self, states: Indices, actions: Indices) -> Float[Array, "*batch d"]:
        return self.table[jnp.asarray(states), jnp.asarray(actions)]

    def __check_init__(self) -> None:
        if isinstance(self.table, jax.core.Tracer):
            return
        largest = float(np.max(np.linalg.norm(np.asarray(self.table), axis=-1)))
        if not largest <= 1.0 + _ROUNDING:
            raise ValueError(
                f"`table` has a feature of norm {largest:.6g}; every feature must be finite with norm at most 1, "
                "because the noise is calibrated to that bound. Divide the table by its largest norm (and multiply the "
                "measures and reward weights of a linear MDP by it)."
            )
