"""Ventilation: how much pressure, and how deep the sleep, for lungs that fail; survival is paid at the end.

Hidden are the severity of the illness, the oxygen deficit o, the injury of the lungs j, and the weakness w. Actions are
2 pressure + sedation, with pressures 0, 1, 2 and light or deep sedation. Pressure helps oxygenation; pressure, and hard
breathing while awake, injure the lungs; sedation weakens:

    strain = max(.5 pressure + .5 awake o - .6, 0)
    o' = .85 o + .35 j + .125 sick - .16 pressure,    j' = .9 j + .18 strain + .02 sick,    w' = .92 w + .1 deep

Patients who breathe well, are awake and strong enough, and need little pressure, may leave. Doctors decide by oxygen
alone; 35% of their decisions are arbitrary.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int

from privrl.envs.patients.patient_world import AbstractPatients, StepOutcome
from privrl.mdp.measurements import Feature, Measurement

_ARBITRARY = 0.35
_UNSEEN = 200.0
_MISSING = (0.25, 0.50, 0.20)


class _Lungs(NamedTuple):
    sick: Float[Array, ""]
    oxygen: Float[Array, ""]
    injury: Float[Array, ""]
    weakness: Float[Array, ""]
    kidney: Float[Array, ""]
    pressure: Float[Array, ""]
    asleep: Float[Array, ""]


class Ventilation(AbstractPatients):
    """Pressure and sedation for failing lungs; six measurements with gaps, survival at the end."""

    name: ClassVar[str] = "ventilation"
    num_actions: ClassVar[int] = 6
    columns: ClassVar[tuple[Measurement, ...]] = (
        Feature("oxygenation", 40, 500, missing=True),
        Feature("plateau_pressure", 5, 45),
        Feature("sedation_score", -6, 3),
        Feature("grip", 0, 100, missing=True),
        Feature("respiratory_rate", 5, 50),
        Feature("creatinine", 0.2, 10, missing=True, log=True),
    )
    survival: ClassVar[float] = 1.0
    sizes: ClassVar[tuple[int, int, int, int]] = (4, 1, 9, 3)
    horizon: int = eqx.field(static=True, default=16)
    evaluated: int = eqx.field(static=True, default=60_000)

    def begin(self, normals: Float[Array, " first"], uniforms: Float[Array, " first_uniform"]) -> _Lungs:
        n = normals
        return _Lungs(
            sick=jnp.exp(0.3 * ndtri(uniforms[0])),
            oxygen=jnp.abs(1.0 + 0.35 * n[0]),
            injury=0.2 + jnp.abs(0.15 * n[1]),
            weakness=0.1 + jnp.abs(0.1 * n[2]),
            kidney=0.4 * n[3],
            pressure=jnp.ones(()),
            asleep=jnp.ones(()),
        )

    def observe(self, state: _Lungs, normals: Float[Array, " N"], uniforms: Float[Array, " U"]) -> Float[Array, " D"]:
        gone, n = uniforms < jnp.array(_MISSING), normals
        oxygenation = jnp.clip(350 * jnp.exp(-0.9 * state.oxygen) + 20 * n[4], 30, 600)
        grip = jnp.clip(60 - 35 * state.weakness + 8 * n[7], 0, 100)
        return jnp.stack(
            [
                jnp.where(gone[0], jnp.nan, oxygenation),
                14 + 6 * state.pressure + 8 * state.injury + 1.5 * n[5],
                -4 * state.asleep + 0.5 * n[6],
                jnp.where(gone[1], jnp.nan, grip),
                18 + 6 * state.oxygen * (1 - state.asleep) + 3 * n[8],
                jnp.where(gone[2], jnp.nan, jnp.exp(state.kidney)),
            ]
        )

    def practice(
        self, step: Int[Array, ""], state: _Lungs, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        oxygenation = jnp.where(jnp.isnan(observation[0]), _UNSEEN, observation[0])
        by_oxygen = 2 * ((oxygenation < 250).astype(int) + (oxygenation < 150)) + (oxygenation < 180)
        return jnp.where(uniforms[0] < _ARBITRARY, jnp.floor(6 * uniforms[1]).astype(int), by_oxygen)

    def tuned(
        self, step: Int[Array, ""], state: _Lungs, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        oxygenation = jnp.where(jnp.isnan(observation[0]), _UNSEEN, observation[0])
        some, more, sleep, most = _TUNED
        pressure = (oxygenation < some).astype(int) + ((oxygenation < more) & (observation[1] < most))
        return 2 * pressure + (oxygenation < sleep)

    def treat(self, state: _Lungs, action: Int[Array, ""], normals: Float[Array, " N"]) -> StepOutcome:
        relu, n, o, j = jax.nn.relu, normals, state.oxygen, state.injury
        pressure, asleep = (action // 2).astype(float), (action % 2).astype(float)
        strain = relu(0.5 * pressure + 0.5 * (1 - asleep) * o - 0.6)
        oxygen = relu(0.85 * o + 0.35 * j + 0.125 * state.sick - 0.16 * pressure + 0.1 * n[0])
        injury = relu(0.9 * j + 0.18 * strain + 0.02 * state.sick + 0.04 * n[1])
        weakness = relu(0.92 * state.weakness + 0.1 * asleep + 0.02 * n[2])
        death = jax.nn.sigmoid(-6.0 + 2.2 * relu(oxygen - 0.5) + 1.5 * injury + 0.8 * weakness)
        well = (oxygen < 0.6) & (weakness < 0.6) & (pressure < 1.5) & (asleep < 0.5)
        kidney = 0.9 * state.kidney + 0.17 * n[3]
        after = _Lungs(state.sick, oxygen, injury, weakness, kidney, pressure, asleep)
        return StepOutcome(after, jnp.zeros(()), death, jnp.where(well, 0.25, 0.0))


_TUNED = (340.0, 60.0, 205.0, 26.0)
