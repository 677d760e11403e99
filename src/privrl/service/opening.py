"""From a study file to its store, its agent or its server."""

import time
from collections.abc import Callable
from typing import Any

from privrl.privacy.store.errors import StudyMismatchError
from privrl.privacy.store.release_store import ReleaseStore, check_writable, is_there, place_of
from privrl.privacy.trust.privatizers import Local
from privrl.privacy.trust.symbol_channels import SymbolReports
from privrl.service.study_file import StudyFile
from privrl.studies.live.agent import Agent
from privrl.studies.local.document import identity_of
from privrl.studies.local.local_plans import local_study
from privrl.studies.local.server import Server

_ENTRIES = {  # entries of a study file, by what a store calls them
    "arrivals": "`patience`",
    "counted": "`max_episodes_per_unit` or `min_block_distance`",
    "events": "`epsilon`, `delta` or `recipe`",
    "learner": "`recipe` or `[world]`",
    "users": "`users`, or `open_ended`",
    "verb": "`kind`",
}


def open_store(file: StudyFile) -> ReleaseStore:
    """The store of a study that was begun. A release that a crash interrupted is drawn again: nobody has seen it."""
    if not is_there(file.place):
        raise ValueError(
            f"There is no store `{place_of(file.place)}` yet. Begin the study: `privrl serve init {file.path}`."
        )
    check_writable(file.place)
    return _store(file)


def _store(file: StudyFile) -> ReleaseStore:
    return ReleaseStore(file.place, after_crash="redraw", log=file.log_place)


def begin(file: StudyFile) -> None:
    """Makes the store and declares the study in it; again, it is checked that it is the same one. What cannot be a
    study is refused before anything is written."""
    declared(file)
    with _store(file) as store:
        work_on(file, store)


def identity_in(file: StudyFile) -> str | None:
    """The SHA-256 of the document of a local study that was begun, which its apps pin; none of a central one."""
    with open_store(file) as store:
        if not store.known("document"):
            return None
        return identity_of(store.fact("document", bytes)).hex()


def work_on(file: StudyFile, store: ReleaseStore, clock: Callable[[], float] = time.time) -> Agent | Server:
    """What learns from people; it declares the study, or refuses a store of another one."""
    try:
        return _learning(file, store, clock)
    except StudyMismatchError:
        check_same(file, store.shown())
        raise


def _learning(file: StudyFile, store: ReleaseStore, clock: Callable[[], float]) -> Agent | Server:
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
        )
    assert isinstance(privatizer, Local) and file.users is not None
    often = file.max_episodes_per_unit
    for name, channel in local_study(learner, privatizer, often)[1].items():
        if not isinstance(channel.reports(), SymbolReports):
            raise ValueError(
                f"Reports of `{name}` are real numbers, and a service takes whole ones. Use `ldp-ucbvi`, or `Server` "
                "in a program of your own."
            )
    return Server(
        learner,
        privatizer,
        num_users=file.users,
        store=store,
        valid=file.valid,
        clock=clock,
        max_episodes_per_unit=often,
    )


def declared(file: StudyFile) -> dict[str, Any]:
    """What a new store of this study would show; nothing is written anywhere."""
    with ReleaseStore.in_memory() as blank:
        work_on(file, blank)
        return blank.shown()


def differences(file: StudyFile, shown: dict[str, Any]) -> list[str]:
    """In what entries a store, as it is shown, is not the one of this study; nothing is written anywhere."""
    fresh = declared(file)
    if shown["study"] is None:
        return ["everything: nothing was declared yet"]
    keys = sorted(fresh["study"].keys() | shown["study"].keys())
    differing = [_ENTRIES.get(key, f"`{key}`") for key in keys if fresh["study"].get(key) != shown["study"].get(key)]
    return differing or ([] if fresh["limits"] == shown["limits"] else ["the budget"])


def check_same(file: StudyFile, shown: dict[str, Any]) -> None:
    """Refuses a store, as it is shown, that is not the one of this study."""
    if differing := differences(file, shown):
        raise StudyMismatchError(
            f"The store of `{file.path}` belongs to a study that differs in {', and in '.join(differing)}. What was "
            "declared is declared for good: put back what the study file said, or name a new store for a new study."
        )
