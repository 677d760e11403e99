"""A learner and its evaluation in one study: some people are learnt from, others say what the result is worth.

People are split by a secret coin each (`docs/proofs/tables.md#splitting-people-into-groups`), so one person is in the
releases of one group, and what is certified is the maximum over groups.
"""

import math
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.learner import AbstractOfflineAnalysis, AbstractOfflineLearner, Ask, Solution
from privrl.contracts.release import Declared
from privrl.evaluation.comparing import AbstractEvaluator, state_assumptions
from privrl.evaluation.estimates import Assumption, Evaluation
from privrl.evaluation.evaluator import Evaluator, check_markov, check_randomised
from privrl.evaluation.limits import choose_limits
from privrl.evaluation.measured_evaluator import MeasuredEvaluator
from privrl.evaluation.renamed import Renamed, renamed
from privrl.evaluation.shares import releases
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.reported_columns import UNREPORTED, ReportedColumns
from privrl.mdp.types import TabularPolicy
from privrl.statistics.off_policy import Limits, check_range

LEARN, EVALUATE = "learn", "evaluate"


class Evaluated(AbstractOfflineAnalysis):
    """Learns with another learner, then compares the advice with practice on people who were held out.

    Arguments:
        learner: learns the advice.
        practice: public probabilities `[S, A]` of practice, or `None`: they are estimated, and nothing is certified.
        share: of the people, held out to evaluate with.
        terminal: public states whose entry ends a stay.
        return_range: the public smallest and largest return of a stay.
        max_ratio, max_weight: of the assisted policy, see `AbstractAssisted`; by default several public pairs are
            compared (`limits.py`).
        assumption: what is known about who decided.
        markov: the study states that what happens next depends on the recorded state and the action alone.
        least_propensity: the public number below which no action had a probability; with `assumption` "randomised".
        release_anyway: keep the assisted policy even if the evidence does not support it (`Evaluation.reasons`).
    """

    learner: AbstractOfflineLearner
    practice: Float[Array, "S A"] | None = None
    share: float = eqx.field(static=True, default=0.3)
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    return_range: tuple[float, float] = eqx.field(static=True, default=(0.0, 1.0))
    max_ratio: float | None = eqx.field(static=True, default=None)
    max_weight: float | None = eqx.field(static=True, default=None)
    assumption: Assumption = eqx.field(static=True, default="checked")
    release_anyway: bool = eqx.field(static=True, default=False)
    markov: bool = eqx.field(static=True, default=False)
    least_propensity: float = eqx.field(static=True, default=0.0)
    reported: ReportedColumns = eqx.field(static=True, default=UNREPORTED)

    def __check_init__(self) -> None:
        if not 0.0 < self.share < 1.0:
            raise ValueError(f"`share` is {self.share}; it must lie in (0, 1).")
        check_range(*self.return_range)
        for pair in choose_limits(self.max_ratio, self.max_weight):
            AssistedPolicy(jnp.zeros(1, int), jnp.zeros(1), *pair, horizon=self.horizon)  # refuses limits out of range
        check_randomised(self.assumption, self.least_propensity, self.space[1])
        if self.markov:
            check_markov(self.max_ratio, self.max_weight, values=self._modelled)
        if not self.measurements:
            self._on_states(1, jnp.zeros(self.space[0], int), None)
        elif self.practice is not None or self.terminal:
            raise ValueError(
                "`practice` and `terminal` speak of numbered states, and the learner learns from measurements. Leave "
                "them out: practice is estimated, and tables of measurements say themselves where a stay has ended."
            )

    @property
    def horizon(self) -> int:
        return self.learner.horizon

    @property
    def space(self) -> tuple[int, int]:
        return self.learner.space

    @property
    def largest_array(self) -> int:
        return self.learner.largest_array

    @property
    def measurements(self) -> tuple[Any, ...]:
        return self.learner.measurements

    def bounds(self) -> dict[str, Any]:
        return {
            **self.learner.bounds(),
            "return range": list(self.return_range),
            "largest weight": max(pair[1] for pair in self._limits) if self._bounded else None,
            "share held out to evaluate": self.share,
            **state_assumptions(self.assumption, self.markov, self.least_propensity),
            **self.reported.described,
        }

    @property
    def _bounded(self) -> bool:
        return all(math.isfinite(max_weight) for _, max_weight in self._limits)

    @property
    def _limits(self) -> Limits:
        return choose_limits(self.max_ratio, self.max_weight)

    def declare(self) -> tuple[Declared, ...]:
        learnt = self.learner.declare()
        own = {d.group for d in learnt}
        if None in own and len(own) > 1:
            raise ValueError(
                f"`{type(self.learner).__name__}` splits people itself and also queries all of them; it cannot be "
                "evaluated in the same study. Split the table with `privrl.data.split` and use `privrl.evaluate`."
            )
        heaviest = max(sum(d.weight for d in learnt if d.group == group) for group in own)
        asked = self.evaluation_releases
        whole = sum(d.weight for d in asked)
        named = (replace(d, name=renamed(EVALUATE, d.name), group=EVALUATE, group_share=self.share) for d in asked)
        return (
            *(replace(d, group=d.group or LEARN, weight=d.weight / heaviest) for d in learnt),
            *(replace(d, weight=d.weight / whole) for d in named),
        )

    @property
    def evaluation_releases(self) -> tuple[Declared, ...]:
        """What the evaluator asks of the people who are held out."""
        return releases(
            public=self.practice is not None,
            bounded=self._bounded,
            modelled=self._modelled,
            in_cells=bool(self.measurements),
            assumption=self.assumption,
            markov=self.markov,
            reported=self.reported,
        )

    @property
    def _modelled(self) -> bool:
        """Whether the whole advice can be modelled: states are numbered, and the learner gives their values."""
        return bool(self.learner.gives_values) and not self.measurements

    def fit_and_evaluate(self, ask: Ask) -> tuple[Solution, Evaluation]:
        """The learner's solution, whose policy is the whole advice, and how the assisted policy compares."""
        people = ask.people(EVALUATE)  # refused if it is secret, before anything is released
        solution = self.learner.fit(ask)
        evaluator: AbstractEvaluator
        if isinstance(solution.policy, MeasuredPolicy):
            evaluator = self._on_measurements(people, solution.policy, solution.values)
        elif isinstance(solution.policy, TabularPolicy):
            evaluator = self._on_states(people, solution.policy.probabilities, solution.values)
            evaluator = replace(evaluator, rules=solution.policy.rules, strength=solution.strength)
        else:
            raise TypeError(
                f"`{type(self.learner).__name__}.fit` returned a `{type(solution.policy).__name__}`, which cannot be "
                "evaluated. Return a `TabularPolicy`, a `MeasuredPolicy` or a subclass of one."
            )
        return solution, evaluator.evaluate(Renamed(ask, EVALUATE, EVALUATE))

    def _on_measurements(
        self, people: int, advice: MeasuredPolicy, values: Float[Array, " d"] | None
    ) -> MeasuredEvaluator:
        weights = jnp.zeros(advice.features.dim) if values is None else values
        settings = (self.return_range, self.max_ratio, self.max_weight, self.assumption)
        least, reported = self.least_propensity, self.reported
        world = (advice, weights, self.horizon, people)
        return MeasuredEvaluator(*world, *settings, least_propensity=least, reported=reported)

    def _on_states(self, people: int, advice: Array, values: Float[Array, " S"] | None) -> Evaluator:
        feature = None
        if values is not None:
            middle, half = (values.max() + values.min()) / 2, (values.max() - values.min()) / 2
            feature = jnp.clip((values - middle) / jnp.where(half > 0, half, 1.0), -1.0, 1.0)
        world = (*self.space, self.horizon, people, advice, self.practice, feature)
        settings = (self.return_range, self.max_ratio, self.max_weight)
        return Evaluator(
            *world,
            self.terminal,
            *settings,
            assumption=self.assumption,
            markov=self.markov and values is not None,
            least_propensity=self.least_propensity,
            reported=self.reported,
        )
