"""An assisted policy on rows of measurements: a policy on measurements, and how often practice does what it advises.

How often practice takes the advised action is measured in cells. Cells are cut by P(a*|x), the policy's own estimate of
practice (`MeasuredPolicy.practice_probabilities`), at .1, .16, .24, .34, .48 and .65, by the advised action a* itself,
and by the action that is most likely under P: practice often follows steps, which a quadratic P misses, and P is then
too large for some actions and too small for others. So b* is a mean over a cell and not a published probability:
weights always lie in their range, and their mean is 1 if practice is the same throughout each cell.
"""

import operator
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from privrl.mdp.assistance import LEAST_SUPPORT, AbstractAssisted, to_json_number
from privrl.mdp.exported_policy import ASSISTED
from privrl.mdp.measured_policy import ARRAY_NAMES, MeasuredPolicy
from privrl.mdp.policy_slices import draw_rows
from privrl.mdp.rules import Rules
from privrl.mdp.value_features import MeasuredValueFeature

PROBABILITY_EDGES = (0.1, 0.16, 0.24, 0.34, 0.48, 0.65)
_OWN = ("values", "measured_support", "max_ratio", "max_weight", "advantage_unit", "horizon")
ASSISTED_ARRAY_NAMES = ARRAY_NAMES | set(_OWN)
"""The names of the arrays of a saved assisted policy on measurements."""


def count_cells(num_actions: int) -> int:
    """K, the number of cells."""
    return (len(PROBABILITY_EDGES) + 1) * num_actions**2


def advantage_over_practice(
    policy: MeasuredPolicy, observations: Float[Array, "*n D"], actions: Int[Array, "*n"]
) -> Float[Array, "*n"]:
    """How much more these actions are estimated to gain than practice, at any observations."""
    each = jnp.einsum("...d,ad->...a", policy.features(observations), policy.advantages)
    taken = jnp.take_along_axis(each, actions[..., None], axis=-1)[..., 0]
    return taken - (policy.practice_probabilities(observations) * each).sum(axis=-1)


def find_unit(policy: MeasuredPolicy) -> Float[Array, ""]:
    """Twice the root mean square of the advantage of the advice over practice, at public random observations."""
    rows = jnp.asarray(draw_rows(policy, np.random.default_rng(0)))
    unit = 2.0 * jnp.sqrt((advantage_over_practice(policy, rows, policy.choose(rows)) ** 2).mean())
    return jnp.where(jnp.isfinite(unit), unit, 0.0)


def _read_unit(unit: ArrayLike) -> Float[Array, ""]:
    """Refuse a unit from outside that is not one finite number, at least 0."""
    read = np.asarray(unit)
    if read.shape != () or not 0.0 <= read < np.inf:  # also not a number
        raise ValueError("`advantage_unit` must be a finite number, at least 0.")
    return jnp.asarray(read, float)


class AssistedMeasuredPolicy(AbstractAssisted):
    """Advice on rows of measurements, given as often as `max_ratio` and `max_weight` allow.

    Arguments:
        advice: gives the advice, and P(a|x).
        values: weights of f on the features of `advice`.
        support: b* of each cell; 0 if it is not known accurately enough.
        max_ratio, max_weight: see `AbstractAssisted`.
        advantage_unit: g is the estimated advantage of the advice over practice, divided by this and cut at 1;
            `find_unit` gives it. 0: g is 1 everywhere.
        horizon: the number of decisions of an episode that were evaluated; from there on no advice is given.
    """

    advice: MeasuredPolicy
    values: Float[Array, " d"]
    support: Float[Array, " K"]
    max_ratio: float = eqx.field(static=True, converter=float, default=1.5)
    max_weight: float = eqx.field(static=True, converter=float, default=4.0)
    advantage_unit: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.0)
    horizon: int = eqx.field(static=True, converter=operator.index, kw_only=True)

    def __check_init__(self) -> None:
        cells = count_cells(self.advice.num_actions)
        if self.support.shape != (cells,):
            raise ValueError(f"`support` has shape {self.support.shape}; it must hold {cells} numbers, one per cell.")

    @property
    def value_feature(self) -> MeasuredValueFeature:
        """f, how well people fare under practice."""
        return MeasuredValueFeature(self.advice.features, self.values)

    @property
    def rules(self) -> Rules:
        return self.advice.rules

    def choose(self, observations: Float[Array, "*n D"], previous: Int[Array, "*n"] | None = None) -> Int[Array, "*n"]:
        return self.advice.choose(observations, previous)

    def allows(
        self, observations: Float[Array, "*n D"], actions: Int[Array, "*n"], previous: Int[Array, "*n"] | None
    ) -> Bool[Array, "*n"]:
        return jnp.ones(actions.shape, bool)  # the advice is chosen among the allowed actions

    def cells(self, observations: Float[Array, "*n D"], previous: Int[Array, "*n"] | None = None) -> Int[Array, "*n"]:
        P, A = self.advice.practice_probabilities(observations), self.advice.num_actions
        advised = self.choose(observations, previous)
        P_advised = jnp.take_along_axis(P, advised[..., None], axis=-1)[..., 0]
        row = jnp.searchsorted(jnp.asarray(PROBABILITY_EDGES), P_advised, side="right")
        return (row * A + advised) * A + P.argmax(axis=-1)

    def strength_at(
        self, observations: Float[Array, "*n D"], advice: Int[Array, "*n"], cell: Int[Array, "*n"]
    ) -> Float[Array, "*n"]:
        unit = self.advantage_unit
        ahead = advantage_over_practice(self.advice, observations, advice)
        return jnp.where(unit > 0.0, jnp.clip(ahead / jnp.where(unit > 0.0, unit, 1.0), 0.0, 1.0), 1.0)

    def check(self, observations: object) -> Float[Array, "*n D"]:
        return jnp.asarray(self.advice.rows(observations))

    @property
    def entries(self) -> int:
        return self.advice.features.dim + self.advice.num_actions

    def to_json(self) -> dict[str, object]:
        """The whole policy as JSON; `ExportedPolicy` runs it without JAX."""
        assistance = {
            "horizon": self.horizon,
            "values": np.asarray(self.values).tolist(),
            "support": np.asarray(self.support).tolist(),
            "max_ratio": to_json_number(self.max_ratio),
            "max_weight": to_json_number(self.max_weight),
            "advantage_unit": float(self.advantage_unit),
            "probability_edges": list(PROBABILITY_EDGES),
            "least_support": LEAST_SUPPORT,
        }
        return {**self.advice.to_json(), "kind": ASSISTED, "assistance": assistance}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "AssistedMeasuredPolicy":
        """Read the output of `to_json`, exactly, because JSON keeps every digit."""
        if content.get("kind") != ASSISTED:
            raise ValueError(f"This is not the JSON of an assisted policy on measurements: `kind` is not {ASSISTED!r}.")
        kept = content["assistance"]
        values, support = (jnp.asarray(kept[name], float) for name in ("values", "support"))
        limits = (kept["max_ratio"], kept["max_weight"], _read_unit(float(kept["advantage_unit"])))
        return cls(MeasuredPolicy.from_content(content), values, support, *limits, horizon=kept["horizon"])

    def arrays(self) -> dict[str, np.ndarray]:
        """The policy as named arrays, for a saved result."""
        own = (self.values, self.support, self.max_ratio, self.max_weight, self.advantage_unit, self.horizon)
        return self.advice.arrays() | dict(zip(_OWN, map(np.asarray, own), strict=True))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "AssistedMeasuredPolicy":
        """Read the output of `arrays`."""
        advice = MeasuredPolicy.from_arrays({name: array for name, array in arrays.items() if name not in _OWN})
        values, support, max_ratio, max_weight, unit, horizon = (jnp.asarray(arrays[name]) for name in _OWN)
        limits = (max_ratio.item(), max_weight.item(), _read_unit(unit))
        return cls(advice, values, support, *limits, horizon=horizon.item())
