"""Chemotherapy: tumour against toxicity over a year of monthly doses; survival is paid at the end.

Tumour size M and toxicity W move as in the simulated trial of Zhao, Kosorok and Zeng (2009): a dose D in [0, 1] slows
the tumour and is toxic, both feed on each other,

    W' = W + .1 max(M, M_0) + 1.2 (D - .5),    M' = M + .15 max(W, W_0) - 1.2 (D - .5),  0 for good once it is gone,

and the log hazard of a month is linear in both. Here people differ in their sensitivity, measurements have errors and
gaps, and there are four doses. Oncologists dose by size alone; a third of their decisions are arbitrary.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int

from privrl.envs.patients.patient_world import AbstractPatients, StepOutcome
from privrl.mdp.measurements import Feature, Measurement

_DOSES = (0.0, 0.35, 0.7, 1.0)
_ARBITRARY = 1 / 3
_UNSEEN = 1.0  # the size or toxicity that is assumed if it was not measured


class _Cancer(NamedTuple):
    sensitivity: Float[Array, ""]
    size: Float[Array, ""]
    toxicity: Float[Array, ""]
    first_size: Float[Array, ""]
    first_toxicity: Float[Array, ""]
    age: Float[Array, ""]


class Chemotherapy(AbstractPatients):
    """A year of chemotherapy; three measurements with gaps, survival at the end."""

    name: ClassVar[str] = "chemotherapy"
    num_actions: ClassVar[int] = 4
    columns: ClassVar[tuple[Measurement, ...]] = (
        Feature("tumour", 0, 6, missing=True),
        Feature("toxicity", 0, 6, missing=True),
        Feature("age", 20, 100),
    )
    survival: ClassVar[float] = 1.0
    sizes: ClassVar[tuple[int, int, int, int]] = (3, 1, 4, 2)
    horizon: int = eqx.field(static=True, default=12)
    evaluated: int = eqx.field(static=True, default=60_000)

    def begin(self, normals: Float[Array, " first"], uniforms: Float[Array, " first_uniform"]) -> _Cancer:
        size, toxicity = jnp.abs(1.0 + 0.5 * normals[0]), jnp.abs(0.8 + 0.4 * normals[1])
        age = 62.0 + 11.0 * normals[2]
        return _Cancer(jnp.exp(0.25 * ndtri(uniforms[0])), size, toxicity, size, toxicity, age)

    def observe(self, state: _Cancer, normals: Float[Array, " N"], uniforms: Float[Array, " U"]) -> Float[Array, " D"]:
        gone = uniforms < jnp.array([0.15, 0.25])
        size = jnp.maximum(state.size + 0.15 * normals[2], 0.0)
        toxicity = jnp.maximum(state.toxicity + 0.2 * normals[3], 0.0)
        return jnp.stack([jnp.where(gone[0], jnp.nan, size), jnp.where(gone[1], jnp.nan, toxicity), state.age])

    def practice(
        self, step: Int[Array, ""], state: _Cancer, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        size = jnp.where(jnp.isnan(observation[0]), _UNSEEN, observation[0])
        by_size = (size > 0.1).astype(int) + (size > 0.8) + (size > 1.6)
        return jnp.where(uniforms[0] < _ARBITRARY, jnp.floor(4 * uniforms[1]).astype(int), by_size)

    def tuned(
        self, step: Int[Array, ""], state: _Cancer, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        seen = jnp.where(jnp.isnan(observation), _UNSEEN, observation)
        need = seen[0] - _TUNED[0] * seen[1]
        return (need > _TUNED[1]).astype(int) + (need > _TUNED[2]) + (need > _TUNED[3])

    def treat(self, state: _Cancer, action: Int[Array, ""], normals: Float[Array, " N"]) -> StepOutcome:
        dose = jnp.array(_DOSES)[action]
        push = 1.2 * (dose - 0.5)
        toxicity = state.toxicity + 0.1 * jnp.maximum(state.size, state.first_size) + push + 0.05 * normals[0]
        grown = state.size + 0.15 * jnp.maximum(state.toxicity, state.first_toxicity) - state.sensitivity * push
        size = jnp.where(state.size > 0, grown + 0.05 * normals[1], 0.0)
        after = state._replace(size=jnp.clip(size, 0.0, 6.0), toxicity=jnp.clip(toxicity, 0.0, 6.0))
        death = 1.0 - jnp.exp(-jnp.exp(-8.0 + after.size + after.toxicity + 0.02 * (state.age - 62.0)))
        return StepOutcome(after, jnp.zeros(()), death, jnp.zeros(()))


_TUNED = (0.21, -0.53, -0.36, -0.37)
