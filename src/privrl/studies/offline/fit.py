"""`fit`: a table of people in, a policy and its certificate out."""

from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray

from privrl.contracts.learner import AbstractLearner, AbstractOfflineLearner
from privrl.data.dataset import AbstractDataset
from privrl.data.reward_function import RewardFunction
from privrl.evaluation.evaluated import Assessed, Evaluated
from privrl.executors.executor import AbstractExecutor
from privrl.mdp.types import TabularPolicy
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.studies.offline.choose import choice_words
from privrl.studies.offline.procedure import ask_curator
from privrl.studies.offline.situations import situations_of
from privrl.studies.results.result import Result


def fit(
    data: AbstractDataset | RewardFunction,
    learner: AbstractLearner,
    privatizer: AbstractPrivatizer,
    *,
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
    """
    if not isinstance(learner, AbstractOfflineLearner):
        raise PairingError(
            f"`{type(learner).__name__}` learns while people take part, so it has nothing to ask of a table. Use "
            "`privrl.run` with an environment, or an offline learner such as `APVI`."
        )
    answer = ask_curator("fit", data, learner, privatizer, key=key, unit=unit, store=store, executor=executor)
    learnt = answer.learnt
    policy, advice, evaluation, values = learnt, None, None, answer.values
    if isinstance(learnt, Assessed):
        policy, advice, evaluation, values = learnt.policy, learnt.advice, learnt.evaluation, learnt.values
    if isinstance(policy, TabularPolicy) and policy.probabilities.shape != (learner.horizon, *learner.space):
        raise ValueError(
            f"`{type(learner).__name__}.fit` returned a policy of shape {policy.probabilities.shape}; it must have "
            f"steps, states and actions: {(learner.horizon, *learner.space)}."
        )
    found: dict[str, Any] = dict(answer.counts)
    choice = choice_words(learner, answer.choices)
    if choice is not None:
        found["choice"] = choice
    if values is not None:
        found["values"] = np.asarray(values, float).tolist()
    practice = learner.practice if isinstance(learner, Evaluated) else None
    situations = situations_of(answer.visits, None if practice is None else np.asarray(practice))
    if situations is not None:
        found["situations"] = situations.to_json()
    return Result(policy, answer.certificate, found, advice, evaluation)
