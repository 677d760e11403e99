"""What every verb on a data set at rest does: declare, check, open the store, ask a curator, certify."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, Float, PRNGKeyArray

from privrl.contracts.learner import AbstractOfflineLearner
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.data.dataset import AbstractDataset
from privrl.data.reward_function import RewardFunction
from privrl.data.tables.shards import ShardedEpisodes
from privrl.executors.executor import AbstractExecutor
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.noise.maximum import MaximumNoise
from privrl.privacy.noise.sources import Seeded, System
from privrl.privacy.store.errors import StudyMismatchError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.studies.memory import check_memory
from privrl.studies.offline.curated_records import AbstractSecret, Records, secret_of
from privrl.studies.offline.sharded_records import NOT_EXACT, ShardedRecords
from privrl.studies.offline.situations import ReleasedVisits
from privrl.studies.study import Study


@dataclass(frozen=True)
class Answer:
    """What a learner made of its releases, the certificate over all of them, and how much data there were.

    `values` are those of states where the learner gives any, `visits` is what releases said about them, and `choices`
    the number of the candidate that each choice released.
    """

    learnt: Any
    values: Float[Array, " S"] | None
    visits: ReleasedVisits
    certificate: Certificate
    counts: dict[str, int]
    choices: dict[str, int]


def ask_curator(
    verb: str,
    data: AbstractDataset | RewardFunction,
    learner: AbstractOfflineLearner,
    privatizer: AbstractPrivatizer,
    *,
    key: PRNGKeyArray | None,
    unit: str | None,
    store: ReleaseStore | None,
    executor: AbstractExecutor | None = None,
) -> Answer:
    """Lets an offline learner query a data set, as `fit` describes; `verb` is what a store's study is called."""
    secret = secret_of(_sharded(data, executor), learner)
    if isinstance(secret, Records) and isinstance(secret.data, ShardedEpisodes):
        if key is not None or privatizer.notion == "none":
            raise ValueError(NOT_EXACT)
        secret = ShardedRecords.of(secret, secret.data)
    study = Study.offline(learner, privatizer, secret.unit(unit, privatizer))
    check_memory(learner, study.declared)
    if store is not None:
        _open(verb, study, secret, key, store)
    source = System() if key is None else Seeded(key)
    visits, choices = ReleasedVisits(), dict[str, int]()

    def watch(name: str, statistic: AbstractStatistic, release: Release) -> None:
        visits.watch(name, statistic, release)
        if isinstance(release.noise, MaximumNoise):
            choices[name] = int(release.value[0])

    curator = Curator(secret, study.ledger, source, privatizer.mechanism_of_rounds, store, watch)
    learnt, values = learner.fit_with_values(curator) if learner.gives_values else (learner.fit(curator), None)
    notes = secret.notes(groups=bool(study.ledger.groups) and key is None)
    notes = (*notes, *(() if store is None else store.notes()))
    certificate = study.certificate(source.description, secret.bounds, notes=notes)
    return Answer(learnt, values, visits, certificate, secret.counts, choices)


def _sharded(
    data: AbstractDataset | RewardFunction, executor: AbstractExecutor | None
) -> AbstractDataset | RewardFunction:
    if executor is None:
        return data
    if isinstance(data, RewardFunction):
        raise ValueError("A reward function is one secret, and nobody's sums. Leave out `executor`.")
    return ShardedEpisodes.of(data, executor)


def _open(verb: str, study: Study, secret: AbstractSecret, key: PRNGKeyArray | None, store: ReleaseStore) -> None:
    """Writes what is going to be released into the store, or checks that nothing is other than before a crash.

    The data are recognised by a digest under a secret key of the store. It says nothing without that key, and never
    leaves the store.
    """
    if key is not None or study.privatizer.notion == "none":
        raise ValueError(
            "A `store` keeps the releases of real people. Leave out `key` (simulated noise protects nobody), and give "
            "a budget."
        )
    study.open(store, verb, study.ledger.limits())
    digest = secret.digest(store.secret("digest of the data"))
    if store.fact("digest of the data", lambda: digest) != digest:
        raise StudyMismatchError(
            "The data are not those that this store's study began with: something was added, removed or changed. "
            "Nothing was released. Go on with the data as they were, or use a new file, and a new budget, for a new "
            "study."
        )
