"""Anticoagulation: warfarin doses by genotype, weight and clotting time; paid for visits within range.

The drug's amount decays with a clearance that depends on the genotype, clotting activity p follows it slowly, and the
INR is 1/p. A visit every three days chooses the daily dose until the next one and pays if the INR is in 2 to 3 then; an
INR above 4 may cause a bleeding, which ends the treatment. Clinicians follow a rule of thumb on the INR and the last
dose; a quarter of their decisions are arbitrary.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from privrl.envs.patients.patient_world import AbstractPatients, StepOutcome
from privrl.mdp.measurements import Category, Feature, Measurement

_DOSES = (0.0, 2.0, 4.0, 6.0, 9.0)  # mg a day
_DAYS = 3
_CLEARANCE = (1.0, 0.7, 0.4)  # of the three genotypes, relative
_GENOTYPES = ("normal", "intermediate", "poor")
_FREQUENT = (0.6, 0.9)
_UNSEEN = 2.0
_ARBITRARY = 0.25


class _Clotting(NamedTuple):
    genotype: Int[Array, ""]
    weight: Float[Array, ""]
    clearance: Float[Array, ""]
    potency: Float[Array, ""]
    amount: Float[Array, ""]
    activity: Float[Array, ""]
    last_dose: Float[Array, ""]


class Anticoagulation(AbstractPatients):
    """Warfarin by clotting time; three measurements and a genotype, with gaps, visits within range."""

    name: ClassVar[str] = "anticoagulation"
    num_actions: ClassVar[int] = 5
    columns: ClassVar[tuple[Measurement, ...]] = (
        Feature("inr", 0.8, 8.0, missing=True, log=True),
        Feature("last_dose", 0, 10),
        Feature("weight", 40, 140),
        Category("genotype", _GENOTYPES, missing=True),
    )
    survival: ClassVar[float] = 0.0
    sizes: ClassVar[tuple[int, int, int, int]] = (3, 2, 2, 1)
    horizon: int = eqx.field(static=True, default=20)
    evaluated: int = eqx.field(static=True, default=60_000)

    def begin(self, normals: Float[Array, " first"], uniforms: Float[Array, " first_uniform"]) -> _Clotting:
        known = jnp.searchsorted(jnp.array(_FREQUENT), uniforms[0], side="right")
        genotype = jnp.where(uniforms[1] < 0.3, known + len(_GENOTYPES), known)  # not tested: the table has no value
        weight = 75.0 + 13.0 * normals[0]
        clearance = jnp.array(_CLEARANCE)[known] * (weight / 75.0) * jnp.exp(0.15 * normals[1])
        potency = jnp.exp(0.2 * normals[2])
        return _Clotting(genotype, weight, clearance, potency, jnp.zeros(()), jnp.ones(()), jnp.zeros(()))

    def observe(
        self, state: _Clotting, normals: Float[Array, " N"], uniforms: Float[Array, " U"]
    ) -> Float[Array, " D"]:
        inr = jnp.exp(0.06 * normals[0]) / state.activity
        tested = state.genotype < len(_GENOTYPES)
        return jnp.stack(
            [
                jnp.where(uniforms[0] < 0.1, jnp.nan, inr),
                state.last_dose,
                state.weight,
                jnp.where(tested, state.genotype.astype(float), jnp.nan),
            ]
        )

    def practice(
        self,
        step: Int[Array, ""],
        state: _Clotting,
        observation: Float[Array, " D"],
        uniforms: Float[Array, " uniforms"],
    ) -> Int[Array, ""]:
        inr = jnp.where(jnp.isnan(observation[0]), _UNSEEN, observation[0])
        last = jnp.argmin(jnp.abs(jnp.array(_DOSES) - observation[1]))
        moved = last + (inr < 1.8).astype(int) - (inr > 3.2) - (inr > 4.0)
        by_rule = jnp.where(step == 0, 3, jnp.clip(moved, 0, len(_DOSES) - 1))
        return jnp.where(uniforms[0] < _ARBITRARY, jnp.floor(len(_DOSES) * uniforms[1]).astype(int), by_rule)

    def tuned(
        self,
        step: Int[Array, ""],
        state: _Clotting,
        observation: Float[Array, " D"],
        uniforms: Float[Array, " uniforms"],
    ) -> Int[Array, ""]:
        inr = jnp.where(jnp.isnan(observation[0]), _UNSEEN, observation[0])
        share = jnp.append(jnp.array(_TUNED[:3]), _TUNED[0])[jnp.nan_to_num(observation[3], nan=3.0).astype(int)]
        wanted = share * observation[2] / 75.0 - _TUNED[3] * jnp.log(inr / _TUNED[4])
        return jnp.argmin(jnp.abs(jnp.array(_DOSES) - wanted))

    def treat(self, state: _Clotting, action: Int[Array, ""], normals: Float[Array, " N"]) -> StepOutcome:
        dose = jnp.array(_DOSES)[action]

        def day(carry: tuple[Array, Array], nothing: None) -> tuple[tuple[Array, Array], None]:
            amount, activity = carry
            amount = amount * jnp.exp(-0.45 * state.clearance) + dose
            target = 1.0 / (1.0 + state.potency * amount / 9.0)
            return (amount, activity + 0.3 * (target - activity)), None

        (amount, activity), _ = jax.lax.scan(day, (state.amount, state.activity), None, length=_DAYS)
        activity = jnp.clip(activity * jnp.exp(0.03 * normals[1]), 0.05, 1.2)
        inr = 1.0 / activity
        paid = jnp.where((inr >= 2.0) & (inr <= 3.0), 1.0 / self.horizon, 0.0)
        bleeds = 0.3 * jax.nn.relu(1.0 - 4.0 / inr)
        after = state._replace(amount=amount, activity=activity, last_dose=dose)
        return StepOutcome(after, paid, bleeds, jnp.zeros(()))


_TUNED = (2.54, 2.15, 0.75, 5.47, 2.99)
