"""The evaluator of finite worlds: an action for every state, and practice's probabilities, public or estimated."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from privrl.contracts.learner import Ask
from privrl.contracts.release import Declared
from privrl.evaluation.comparing import AbstractEvaluator
from privrl.evaluation.estimates import FITTED_STATES, Assumption
from privrl.evaluation.model_gain import standard_feature
from privrl.evaluation.shares import releases
from privrl.evaluation.support import TRUSTED, TRUSTED_FOR_ALPHA, Support, estimated_support
from privrl.learners.restriction import list_rules
from privrl.mdp.assistance import LEAST_SUPPORT
from privrl.mdp.assisted import AssistedPolicy, stationary_advice
from privrl.mdp.reported_columns import UNREPORTED, ReportedColumns
from privrl.mdp.rules import Rules
from privrl.mdp.value_features import TableValueFeature
from privrl.statistics.off_policy import check_range
from privrl.statistics.practice_table import PracticeTable
from privrl.statistics.setting_checks import check_array, check_sizes, check_terminal


def _actions(advice: ArrayLike) -> Int[Array, " S"]:
    """Actions as they are; of probabilities `[H, S, A]` the most probable one."""
    return jnp.asarray(stationary_advice(advice) if np.ndim(advice) == 3 else advice)


def check_markov(max_ratio: float | None, max_weight: float | None, *, values: bool) -> None:
    """Refuse a statement that the recorded state is complete if it cannot serve: without values of states there is no
    model, and its whole advice keeps no limits."""
    if not values:
        raise ValueError(
            "`assume_markov` lets a model of the whole advice decide, and there are no values of numbered states for "
            "it. Use a recipe that gives them, such as dp-tap, or leave it out."
        )
    if max_ratio is not None or max_weight is not None:
        raise ValueError(
            "`assume_markov` lets the whole advice be released, and `max_ratio` and `max_weight` limit it. Leave out "
            "one or the other."
        )


def check_randomised(assumption: Assumption, least_propensity: float, num_actions: int) -> None:
    """Refuse a least probability of every action that cannot serve."""
    if (assumption == "randomised") != (least_propensity > 0.0):
        raise ValueError(
            f"`least_propensity` is {least_propensity} and `assumption` {assumption!r}. A positive number goes with "
            "'randomised'."
        )
    if least_propensity * num_actions > 1.0 + 1e-9:
        raise ValueError(
            f"`least_propensity` is {least_propensity}, and the probabilities of {num_actions} actions add up to 1. "
            f"Give a number up to {1.0 / num_actions:.4g} that no probability was below."
        )
    if 0.0 < least_propensity < LEAST_SUPPORT:
        raise ValueError(
            f"`least_propensity` is {least_propensity}, and advice is never given where practice takes it with a "
            f"probability below {LEAST_SUPPORT}. Leave it out, and how often practice does is estimated."
        )


class Evaluator(AbstractEvaluator):
    """Compares an assisted policy, and the advice behind it, with practice.

    Arguments:
        num_states, num_actions, horizon: the size of the world, public.
        people: how many there are in the data, public.
        advice: an action per state, or probabilities `[H, S, A]`, of which the most probable action counts.
        practice: public probabilities `[S, A]` of practice, or `None`: they are estimated, and nothing is certified.
        feature: a number per state from the *learn* group, roughly linear in how well people fare from there, in any
            unit; `None` for no model.
        terminal: public states whose entry ends a stay.
        return_range: the public smallest and largest return of a stay; what is outside is cut.
        rules: public rules, which the assisted policy keeps.
        max_ratio, max_weight: of the assisted policy; by default several public pairs are compared.
        assumption: what is known about who decided.
        strength: how strongly the advice of each state is given, in [0, 1]; by default 1.
        markov: the study states that what happens next depends on the recorded state and the action alone, so that the
            whole advice may be released by its model.
        least_propensity: the public number below which no action had a probability; with `assumption` "randomised".
        reported: columns by which and about which more is estimated.
    """

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    people: int = eqx.field(static=True)
    advice: Int[Array, " S"] = eqx.field(converter=_actions)
    practice: Float[Array, "S A"] | None = None
    feature: Float[Array, " S"] | None = None
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    return_range: tuple[float, float] = eqx.field(static=True, default=(0.0, 1.0))
    max_ratio: float | None = eqx.field(static=True, default=None)
    max_weight: float | None = eqx.field(static=True, default=None)
    rules: Rules = eqx.field(static=True, default=Rules())
    assumption: Assumption = eqx.field(static=True, default="checked")
    strength: Float[Array, " S"] | None = None
    markov: bool = eqx.field(static=True, default=False)
    least_propensity: float = eqx.field(static=True, default=0.0)
    reported: ReportedColumns = eqx.field(static=True, default=UNREPORTED)

    def __check_init__(self) -> None:
        sizes = {"num_states": self.num_states, "num_actions": self.num_actions, "horizon": self.horizon}
        check_sizes(**sizes, people=self.people)
        check_terminal(self.terminal, self.num_states)
        check_range(*self.return_range)
        check_array("advice", self.advice, (self.num_states,), low=0, high=self.num_actions - 1)
        if self.practice is not None:
            check_array("practice", self.practice, (self.num_states, self.num_actions), low=0.0, high=1.0)
            if float(jnp.abs(self.practice.sum(axis=-1) - 1.0).max()) > 1e-6:
                raise ValueError("`practice` has rows that do not add up to 1; give a probability for every action.")
        if self.feature is not None:
            check_array("feature", self.feature, (self.num_states,))
        if self.strength is not None:
            check_array("strength", self.strength, (self.num_states,), low=0.0, high=1.0)
        self._policy(jnp.zeros(self.num_states))  # refuses limits out of range
        check_randomised(self.assumption, self.least_propensity, self.num_actions)
        if self.markov:
            check_markov(self.max_ratio, self.max_weight, values=self.feature is not None)

    @property
    def space(self) -> tuple[int, int]:
        return self.num_states, self.num_actions

    def bounds(self) -> dict[str, Any]:
        return {**super().bounds(), "terminal states": list(self.terminal), **list_rules(self.rules)}

    def declare(self) -> tuple[Declared, ...]:
        return releases(
            public=self.public,
            bounded=self.bounded,
            modelled=self.feature is not None,
            assumption=self.assumption,
            markov=self.markov,
            reported=self.reported,
        )

    @property
    def public(self) -> bool:
        return self.practice is not None or self.assumption == "randomised"

    @property
    def value_feature(self) -> TableValueFeature:
        f = jnp.zeros(self.num_states) if self.feature is None else standard_feature(self.feature, self.terminal)
        return TableValueFeature(self.num_actions, self.horizon, self.terminal, f)

    def assisted(self, ask: Ask, refused: list[str]) -> tuple[AssistedPolicy, Support | None]:
        """With b*, public or estimated."""
        if self.assumption == "randomised":
            return self._policy(jnp.full(self.num_states, self.least_propensity)), None
        if self.practice is not None:
            return self._policy(self.practice[jnp.arange(self.num_states), self.advice]), None
        if not self.logged:
            refused.append("The probabilities of practice are estimated, so no gain is certified.")
        table = ask("practice-table", PracticeTable(self._policy(jnp.zeros(self.num_states)), self.num_actions))
        found = estimated_support(table, TRUSTED_FOR_ALPHA if self.logged else TRUSTED)
        return self._policy(jnp.asarray(found.probability)), found

    def allowance(self, deviation: float) -> float:
        return FITTED_STATES

    def _policy(self, support: Float[Array, " S"]) -> AssistedPolicy:
        return AssistedPolicy(self.advice, support, *self.limits[0], self.rules, self.strength, horizon=self.horizon)
