"""Vitals: shock treated with fluids and a vasopressor, measured with gaps; survival is paid at the end.

Hidden are the severity of the illness, perfusion m, lactate l and fluid f; three more numbers are distractions. Actions
are 2 fluids + vasopressor, with fluids 0, 1, 2. A vasopressor helps perfusion but raises lactate if it is not needed;
fluids help until there is too much. Doctors decide by blood pressure alone; 40% of their decisions are arbitrary.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int

from privrl.envs.patients.patient_world import AbstractPatients, StepOutcome
from privrl.mdp.measurements import Feature, Measurement

_COLUMNS = (
    Feature("map", 30, 130, missing=True),
    Feature("lactate", 0, 10, missing=True),
    Feature("fluid", -3, 9),
    Feature("heart_rate", 30, 200),
    Feature("temperature", 33, 42),
    Feature("wbc", 0, 40, missing=True),
)
_MISSING = (0.02, 0.30, 0.50)
_UNSEEN_PRESSURE = 70.0


class _Shock(NamedTuple):
    sick: Float[Array, ""]
    perfusion: Float[Array, ""]
    lactate: Float[Array, ""]
    fluid: Float[Array, ""]
    distraction: Float[Array, " 3"]


class Vitals(AbstractPatients):
    """Shock, fluids and a vasopressor; six measurements with gaps, survival at the end."""

    name: ClassVar[str] = "vitals"
    num_actions: ClassVar[int] = 6
    columns: ClassVar[tuple[Measurement, ...]] = _COLUMNS
    survival: ClassVar[float] = 1.0
    sizes: ClassVar[tuple[int, int, int, int]] = (6, 1, 8, 3)
    horizon: int = eqx.field(static=True, default=20)
    evaluated: int = eqx.field(static=True, default=140_000)

    def begin(self, normals: Float[Array, " first"], uniforms: Float[Array, " first_uniform"]) -> _Shock:
        n = normals
        return _Shock(
            sick=jnp.exp(0.35 * ndtri(uniforms[0])),
            perfusion=-0.5 + 0.35 * n[0],
            lactate=jnp.abs(0.8 + 0.5 * n[1]),
            fluid=0.1 + 0.15 * n[2],
            distraction=n[3:6],
        )

    def observe(self, state: _Shock, normals: Float[Array, " N"], uniforms: Float[Array, " U"]) -> Float[Array, " D"]:
        z = state.distraction
        gone = uniforms < jnp.array(_MISSING)
        pressure = 75 + 20 * state.perfusion + 3 * normals[6]
        lactate = jnp.maximum(1.2 + 2 * state.lactate + 0.3 * normals[7], 0.2)
        wbc = jnp.clip(12 + 5 * z[2] + 1.5 * state.lactate, 0.5, 60)
        return jnp.stack(
            [
                jnp.where(gone[0], jnp.nan, pressure),
                jnp.where(gone[1], jnp.nan, lactate),
                3 * state.fluid,
                95 - 10 * state.perfusion + 14 * z[0],
                37.5 + 0.8 * z[1],
                jnp.where(gone[2], jnp.nan, wbc),
            ]
        )

    def practice(
        self, step: Int[Array, ""], state: _Shock, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        pressure = jnp.where(jnp.isnan(observation[0]), _UNSEEN_PRESSURE, observation[0])
        by_rule = 2 * ((pressure < 64).astype(int) + (pressure < 76)) + (pressure < 54)
        return jnp.where(uniforms[0] < 0.4, jnp.floor(6 * uniforms[1]).astype(int), by_rule)

    def tuned(
        self, step: Int[Array, ""], state: _Shock, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        pressure = jnp.where(jnp.isnan(observation[0]), _UNSEEN_PRESSURE, observation[0])
        fluids = ((pressure < 79).astype(int) + (pressure < 73)) * (observation[2] < 1.4)
        return 2 * fluids + (pressure < 69.5)

    def treat(self, state: _Shock, action: Int[Array, ""], normals: Float[Array, " N"]) -> StepOutcome:
        relu, n = jax.nn.relu, normals
        m, f = state.perfusion, state.fluid
        given, press = (action // 2).astype(float), (action % 2).astype(float)
        perfusion = (
            m + 0.2 * (-0.7 * state.sick - m) + 0.15 * given * jnp.clip(1 - f, 0, 1) + 0.22 * press + 0.14 * n[0]
        )
        fluid = 0.86 * f + 0.12 * given + 0.04 * n[1]
        burden = 0.22 * relu(-m - 0.15) * state.sick + 0.192 * press * relu(m + 0.9) ** 2 + 0.2 * relu(f - 0.55)
        lactate = jnp.maximum(0.9 * state.lactate + burden + 0.07 * n[2], 0.0)
        death = jax.nn.sigmoid(-6.2 + 1.7 * lactate + 1.2 * relu(-perfusion - 0.4) + 2.2 * relu(fluid - 0.8))
        well = (lactate < 0.5) & (perfusion > -0.25) & (fluid < 0.7)
        after = _Shock(state.sick, perfusion, lactate, fluid, 0.8 * state.distraction + 0.6 * n[3:6])
        return StepOutcome(after, jnp.zeros(()), death, jnp.where(well, 0.2, 0.0))
