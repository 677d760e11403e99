"""`fit`: a table of people in, a policy and its certificate out."""

from typing import Any

from jaxtyping import PRNGKeyArray

from privrl.contracts.learner import AbstractLearner, AbstractOfflineLearner
from privrl.data.dataset import AbstractDataset
from privrl.data.reward_function import RewardFunction
from privrl.learners.evaluation.evaluated import Assessed
from privrl.mdp.types import TabularPolicy
from privrl.privacy.noise.sources import Seeded, System
from privrl.privacy.store.errors import StudyMismatchError
from privrl.privacy.store.store import ReleaseStore
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.studies.people import AbstractSecret, secret_of
from privrl.studies.result import Result
from privrl.studies.study import Study


def fit(
    data: AbstractDataset | RewardFunction,
    learner: AbstractLearner,
    privatizer: AbstractPrivatizer,
    *,
    key: PRNGKeyArray | None = None,
    unit: str | None = None,
    store: ReleaseStore | None = None,
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

    Returns:
        the policy and the certificate.
    """
    if not isinstance(learner, AbstractOfflineLearner):
        raise PairingError(
            f"`{type(learner).__name__}` learns while people take part, so it has nothing to ask of a table. Use "
            "`privrl.run` with an environment, or an offline learner such as `APVI`."
        )
    secret = secret_of(data, learner)
    study = Study.offline(learner, privatizer, secret.unit(unit, privatizer))
    if store is not None:
        _open(study, secret, key, store)
    source = System() if key is None else Seeded(key)
    curator = Curator(secret, study.ledger, source, privatizer.mechanism_of_rounds, store)
    learnt: Any = learner.fit(curator)
    advice, evaluation = None, None
    if isinstance(learnt, Assessed):
        policy, advice, evaluation = learnt.evaluation.policy, learnt.advice, learnt.evaluation
    else:
        policy = learnt
    if isinstance(policy, TabularPolicy) and policy.probabilities.shape != (learner.horizon, *learner.space):
        raise ValueError(
            f"`{type(learner).__name__}.fit` returned a policy of shape {policy.probabilities.shape}; it must have "
            f"steps, states and actions: {(learner.horizon, *learner.space)}."
        )
    notes = secret.notes(groups=bool(study.ledger.groups) and key is None)
    notes = (*notes, *(() if store is None else store.notes()))
    certificate = study.certificate(source.description, secret.bounds, notes=notes)
    return Result(policy, certificate, secret.counts, advice, evaluation)


def _open(study: Study, secret: AbstractSecret, key: PRNGKeyArray | None, store: ReleaseStore) -> None:
    """Writes what is going to be released into the store, or checks that nothing is other than before a crash.

    The data are recognised by a digest under a secret key of the store. It says nothing without that key, and never
    leaves the store.
    """
    if key is not None or study.privatizer.notion == "none":
        raise ValueError(
            "A `store` keeps the releases of real people. Leave out `key` (simulated noise protects nobody), and give "
            "a budget."
        )
    study.open(store, "fit", study.ledger.limits())
    digest = secret.digest(store.secret("digest of the data"))
    if store.fact("digest of the data", lambda: digest) != digest:
        raise StudyMismatchError(
            "The data are not those that this store's study began with: something was added, removed or changed. "
            "Nothing was released. Go on with the data as they were, or use a new file, and a new budget, for a new "
            "study."
        )
