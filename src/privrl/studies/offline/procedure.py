"""What every verb on a data set at rest does: declare, check, open the store, query a curator, certify."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from jaxtyping import PRNGKeyArray

from privrl.contracts.learner import AbstractOfflineAnalysis, Ask
from privrl.data.dataset import AbstractDataset
from privrl.data.reward_function import RewardFunction
from privrl.data.tables.shards import ShardedEpisodes
from privrl.executors.executor import AbstractExecutor
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.noise.sources import Seeded, System
from privrl.privacy.shared_budget import AnySharedBudget
from privrl.privacy.store.errors import StudyMismatchError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.studies.memory import check_memory
from privrl.studies.offline.curated_records import AbstractSecret, Records, secret_of
from privrl.studies.offline.sharded_records import NOT_EXACT, ShardedRecords
from privrl.studies.offline.situations import ReleasedVisits
from privrl.studies.study import Study

T = TypeVar("T")


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What an analysis found.

    Attributes:
        found: what the analysis computed from its releases.
        visits: what the releases say about the visits of each state.
        certificate: covers all releases.
        counts: the numbers of people and of episodes.
    """

    found: T
    visits: ReleasedVisits
    certificate: Certificate
    counts: dict[str, int]


def ask_curator(
    verb: str,
    data: AbstractDataset | RewardFunction,
    analysis: AbstractOfflineAnalysis,
    compute: Callable[[Ask], T],
    privatizer: AbstractPrivatizer,
    *,
    key: PRNGKeyArray | None,
    unit: str | None,
    store: ReleaseStore | None,
    executor: AbstractExecutor | None = None,
    budget: AnySharedBudget | None = None,
    unit_column: str | None = None,
    called: str | None = None,
) -> Answer[T]:
    """Lets an analysis query a data set, as `fit` describes.

    Arguments:
        verb: names the study in a store.
        data: the secret.
        analysis: declares the releases.
        compute: the method of `analysis` that asks for the releases and computes from them.
        privatizer, key, unit, store, executor, budget: as in `fit`.
        unit_column: the column of a table whose ids are the people; `unit` unless given.
        called: the name of the study in the list of a shared budget.
    """
    secret = secret_of(_sharded(data, executor), analysis)
    if isinstance(secret, Records) and isinstance(secret.data, ShardedEpisodes):
        if key is not None or privatizer.notion == "none":
            raise ValueError(NOT_EXACT)
        secret = ShardedRecords.of(secret, secret.data)
    study = Study.offline(analysis, privatizer, secret.unit(unit, privatizer))
    check_memory(analysis, study.declared)
    if store is not None:
        _open(verb, study, key, store)
    study.reserve(budget, verb, unit_column, key, store, called)
    if store is not None:
        _check_data(secret, store)
    source = System() if key is None else Seeded(key)
    visits = ReleasedVisits()
    found = compute(Curator(secret, study.ledger, source, privatizer.mechanism_of_rounds, store, visits.watch))
    notes = secret.notes(groups=bool(study.ledger.groups) and key is None)
    notes = (*notes, *(() if store is None else store.notes()))
    certificate = study.certificate(source.origin, records_per_unit=secret.records_per_unit, notes=notes)
    return Answer(found, visits, certificate, secret.counts)


def _sharded(
    data: AbstractDataset | RewardFunction, executor: AbstractExecutor | None
) -> AbstractDataset | RewardFunction:
    if executor is None:
        return data
    if isinstance(data, RewardFunction):
        raise ValueError(
            "`executor` parallelises sums over people, so it does not apply to a `RewardFunction`. Remove it."
        )
    return ShardedEpisodes.from_dataset(data, executor)


def _open(verb: str, study: Study, key: PRNGKeyArray | None, store: ReleaseStore) -> None:
    """Writes what is going to be released into the store, or checks that nothing is other than before a crash."""
    if key is not None or study.privatizer.notion == "none":
        raise ValueError(
            "A `store` keeps the releases of real people. Leave out `key` (simulated noise protects no one), and give "
            "a budget."
        )
    study.open(store, verb, study.ledger.limits())


def _check_data(secret: AbstractSecret, store: ReleaseStore) -> None:
    """Refuses data other than those of the study in the store.

    The data are recognised by a digest under a secret key of the store. It says nothing without that key, and never
    leaves the store.
    """
    digest = secret.digest(store.secret("digest of the data"))
    if store.fact("digest of the data", lambda: digest) != digest:
        raise StudyMismatchError(
            "The data are not those that this store's study began with: something was added, removed or changed. "
            "Nothing was released. Go on with the data as they were, or use a new file, and a new budget, for a new "
            "study."
        )
