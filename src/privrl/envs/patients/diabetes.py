"""A body with type-1 diabetes: the 13 compartments of the UVA/Padova model, one minute at a time.

Food passes stomach (solid, ground) and gut into plasma glucose; insulin passes two depots under the skin into plasma,
and from there acts, with delays, on the liver's production and on the tissue's uptake of glucose (Dalla Man, Rizza and
Cobelli, "Meal simulation model of the glucose-insulin system", 2007). `glucose_day.csv` has the parameters of 20
virtual adolescents and adults from the simulator `simglucose` (NOTICE has its licence). This is a demonstration: do not
dose insulin with this model.

Within a minute inputs are constant. Compartments with a linear outflow are advanced by the exact exponential with the
mean inflow, food is conserved, and the glucose pair takes a midpoint step: compared with an adaptive solver, a day with
meals and boluses stays within 0.3 mg/dl.
"""

import csv
from importlib import resources
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

Amount = Float[Array, ""]

_EATEN_PER_MINUTE = 5.0  # g of carbohydrates
_GAUSS = (0.5 - 3**-0.5 / 2, 0.5 + 3**-0.5 / 2)  # of a minute: the mean of a steep function over it


class Body(NamedTuple):
    """Compartments of one person; amounts of glucose in mg (food) or mg/kg, of insulin in pmol/kg or pmol/l."""

    solid: Amount
    ground: Amount
    gut: Amount
    plasma: Amount
    tissue: Amount
    insulin: Amount
    uptake: Amount
    delayed: Amount
    signal: Amount
    liver: Amount
    depot_1: Amount
    depot_2: Amount
    under_skin: Amount
    emptied: Amount  # mg that left the stomach in the last minute
    waiting: Amount  # g of carbohydrates that are not eaten yet
    meal: Amount  # mg: contents of the stomach at the start of this meal, plus the amount eaten since
    eating: Amount  # 1 while eating


class Decay(NamedTuple):
    """A compartment with a linear outflow: the share left after a minute, and the effect of an inflow."""

    kept: Amount
    added: Amount

    @classmethod
    def of(cls, rate: Amount) -> "Decay":
        kept = jnp.exp(-rate)
        return cls(kept, (1 - kept) / rate)

    def after(self, amount: Amount, inflow: Amount) -> Amount:
        return amount * self.kept + inflow * self.added


class Person(NamedTuple):
    """The parameters of a body by name, and the decays that follow from them."""

    number: dict[str, Amount]
    decay: dict[str, Decay]

    @classmethod
    def of(cls, p: dict[str, Amount]) -> "Person":
        rates = {
            "solid": p["kmax"],
            "gut": p["kabs"],
            "depot_1": p["ka1"] + p["kd"],
            "depot_2": p["ka2"],
            "insulin": p["m2"] + p["m4"],
            "liver": p["m1"] + p["m30"],
            "uptake": p["p2u"],
            "signal": p["ki"],
            "under_skin": p["ksc"],
        }
        return cls(p, {name: Decay.of(rate) for name, rate in rates.items()})


def parameters() -> dict[str, Float[Array, " people"]]:
    """The published parameters by name; `x1` to `x13` are the compartments in equilibrium with the basal insulin."""
    with resources.files(__package__).joinpath("glucose_day.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {name: jnp.array([float(row[name]) for row in rows]) for name in rows[0] if name != "name"}


def at_rest(p: dict[str, Amount], glucose: Amount) -> Body:
    """A body in equilibrium, with all glucose multiplied by a factor."""
    x = [p[f"x{i}"] for i in range(1, 14)]
    x[3], x[4], x[12] = x[3] * glucose, x[4] * glucose, x[12] * glucose
    zero = jnp.zeros_like(glucose)
    return Body._make([*x, zero, zero, x[0] + x[1], zero])


def _bend(full: Amount, p: dict[str, Amount]) -> Amount:
    """The shape of gastric emptying for a stomach that is `full` (a share of the meal): from -2, slowest, to 0."""
    return jnp.tanh(2.5 * (full - p["b"]) / (1 - p["b"])) - jnp.tanh(2.5 * (full - p["d"]) / p["d"])


def minute(body: Body, person: Person, insulin: Amount) -> Body:
    """Advance by one minute with this infusion of insulin in pmol/kg/min; the person eats from the remaining meal."""
    p, decay = person
    food = jnp.minimum(_EATEN_PER_MINUTE, body.waiting)
    eating = jnp.where(food > 0, 1.0, 0.0)
    begins = eating > body.eating
    meal = jnp.where(begins, body.solid + body.ground, body.meal) + 1000 * food

    solid = decay["solid"].after(body.solid, 1000 * food)
    ground_in = body.solid + 1000 * food - solid
    begin, size = body.solid + body.ground, jnp.maximum(meal, 1.0)
    change = 1000 * food - body.emptied
    shape = sum(_bend((begin + at * change) / size, p) for at in _GAUSS) / len(_GAUSS)
    emptying = jnp.where(meal > 0, p["kmin"] + (p["kmax"] - p["kmin"]) / 2 * (shape + 2), p["kmax"])
    ground = (body.ground * (1 - emptying / 2) + ground_in) / (1 + emptying / 2)
    gut_in = body.ground + ground_in - ground
    gut = decay["gut"].after(body.gut, gut_in)
    appearance = p["f"] * (body.gut + gut_in - gut) / p["BW"]

    depot_1 = decay["depot_1"].after(body.depot_1, insulin)
    mean_1 = (body.depot_1 + depot_1) / 2
    depot_2 = decay["depot_2"].after(body.depot_2, p["kd"] * mean_1)
    absorbed = p["ka1"] * mean_1 + p["ka2"] * (body.depot_2 + depot_2) / 2
    returned = body.liver + (p["m2"] * body.insulin - (p["m1"] + p["m30"]) * body.liver) / 2
    plasma_insulin = decay["insulin"].after(body.insulin, p["m1"] * returned + absorbed)
    mean_insulin = (body.insulin + plasma_insulin) / 2
    liver = decay["liver"].after(body.liver, p["m2"] * mean_insulin)
    level = mean_insulin / p["Vi"]
    uptake = decay["uptake"].after(body.uptake, p["p2u"] * (level - p["Ib"]))
    delayed = decay["signal"].after(body.delayed, p["ki"] * level)
    signal = decay["signal"].after(body.signal, p["ki"] * (body.delayed + delayed) / 2)

    mean_uptake, mean_signal = (body.uptake + uptake) / 2, (body.signal + signal) / 2

    def slopes(plasma: Amount, tissue: Amount) -> tuple[Amount, Amount]:
        produced = jnp.maximum(p["kp1"] - p["kp2"] * plasma - p["kp3"] * mean_signal, 0.0)
        excreted = p["ke1"] * jnp.maximum(plasma - p["ke2"], 0.0)
        used = (p["Vm0"] + p["Vmx"] * mean_uptake) * tissue / (p["Km0"] + tissue)
        exchanged = p["k1"] * plasma - p["k2"] * tissue
        return produced + appearance - p["Fsnc"] - excreted - exchanged, exchanged - used

    up, into = slopes(body.plasma, body.tissue)
    up, into = slopes(body.plasma + up / 2, body.tissue + into / 2)
    plasma, tissue = jnp.maximum(body.plasma + up, 0.0), jnp.maximum(body.tissue + into, 0.0)
    under_skin = decay["under_skin"].after(body.under_skin, p["ksc"] * (body.plasma + plasma) / 2)
    return Body(
        solid,
        ground,
        gut,
        plasma,
        tissue,
        plasma_insulin,
        uptake,
        delayed,
        signal,
        liver,
        depot_1,
        depot_2,
        under_skin,
        gut_in,
        body.waiting - food,
        meal,
        eating,
    )
