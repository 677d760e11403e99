"""`fit`: a table of people in, a policy and its certificate out."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float, PRNGKeyArray

from privrl.contracts.learner import AbstractLearner, AbstractOfflineLearner, Ask, Solution
from privrl.data.dataset import AbstractDataset
from privrl.data.reward_function import RewardFunction
from privrl.evaluation.estimates import Evaluation
from privrl.evaluation.evaluated import Evaluated
from privrl.executors.executor import AbstractExecutor
from privrl.mdp.types import TabularPolicy
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.studies.offline.procedure import ask_curator
from privrl.studies.offline.situations import situations_of
from privrl.studies.results.result import Result

_DEFAULTS = ((), (0.0, 1.0), 1.5, 4.0, False)  # terminal, return_range, max_ratio, max_weight, release_anyway


def fit(
    data: AbstractDataset | RewardFunction,
    learner: AbstractLearner,
    privatizer: AbstractPrivatizer,
    *,
    evaluate: float | None = None,
    practice: Float[ArrayLike, "S A"] | None = None,
    max_ratio: float = 1.5,
    max_weight: float = 4.0,
    return_range: tuple[float, float] = (0.0, 1.0),
    terminal: tuple[int, ...] = (),
    release_anyway: bool = False,
    key: PRNGKeyArray | None = None,
    unit: str | None = None,
    store: ReleaseStore | None = None,
    executor: AbstractExecutor | None = None,
) -> Result:
    """Learns a policy from a data set at rest, or from a secret reward function.

    Arguments:
        data: the people, from `privrl.data`. A pass over the table checks every row, and nothing is released from a
            pass that finds a fault. Or a `RewardFunction`, whose secret is the function: the certificate then speaks
            of reward functions, and of no person.
        learner: an offline learner such as `APVI`; `FunctionalReward` for a reward function.
        privatizer: `Central(...)`, or `NonPrivate()`.
        evaluate: the share of people to hold out, for example 0.3. A secret coin decides for each person. The policy
            is compared with current practice on them, and the result is the assisted policy, see `AbstractAssisted`.
        practice, max_ratio, max_weight, return_range, terminal: settings of the comparison, as in `privrl.evaluate`.
        release_anyway: keep the assisted policy even if `Evaluation.held_back` gives a reason not to. Otherwise current
            practice takes its place.
        key: seeded, replayable noise for simulations; leave it out on real people, and exact noise on a lattice comes
            from the operating system's cryptographic randomness.
        unit: what one privacy unit is called in the certificate, for example "patient"; a reward function has its own.
        store: a `ReleaseStore` in which every release is kept before it is used, with a hard budget. Interrupted and
            called again with the same arguments, table and store, `fit` reads what was released and goes on from
            there; another learner, another setting or another table is refused.
        executor: where the shards of a table in Parquet files are checked and added up: `Processes(4)`, or
            `Dask(client)`. The sums are those of one process, and noise is drawn here. Not with a `key`.

    Returns:
        the policy and the certificate; the report holds what releases say about every state besides (`Situations`, and
        the values of states where the learner gives any).

    Raises:
        PairingError: the learner is not an offline learner, or the privatizer cannot serve it.
        ValueError: the data do not fit the learner, or a row is outside the declared bounds.
    """
    if not isinstance(learner, AbstractOfflineLearner):
        raise PairingError(
            f"`{type(learner).__name__}` learns while people take part, so it has nothing to ask of a table. Use "
            "`privrl.run` with an environment, or an offline learner such as `APVI`."
        )
    known = None if practice is None else jnp.asarray(practice, float)
    settings = (terminal, return_range, max_ratio, max_weight, release_anyway)
    evaluated: Evaluated | None = None
    if evaluate is not None:
        evaluated = Evaluated(learner, known, evaluate, *settings)
    elif known is not None or settings != _DEFAULTS:
        raise ValueError(
            "`practice`, `max_ratio`, `max_weight`, `return_range`, `terminal` and `release_anyway` are settings of a "
            "comparison with current practice, and `evaluate` is missing. Give `evaluate=0.3` to hold out 30%."
        )

    def learn(ask: Ask) -> tuple[Solution, Evaluation | None]:
        return (learner.fit(ask), None) if evaluated is None else evaluated.fit_and_evaluate(ask)

    how: dict[str, Any] = {"key": key, "unit": unit, "store": store, "executor": executor}
    answer = ask_curator("fit", data, learner if evaluated is None else evaluated, learn, privatizer, **how)
    solution, evaluation = answer.found
    _check_shape(learner, solution)
    found: dict[str, Any] = dict(answer.counts)
    if solution.choice:
        found["choice"] = solution.choice
    if solution.values is not None:
        found["values"] = np.asarray(solution.values, float).tolist()
    situations = situations_of(answer.visits, None if known is None else np.asarray(known))
    if situations is not None:
        found["situations"] = situations.to_json()
    if evaluation is None:
        return Result(solution.policy, answer.certificate, found)
    policy = evaluation.policy if release_anyway else evaluation.handed_out
    return Result(policy, answer.certificate, found, solution.policy, evaluation)


def _check_shape(learner: AbstractOfflineLearner, solution: Solution) -> None:
    """Refuses a policy whose arrays do not have the sizes of the learner's world."""
    policy = solution.policy
    if isinstance(policy, TabularPolicy) and policy.probabilities.shape != (learner.horizon, *learner.space):
        raise ValueError(
            f"`{type(learner).__name__}.fit` returned a policy of shape {policy.probabilities.shape}; it must have "
            f"steps, states and actions: {(learner.horizon, *learner.space)}."
        )
