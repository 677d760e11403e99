"""Learning from a data set at rest with a learner and a privatizer; `fit` resolves names and ends here."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from privrl.contracts.learner import AbstractLearner, AbstractOfflineLearner, Ask, Solution
from privrl.data.dataset import AbstractDataset
from privrl.data.reward_function import RewardFunction
from privrl.evaluation.estimates import Assumption, Evaluation
from privrl.evaluation.evaluated import Evaluated
from privrl.executors.executor import AbstractExecutor
from privrl.mdp.reported_columns import UNREPORTED, ReportedColumns
from privrl.mdp.rules import describe_rules
from privrl.mdp.types import TabularPolicy
from privrl.privacy.shared_budget import AnySharedBudget
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.studies.offline.procedure import ask_curator
from privrl.studies.offline.situations import situations_of
from privrl.studies.results.result import Result


@dataclass(frozen=True)
class PracticeComparison:
    """How the policy is compared with current practice in the study in which it is learnt; `fit` has the arguments."""

    evaluate: float
    practice: Float[Array, "S A"] | None
    terminal: tuple[int, ...]
    return_range: tuple[float, float]
    max_ratio: float | None
    max_weight: float | None
    release_anyway: bool
    assumption: Assumption = "checked"
    markov: bool = False
    least_propensity: float = 0.0
    reported: ReportedColumns = UNREPORTED

    def evaluated(self, learner: AbstractOfflineLearner) -> Evaluated:
        """The study in which this learner learns and is evaluated."""
        limits = (self.max_ratio, self.max_weight, self.assumption, self.release_anyway)
        stated = (self.markov, self.least_propensity, self.reported)
        return Evaluated(learner, self.practice, self.evaluate, self.terminal, self.return_range, *limits, *stated)


def learn(
    data: AbstractDataset | RewardFunction,
    learner: AbstractLearner,
    privatizer: AbstractPrivatizer,
    comparison: PracticeComparison | None,
    *,
    key: PRNGKeyArray | None,
    unit: str | None,
    store: ReleaseStore | None = None,
    executor: AbstractExecutor | None = None,
    budget: AnySharedBudget | None = None,
    unit_column: str | None = None,
    recipe: str | None = None,
) -> Result:
    """The policy, its certificate and, with a `comparison`, its evaluation; `fit` describes the arguments.

    `recipe` is the name of what built the learner, for the list of a shared budget.
    """
    if not isinstance(learner, AbstractOfflineLearner):
        raise PairingError(
            f"`{type(learner).__name__}` learns while people take part, so it has nothing to ask of a table. Use "
            "`privrl.run` with an environment, or an offline learner such as `APVI`."
        )
    evaluated = None if comparison is None else comparison.evaluated(learner)

    def ask_all(ask: Ask) -> tuple[Solution, Evaluation | None]:
        return (learner.fit(ask), None) if evaluated is None else evaluated.fit_and_evaluate(ask)

    how: dict[str, Any] = {"key": key, "unit": unit, "store": store, "executor": executor}
    called = f"fit with {recipe or type(learner).__name__}{'' if evaluated is None else ' and evaluation'}"
    how |= {"budget": budget, "unit_column": unit_column, "called": called}
    answer = ask_curator("fit", data, learner if evaluated is None else evaluated, ask_all, privatizer, **how)
    solution, evaluation = answer.found
    _check_shape(learner, solution)
    found: dict[str, Any] = dict(answer.counts)
    if rules := getattr(learner, "rules", None):
        found["rules"] = describe_rules(rules)
    if solution.choice:
        found["choice"] = solution.choice
    if solution.values is not None:
        found["values"] = np.asarray(solution.values, float).tolist()
    if solution.strength is not None:
        found["strength"] = np.asarray(solution.strength, float).tolist()
    practice = None if comparison is None or comparison.practice is None else np.asarray(comparison.practice)
    situations = situations_of(answer.visits, practice)
    if situations is not None:
        found["situations"] = situations.to_json()
    if comparison is None or evaluation is None:
        return Result(solution.policy, answer.certificate, found)
    policy = evaluation.policy if comparison.release_anyway else evaluation.released_policy
    return Result(policy, answer.certificate, found, solution.policy, evaluation)


def _check_shape(learner: AbstractOfflineLearner, solution: Solution) -> None:
    """Refuses a policy whose arrays do not have the sizes of the learner's world."""
    policy = solution.policy
    if isinstance(policy, TabularPolicy) and policy.probabilities.shape != (learner.horizon, *learner.space):
        raise ValueError(
            f"`{type(learner).__name__}.fit` returned a policy of shape {policy.probabilities.shape}; it must have "
            f"steps, states and actions: {(learner.horizon, *learner.space)}."
        )
