"""From a study file to its store, and to the agent or the server that learns."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from privrl.privacy.shared_budget import AnySharedBudget, SharedBudget, shared
from privrl.privacy.store.errors import StudyMismatchError
from privrl.privacy.store.release_store import ReleaseStore, check_writable, place_of, store_exists
from privrl.privacy.store.view import StoreView
from privrl.privacy.trust.privatizers import Local
from privrl.privacy.trust.symbol_channels import SymbolReports
from privrl.service.study_file import StudyFile
from privrl.studies.live.agent import Agent
from privrl.studies.live.live_pilot import Pilot
from privrl.studies.local.document import identity_of
from privrl.studies.local.local_plans import local_study
from privrl.studies.local.server import Server
from privrl.studies.results.arm_policies import read_arm_policies

_ENTRIES = {  # entries of a study file, by their names in a store
    "arrivals": "`patience` or `plan_delay`",
    "counted": "`max_episodes_per_unit` or `min_block_distance`",
    "events": "`epsilon`, `delta` or `recipe`",
    "learner": "`recipe` or `[world]`",
    "minor version of privrl": "the minor version of privrl (finish a study with the one that began it)",
    "protocol": "the protocol",
    "unit": "`unit`",
    "users": "`users`, or `open_ended`",
    "verb": "`kind`",
}


def begin_study(file: StudyFile, budget: AnySharedBudget | None = None) -> None:
    """Make the store and declare the study in it; in a store that exists, check that it is the same study.

    A study that cannot be served is refused before anything is written. With a shared `budget`, its cost is reserved
    there, once.
    """
    if budget is not None and file.kind == "local":
        raise ValueError(
            "`budget` pays for central studies and pilots. In a local study, each device adds its own noise."
        )
    declare_in_memory(file)
    if budget is not None:
        _check_unit(file, shared(budget))
    with _store(file) as store:
        start_learning(file, store, budget=budget)


def _check_unit(file: StudyFile, budget: SharedBudget) -> None:
    """Refuse a budget for other people before there is a store, which would be bound to a budget that cannot pay."""
    unit = budget.terms.unit
    if unit != file.unit:
        raise ValueError(
            f"The study protects `{file.unit}` and the budget `{budget.place}` is for `{unit}`. Nothing was reserved, "
            f"and no store was made. If the ids of people are those of `{unit}`, write `unit = {json.dumps(unit)}` "
            f"before the first table of `{file.path}`. Otherwise use a budget of its own."
        )


def open_store(file: StudyFile) -> ReleaseStore:
    """Open the store of a study that was begun.

    A release that a crash interrupted is drawn again, because its first value was never shown.
    """
    if not store_exists(file.place):
        raise ValueError(
            f"There is no store `{place_of(file.place)}` yet. Begin the study: `privrl serve init {file.path}`."
        )
    check_writable(file.place)
    return _store(file)


def _store(file: StudyFile) -> ReleaseStore:
    return ReleaseStore(file.place, after_crash="redraw", log=file.log_place)


def read_identity(file: StudyFile) -> str | None:
    """Read the SHA-256 of the document of a local study, which its apps pin; `None` for a central study."""
    with open_store(file) as store:
        if not store.has_fact("document"):
            return None
        return identity_of(store.fact("document", bytes)).hex()


def start_learning(
    file: StudyFile,
    store: ReleaseStore,
    clock: Callable[[], float] = time.time,
    budget: AnySharedBudget | None = None,
) -> Agent | Pilot | Server:
    """Make the agent, the pilot or the server of a study. It declares the study in a new store.

    Raises:
        StudyMismatchError: if the store belongs to another study.
    """
    try:
        return _make_agent_or_server(file, store, clock, budget)
    except StudyMismatchError:
        check_same_study(file, store.describe())
        raise


def _make_agent_or_server(
    file: StudyFile, store: ReleaseStore, clock: Callable[[], float], budget: AnySharedBudget | None
) -> Agent | Pilot | Server:
    if file.protocol is not None:
        policies = read_arm_policies(file.protocol, file.path.parent)  # a study without them could not be served
        return Pilot(file.protocol, store=store, policies=policies, clock=clock, unit=file.unit, budget=budget)
    learner, privatizer = file.learner(), file.privatizer()
    if file.kind == "central":
        return Agent(
            learner,
            privatizer,
            num_users=file.people,
            store=store,
            patience=file.patience,
            clock=clock,
            max_episodes_per_unit=file.max_episodes_per_unit,
            min_block_distance=file.min_block_distance,
            plan_delay=file.plan_delay,
            unit=file.unit,
            budget=budget,
        )
    assert isinstance(privatizer, Local) and file.users is not None
    for name, channel in local_study(learner, privatizer, file.max_episodes_per_unit)[1].items():
        if not isinstance(channel.reports(), SymbolReports):
            raise ValueError(
                f"Reports of `{name}` are real numbers, and the service accepts whole numbers only. Use `ldp-ucbvi`, "
                "or `Server` in your own program."
            )
    return Server(
        learner,
        privatizer,
        num_users=file.users,
        store=store,
        valid=file.valid,
        clock=clock,
        max_episodes_per_unit=file.max_episodes_per_unit,
    )


def declare_in_memory(file: StudyFile) -> StoreView:
    """Declare the study in a store in memory, and return what that store shows."""
    with ReleaseStore.in_memory() as blank:
        start_learning(file, blank)
        return blank.describe()


def measure_plan(file: StudyFile) -> float | None:
    """Measure the seconds that a plan of a central study takes on this machine; `None` for a local study."""
    with ReleaseStore.in_memory() as blank:
        made = start_learning(file, blank)
        return made.plans.measure() if isinstance(made, Agent) else None


def find_differences(file: StudyFile, shown: Mapping[str, Any]) -> list[str]:
    """List the entries in which a study file differs from what a store shows."""
    fresh = declare_in_memory(file)
    if shown["study"] is None:
        return ["everything: nothing was declared yet"]
    declared = fresh["study"] or {}
    keys = sorted(declared.keys() | shown["study"].keys())
    keys = [key for key in keys if declared.get(key) != shown["study"].get(key)]
    if "protocol" in keys:  # of which all others but the unit are a part
        keys = [key for key in keys if key in ("protocol", "unit")]
    differing = [_ENTRIES.get(key, f"`{key}`") for key in keys]
    return differing or ([] if fresh["limits"] == shown["limits"] else ["the budget"])


def check_same_study(file: StudyFile, shown: Mapping[str, Any]) -> None:
    """Check that what a store shows belongs to this study.

    Raises:
        StudyMismatchError: if it does not.
    """
    if differing := find_differences(file, shown):
        raise StudyMismatchError(
            f"The store of `{file.path}` belongs to a study that differs in {', and in '.join(differing)}. A "
            "declaration cannot be changed: restore the study file, or name a new store for a new study."
        )
