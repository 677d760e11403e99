"""The evaluator of policies on measurements.

How often practice takes the advised action is measured in cells (`mdp/assisted_measured.py`), so nothing is certified,
and what is given of the assisted policy has no guarantee. The whole advice is not modelled: a straight line in one
feature of measurements was far from the truth in two of four simulated worlds, and no release said so.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.learner import Ask
from privrl.contracts.release import Declared
from privrl.evaluation.comparing import AbstractEvaluator
from privrl.evaluation.estimates import FITTED, Assumption
from privrl.evaluation.evaluator import check_randomised
from privrl.evaluation.shares import releases
from privrl.evaluation.support import TRUSTED_CELLS, TRUSTED_FOR_ALPHA, Support, estimated_support
from privrl.learners.restriction import list_rules
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy, count_cells, find_unit
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.measurements import Measurement
from privrl.mdp.reported_columns import UNREPORTED, ReportedColumns
from privrl.mdp.value_features import MeasuredValueFeature
from privrl.statistics.off_policy import check_range
from privrl.statistics.practice_table import PracticeTable
from privrl.statistics.setting_checks import check_array, check_sizes

_NORM = 4.0  # of a person's visits of cells


class MeasuredEvaluator(AbstractEvaluator):
    """Compares an assisted policy on measurements with practice.

    Arguments:
        advice: the policy.
        values: weights, on the features of `advice`, of how well people fare under practice, with mean 0 and standard
            deviation 1, from the *learn* group; zeros where they are not known.
        horizon: public.
        people: how many there are in the data, public.
        return_range: the public smallest and largest return of a stay; what is outside is cut.
        max_ratio, max_weight: of the assisted policy; by default several public pairs are compared.
        assumption: what is known about who decided.
        advantage_unit: of the assisted policy; by default that of `find_unit`.
        least_propensity: the public number below which no action had a probability; with `assumption` "randomised".
        reported: columns by which and about which more is estimated.
    """

    advice: MeasuredPolicy
    values: Float[Array, " d"]
    horizon: int = eqx.field(static=True)
    people: int = eqx.field(static=True)
    return_range: tuple[float, float] = eqx.field(static=True, default=(0.0, 1.0))
    max_ratio: float | None = eqx.field(static=True, default=None)
    max_weight: float | None = eqx.field(static=True, default=None)
    assumption: Assumption = eqx.field(static=True, default="checked")
    advantage_unit: Float[Array, ""] | None = None
    least_propensity: float = eqx.field(static=True, default=0.0)
    reported: ReportedColumns = eqx.field(static=True, default=UNREPORTED)

    def __check_init__(self) -> None:
        check_sizes(horizon=self.horizon, people=self.people)
        check_range(*self.return_range)
        check_array("values", self.values, (self.advice.features.dim,))
        self._policy(None)  # refuses limits out of range
        check_randomised(self.assumption, self.least_propensity, self.advice.num_actions)

    @property
    def markov(self) -> bool:
        return False

    @property
    def space(self) -> tuple[int, int]:
        return len(self.advice.columns), self.advice.num_actions

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        return self.advice.columns

    def declare(self) -> tuple[Declared, ...]:
        kind = {"public": False, "modelled": False, "in_cells": True}
        return releases(bounded=self.bounded, assumption=self.assumption, reported=self.reported, **kind)

    def bounds(self) -> dict[str, Any]:
        return super().bounds() | list_rules(self.advice.rules)

    @property
    def public(self) -> bool:
        return self.assumption == "randomised"

    @property
    def value_feature(self) -> MeasuredValueFeature:
        return MeasuredValueFeature(self.advice.features, self.values)

    def assisted(self, ask: Ask, refused: list[str]) -> tuple[AssistedMeasuredPolicy, Support | None]:
        if not self.logged:
            refused.append("The probabilities of practice are estimated, not public: nothing is certified.")
        refused.append("The whole advice is not modelled on measurements.")
        without = self._policy(None)
        if self.assumption == "randomised":
            return self._policy(jnp.full(without.support.shape, self.least_propensity)), None
        table = ask("practice-table", PracticeTable(without, self.advice.num_actions, _NORM, every=True))
        found = estimated_support(table, TRUSTED_FOR_ALPHA if self.logged else TRUSTED_CELLS)
        return self._policy(jnp.asarray(found.probability)), found

    def allowance(self, deviation: float) -> float:
        return FITTED * deviation

    def _policy(self, support: Float[Array, " K"] | None) -> AssistedMeasuredPolicy:
        support = jnp.zeros(count_cells(self.advice.num_actions)) if support is None else support
        unit = find_unit(self.advice) if self.advantage_unit is None else self.advantage_unit
        return AssistedMeasuredPolicy(self.advice, self.values, support, *self.limits[0], unit, horizon=self.horizon)
