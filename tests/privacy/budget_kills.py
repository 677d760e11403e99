"""Kills processes that reserve in a shared budget, at every point of the store's protocol, and lets others race.

    python budget_kills.py DIRECTORY

Prints one JSON object. Processes are forked, so the parent must not have started JAX.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from privrl.privacy.accounting.events import Event
from privrl.privacy.accounting.gdp import gdp_mu
from privrl.privacy.accounting.privacy_budget import BudgetError
from privrl.privacy.shared_budget import MU, SharedBudget
from privrl.privacy.store.errors import BehindLogError
from privrl.privacy.store.release_store import ReleaseStore

GAUSSIAN = (Event("visits", "gaussian", gdp_mu(1.0, 1e-6)),)
SAMPLED = (Event("gradients", "gaussian", 0.05, times=40, sampling=0.01),)


def in_child(work: Any) -> int:
    """Forks, works, and returns the signal or the exit code of the child."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BudgetError:
            os._exit(3)
        except BaseException:
            os._exit(4)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def stopping_at(number: int) -> None:
    """The process dies at this point of the protocol, counted from now on."""
    passed = 0

    def reached(store: ReleaseStore, point: str) -> None:
        nonlocal passed
        if passed == number:
            os.kill(os.getpid(), signal.SIGKILL)
        passed += 1

    ReleaseStore._reached = reached  # type: ignore[method-assign]


def new_budget(place: Path, name: str) -> SharedBudget:
    return SharedBudget.create(place / f"{name}.budget", epsilon=3, delta=1e-6, unit="patient_id")


def kill_everywhere(place: Path, events: tuple[Event, ...], name: str) -> dict[str, Any]:
    """At every point: is the study charged at most once, and exactly once after it was resumed?"""
    before, after, killed = [], [], 0
    for number in range(1000):
        budget = new_budget(place, f"{name}-{number}")

        def reserve(budget: SharedBudget = budget, number: int = number) -> None:
            stopping_at(number)
            budget.reserve(events, "patient_id", "fit", study="one")

        code = in_child(reserve)
        pools = budget.describe()["pools"]
        before.append([len(budget.studies()), *(pool["reserved"] for pool in pools.values())])
        for _ in range(2):
            budget.reserve(events, "patient_id", "fit", study="one")
        pools = budget.describe()["pools"]
        after.append([len(budget.studies()), *(pool["reserved"] for pool in pools.values())])
        if code == 0:
            break
        assert code == -signal.SIGKILL, code
        killed += 1
    return {"killed": killed, "before": before, "after": after}


def kill_making(place: Path) -> dict[str, Any]:
    """At every point of making a budget: is it completed by the next call, with a log that refuses an older copy?"""
    studies, refused, killed = [], [], 0
    for number in range(1000):
        name = f"making-{number}"

        def make(number: int = number, name: str = name) -> None:
            stopping_at(number)
            new_budget(place, name)

        code = in_child(make)
        budget = new_budget(place, name)
        with ReleaseStore(budget.path) as store:
            store.backup(place / f"{name}.copy")
        budget.reserve(GAUSSIAN, "patient_id", "fit")
        studies.append(len(budget.studies()))
        for end in ("", "-wal", "-shm"):
            (place / f"{name}.budget{end}").unlink(missing_ok=True)
        shutil.copy(place / f"{name}.copy", budget.path)
        try:
            budget.studies()
        except BehindLogError:
            refused.append(True)
        else:
            refused.append(False)
        if code == 0:
            break
        assert code == -signal.SIGKILL, code
        killed += 1
    return {"killed": killed, "studies": studies, "refused": refused}


def race(place: Path) -> dict[str, Any]:
    """Processes that all want what is left for one of them."""
    budget = new_budget(place, "race")
    limit = budget.describe()["pools"][MU]["limit"]
    budget.reserve((Event("first", "gaussian", (0.9 * limit) ** 0.5),), "patient_id", "first")
    start = os.pipe()
    children = []
    for number in range(6):
        child = os.fork()
        if child == 0:
            os.close(start[1])
            os.read(start[0], 1)
            try:
                budget.reserve((Event("rest", "gaussian", (0.06 * limit) ** 0.5),), "patient_id", f"rest {number}")
            except BudgetError:
                os._exit(3)
            os._exit(0)
        children.append(child)
    os.close(start[1])
    codes = [os.WEXITSTATUS(os.waitpid(child, 0)[1]) for child in children]
    pool = budget.describe()["pools"][MU]
    return {"codes": sorted(codes), "studies": len(budget.studies()), "within": pool["reserved"] <= pool["limit"]}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found = {
        "gaussian": kill_everywhere(folder, GAUSSIAN, "gaussian"),
        "sampled": kill_everywhere(folder, SAMPLED, "sampled"),
        "making": kill_making(folder),
        "race": race(folder),
    }
    sys.stdout.write(json.dumps(found))
