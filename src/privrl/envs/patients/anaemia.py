"""Anaemia: doses of erythropoietin by haemoglobin, month after month, for people on dialysis; paid for months in range.

The marrow responds to a dose with a delay, less if iron is short or with inflammation, and red cells live for months:

    p' = p + .5 (r iron inflamed D/(D + 6) - p),    Hb' = .78 Hb + 1.8 + 1.6 p',    r a person's own responsiveness

A month pays if haemoglobin is in 10 to 11.5 g/dl afterwards; above 13 a clot may end the treatment. Clinicians adjust
the last dose towards their own target of haemoglobin, with errors; a fifth of their decisions are arbitrary.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int

from privrl.envs.patients.patient_world import AbstractPatients, StepOutcome
from privrl.mdp.measurements import Feature, Measurement

_DOSES = (0.0, 2.0, 4.0, 8.0, 14.0)  # thousand units a week
_ARBITRARY = 0.2
_UNSEEN = 10.7
_MISSING = (0.03, 0.40, 0.30)


class _Blood(NamedTuple):
    responsiveness: Float[Array, ""]
    habit: Float[Array, ""]
    marrow: Float[Array, ""]
    haemoglobin: Float[Array, ""]
    iron: Float[Array, ""]
    inflammation: Float[Array, ""]
    last_dose: Float[Array, ""]


class Anaemia(AbstractPatients):
    """Erythropoietin by haemoglobin; four measurements with gaps, months within range."""

    name: ClassVar[str] = "anaemia"
    num_actions: ClassVar[int] = 5
    columns: ClassVar[tuple[Measurement, ...]] = (
        Feature("haemoglobin", 5, 17, missing=True),
        Feature("ferritin", 10, 3000, missing=True, log=True),
        Feature("crp", 0.2, 300, missing=True, log=True),
        Feature("last_dose", 0, 15),
    )
    survival: ClassVar[float] = 0.0
    sizes: ClassVar[tuple[int, int, int, int]] = (5, 1, 6, 3)
    horizon: int = eqx.field(static=True, default=18)
    evaluated: int = eqx.field(static=True, default=60_000)

    def begin(self, normals: Float[Array, " first"], uniforms: Float[Array, " first_uniform"]) -> _Blood:
        n = normals
        return _Blood(
            responsiveness=jnp.exp(0.35 * ndtri(uniforms[0])),
            habit=10.8 + 0.4 * n[0],
            marrow=jnp.abs(0.3 + 0.1 * n[1]),
            haemoglobin=9.8 + 1.2 * n[2],
            iron=0.6 * n[3],
            inflammation=0.9 * n[4],
            last_dose=jnp.asarray(_DOSES[2]),
        )

    def observe(self, state: _Blood, normals: Float[Array, " N"], uniforms: Float[Array, " U"]) -> Float[Array, " D"]:
        gone = uniforms < jnp.array(_MISSING)
        measured = jnp.stack(
            [
                state.haemoglobin + 0.3 * normals[3],
                400 * jnp.exp(state.iron + 0.2 * state.inflammation + 0.1 * normals[4]),
                6 * jnp.exp(state.inflammation + 0.2 * normals[5]),
            ]
        )
        return jnp.append(jnp.where(gone, jnp.nan, measured), state.last_dose)

    def practice(
        self, step: Int[Array, ""], state: _Blood, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        haemoglobin = jnp.where(jnp.isnan(observation[0]), _UNSEEN, observation[0])
        arbitrary, rest = uniforms[0] < _ARBITRARY, jnp.clip(uniforms[1], 1e-6, 1 - 1e-6)
        wanted = observation[3] + 2.5 * (state.habit - haemoglobin) + 2.0 * ndtri(rest)
        return jnp.where(arbitrary, jnp.floor(len(_DOSES) * uniforms[1]).astype(int), _nearest(wanted))

    def tuned(
        self, step: Int[Array, ""], state: _Blood, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        haemoglobin = jnp.where(jnp.isnan(observation[0]), _UNSEEN, observation[0])
        inflamed = jnp.log(jnp.where(jnp.isnan(observation[2]), 6.0, observation[2]) / 6.0)
        base, kept, slope, target, extra = _TUNED
        return _nearest(base + kept * observation[3] + slope * (target - haemoglobin) + extra * inflamed)

    def treat(self, state: _Blood, action: Int[Array, ""], normals: Float[Array, " N"]) -> StepOutcome:
        dose = jnp.array(_DOSES)[action]
        available = jax.nn.sigmoid(1.5 + 1.5 * state.iron) * jnp.exp(-0.25 * jax.nn.relu(state.inflammation))
        wanted = state.responsiveness * available * dose / (dose + 6.0)
        marrow = state.marrow + 0.5 * (wanted - state.marrow)
        haemoglobin = jnp.clip(0.78 * state.haemoglobin + 1.8 + 1.6 * marrow + 0.2 * normals[0], 4.0, 20.0)
        paid = jnp.where((haemoglobin >= 10.0) & (haemoglobin <= 11.5), 1.0 / self.horizon, 0.0)
        after = state._replace(
            marrow=marrow,
            haemoglobin=haemoglobin,
            iron=0.85 * state.iron - 0.3 * (marrow - 0.4) + 0.2 * normals[1],
            inflammation=0.6 * state.inflammation + 0.7 * normals[2],
            last_dose=dose,
        )
        return StepOutcome(after, paid, 0.06 * jnp.clip(haemoglobin - 13.0, 0.0, 5.0), jnp.zeros(()))


def _nearest(dose: Float[Array, ""]) -> Int[Array, ""]:
    return jnp.argmin(jnp.abs(jnp.array(_DOSES) - dose))


_TUNED = (3.66, 0.58, 5.83, 10.43, 0.35)
