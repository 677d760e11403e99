"""A day with type-1 diabetes: a bolus of insulin every 40 minutes from 06:00, paid for glucose within 70 to 180 mg/dl.

The body is `diabetes.py`, one of 20 published ones with a spread of its own. Three or four meals come at
uncertain times and sizes, and are announced at the decision before they begin. Practice is a bolus calculator with
three flaws: one in three decisions is arbitrary, every clinician has a habit of giving too little or too much (mostly
too little), and neither the habit nor the body is recorded.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from privrl.envs.patients.diabetes import Body, Person, at_rest, minute, parameters
from privrl.envs.patients.patient_world import AbstractPatients, StepOutcome
from privrl.mdp.measurements import Feature, Measurement

_MINUTES = 40
_LOW, _HIGH = 70.0, 180.0
_BOLUS = (0.0, 0.0, 0.02, 0.05, 0.09, 0.14)  # U/kg; the first also stops the basal insulin
_ARBITRARY = (0.2, 0.36, 0.2, 0.12, 0.08, 0.04)
_MEALS = ((90.0, 40.0, 55.0), (390.0, 45.0, 75.0), (600.0, 45.0, 20.0), (750.0, 45.0, 80.0))  # minute, sd, g
_SPREAD = ("Vmx", "kp3", "kabs", "kmax")
_UNITS = 6000.0  # pmol per U
_UNSEEN = 140.0  # the glucose that clinicians assume if it was not measured
_COLUMNS = (
    Feature("cgm", 40, 400, missing=True),
    Feature("trend", -5, 5, missing=True),
    Feature("insulin_on_board", 0, 0.4),
    Feature("carbohydrates", 0, 150, missing=True),
    Feature("clock", 0, 960),
)


class _Day(NamedTuple):
    body: Body
    person: Person
    earlier: Float[Array, ""]  # glucose under the skin at the decision before
    on_board: Float[Array, ""]
    clock: Float[Array, ""]
    meal_at: Float[Array, " meals"]
    meal_size: Float[Array, " meals"]
    habit: Float[Array, ""]


def _read(observation: Float[Array, " D"]) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Glucose 20 minutes ahead, carbohydrates and insulin on board, with a calculator's assumptions for missing
    values."""
    cgm, trend, on_board, carbohydrates, _ = observation
    return jnp.where(jnp.isnan(cgm), _UNSEEN, cgm + 20 * trend), jnp.nan_to_num(carbohydrates), on_board


def _nearest(dose: Float[Array, ""]) -> Int[Array, ""]:
    """The action with the nearest bolus; never the action that stops the basal insulin."""
    return 1 + jnp.argmin(jnp.abs(dose - jnp.array(_BOLUS[1:])))


class GlucoseDay(AbstractPatients):
    """A day of insulin for type-1 diabetes; five measurements with gaps, time in range."""

    name: ClassVar[str] = "glucose-day"
    num_actions: ClassVar[int] = 6
    columns: ClassVar[tuple[Measurement, ...]] = _COLUMNS
    survival: ClassVar[float] = 0.0
    sizes: ClassVar[tuple[int, int, int, int]] = (14, 2, 2, 2)
    horizon: int = eqx.field(static=True, default=24)
    evaluated: int = eqx.field(static=True, default=110_000)

    def begin(self, normals: Float[Array, " first"], uniforms: Float[Array, " first_uniform"]) -> _Day:
        n, published = normals, parameters()
        who = jnp.floor(uniforms[0] * len(published["BW"])).astype(int)
        p = {name: column[who] for name, column in published.items()}
        for i, name in enumerate(_SPREAD):
            p[name] = p[name] * jnp.exp(0.12 * n[i])
        body = at_rest(p, jnp.exp(0.15 + 0.22 * n[4]))
        at, sd, size = jnp.array(_MEALS).T
        eaten = size * jnp.exp(0.35 * n[9:13]) * jnp.minimum(p["BW"] / 70, 1.2)
        eaten = eaten.at[2].mul(jnp.where(uniforms[1] < 0.5, 1.0, 0.0))
        return _Day(
            body=body,
            person=Person.of(p),
            earlier=body.under_skin / p["Vg"],
            on_board=jnp.zeros(()),
            clock=jnp.zeros(()),
            meal_at=jnp.round(at + sd * n[5:9]),
            meal_size=eaten,
            habit=jnp.exp(-0.35 + 0.35 * n[13]),
        )

    def observe(self, state: _Day, normals: Float[Array, " N"], uniforms: Float[Array, " U"]) -> Float[Array, " D"]:
        under_skin = state.body.under_skin / state.person.number["Vg"]
        trend = (under_skin - state.earlier) / _MINUTES
        announced = (state.meal_at >= state.clock) & (state.meal_at < state.clock + _MINUTES)
        gone = uniforms < jnp.array([0.05, 0.10])
        return jnp.stack(
            [
                jnp.where(gone[0], jnp.nan, under_skin + 7 * normals[0]),
                jnp.where(gone[0], jnp.nan, trend),
                state.on_board,
                jnp.where(gone[1], jnp.nan, jnp.sum(state.meal_size * announced)),
                state.clock,
            ]
        )

    def practice(
        self, step: Int[Array, ""], state: _Day, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        ahead, eaten, on_board = _read(observation)
        dose = (0.0016 * eaten + jax.nn.relu(ahead - 150) / 1300) * state.habit
        calculated = jnp.where(ahead < 85, 0, _nearest(dose - jnp.where(eaten > 0, 0.0, 0.7 * on_board)))
        arbitrary = jnp.searchsorted(jnp.cumsum(jnp.array(_ARBITRARY[:-1])), uniforms[1], side="right")
        return jnp.where(uniforms[0] < 0.3, arbitrary, calculated)

    def tuned(
        self, step: Int[Array, ""], state: _Day, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        ahead, eaten, on_board = _read(observation)
        dose = 0.0014 * eaten + jax.nn.relu(ahead - 111) / 795 - 0.92 * on_board
        return jnp.where(ahead < 66, 0, _nearest(dose))

    def treat(self, state: _Day, action: Int[Array, ""], normals: Float[Array, " N"]) -> StepOutcome:
        p, bolus = state.person.number, jnp.array(_BOLUS)[action]
        basal = jnp.where(action == 0, 0.0, p["u2ss"])

        def one(carry: tuple[Body, Array], t: Array) -> tuple[tuple[Body, Array], None]:
            body, inside = carry
            served = jnp.sum(state.meal_size * (state.meal_at == state.clock + t))
            body = body._replace(waiting=body.waiting + served)
            body = minute(body, state.person, basal + jnp.where(t == 0, _UNITS * bolus, 0.0))
            glucose = body.plasma / p["Vg"]
            return (body, inside + jnp.where((glucose >= _LOW) & (glucose <= _HIGH), 1.0, 0.0)), None

        (body, inside), _ = jax.lax.scan(one, (state.body, jnp.zeros(())), jnp.arange(float(_MINUTES)))
        after = state._replace(
            body=body,
            earlier=state.body.under_skin / p["Vg"],
            on_board=state.on_board * jnp.exp(-_MINUTES / 120.0) + bolus,
            clock=state.clock + _MINUTES,
        )
        share = inside / (_MINUTES * self.horizon)
        return StepOutcome(after, share, jnp.zeros(()), jnp.zeros(()))
