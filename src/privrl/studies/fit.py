"""`fit`: a table of people in, a policy and its certificate out."""

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from privrl.contracts.learner import AbstractLearner, AbstractOfflineLearner
from privrl.data.dataset import AbstractDataset
from privrl.data.reward_function import RewardFunction
from privrl.learners.functional.functional_reward import FunctionalReward
from privrl.mdp.types import TabularPolicy
from privrl.privacy.functions.released import ReleasedFunction
from privrl.privacy.noise.sources import Seeded, System
from privrl.privacy.store.errors import StudyMismatchError
from privrl.privacy.store.store import ReleaseStore
from privrl.privacy.trust.curator import AbstractPeople, Curator
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.studies.people import Nobody, Records
from privrl.studies.result import Result
from privrl.studies.study import Study

_FUNCTION = "reward function"
_NO_PERSON = "what is hidden is the reward function; people whose data shaped it are not protected by this certificate"
_GROUPS = (
    "people were split into groups by a pseudorandom function of their ids under a secret key: for a person replaced "
    "by one of another id the guarantee of the split is computational"
)


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
    if isinstance(data, RewardFunction) or isinstance(learner, FunctionalReward):
        return _fit_function(data, learner, privatizer, key, unit, store)
    if not isinstance(learner, AbstractOfflineLearner):
        raise PairingError(
            f"`{type(learner).__name__}` learns while people take part, so it has nothing to ask of a table. Use "
            "`privrl.run` with an environment, or an offline learner such as `APVI`."
        )
    if data.horizon != learner.horizon:
        raise ValueError(
            f"The data have `horizon`={data.horizon} and the learner has `horizon`={learner.horizon}. Let both agree."
        )
    if data.reward_range[0] < 0.0 or data.reward_range[1] > 1.0:
        raise ValueError(
            f"`reward_range` of the data is {data.reward_range}; learners need rewards in [0, 1]. Rescale the rewards "
            "with public constants before reading the table."
        )
    data = data.bounded(*learner.space)
    study = Study.offline(learner, privatizer, unit or "unit")
    _open(study, data, key, store)
    people = Records(data)
    curator = _curator(people, study, key, store)
    policy = learner.fit(curator)
    if isinstance(policy, TabularPolicy) and policy.probabilities.shape != (learner.horizon, *learner.space):
        raise ValueError(
            f"`{type(learner).__name__}.fit` returned a policy of shape {policy.probabilities.shape}; it must have "
            f"steps, states and actions: {(learner.horizon, *learner.space)}."
        )
    groups = (_GROUPS,) if study.ledger.groups and key is None else ()
    certificate = study.certificate(
        curator.noise_source,
        {"episodes per unit": data.max_episodes_per_unit},
        notes=(*groups, *(() if store is None else store.notes())),
    )
    return Result(policy, certificate, {"users": people.num_units, "episodes": people.num_episodes})


def _fit_function(
    data: AbstractDataset | RewardFunction,
    learner: AbstractLearner,
    privatizer: AbstractPrivatizer,
    key: PRNGKeyArray | None,
    unit: str | None,
    store: ReleaseStore | None,
) -> Result:
    """`fit` where the secret is a reward function and nobody's data are at stake."""
    if not isinstance(data, RewardFunction) or not isinstance(learner, FunctionalReward):
        raise PairingError(
            f"`{type(data).__name__}` and `{type(learner).__name__}` do not go together. A `RewardFunction` is learnt "
            "from by `FunctionalReward`; people's episodes by an offline learner such as `QLearning`."
        )
    if unit not in (None, _FUNCTION):
        raise ValueError(
            f"`unit` is {unit!r}; what is hidden here is which of two similar reward functions was used, and no "
            "person. Leave `unit` out."
        )
    if privatizer.adjacency != "replace-one":
        raise ValueError(
            f"`adjacency` is {privatizer.adjacency!r}; a reward function can be replaced by a similar one, but not "
            "removed. Use 'replace-one'."
        )
    places = learner.transition.shape[0]
    if len(data.values) != places:
        raise ValueError(
            f"The reward function has {len(data.values)} mesh points and the learner's world has {places} places. "
            "Let both agree."
        )
    study = Study.offline(learner, privatizer, _FUNCTION)
    _open(study, data, key, store)
    curator = _curator(Nobody(), study, key, store)
    values = jnp.asarray(data.values)

    def ask(name: str, *, distance: float, beta: float) -> ReleasedFunction:
        return curator.function(name, values, distance=distance, beta=beta, bound=1.0)

    policy = learner.fit(ask)
    certificate = study.certificate(
        curator.noise_source,
        {},
        neighbours=learner.neighbours,
        notes=(_NO_PERSON, *(() if store is None else store.notes())),
    )
    return Result(policy, certificate, {"users": 0, "episodes": 0})


def _curator(people: AbstractPeople, study: Study, key: PRNGKeyArray | None, store: ReleaseStore | None) -> Curator:
    source = System() if key is None else Seeded(key)
    return Curator(people, study.ledger, source, study.privatizer.mechanism_of_rounds, store)


def _open(
    study: Study, data: AbstractDataset | RewardFunction, key: PRNGKeyArray | None, store: ReleaseStore | None
) -> None:
    """Writes what is going to be released into the store, or checks that nothing is other than before a crash.

    The data are recognised by a digest under a secret key of the store. It says nothing without that key, and never
    leaves the store.
    """
    if store is None:
        return
    if key is not None or study.privatizer.notion == "none":
        raise ValueError(
            "A `store` keeps the releases of real people. Leave out `key` (simulated noise protects nobody), and give "
            "a budget."
        )
    study.open(store, "fit", study.ledger.limits())
    digest = data.digest(store.secret("digest of the data"))
    if store.fact("digest of the data", lambda: digest) != digest:
        raise StudyMismatchError(
            "The data are not those that this store's study began with: something was added, removed or changed. "
            "Nothing was released. Go on with the data as they were, or use a new file, and a new budget, for a new "
            "study."
        )
