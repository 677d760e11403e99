"""The public content of a store: what was declared, spent, released and burnt. Nothing depends on a record.

The number of people who were *counted* in a sum is secret, and so is whether there were any. So a sum is shown once it
is sealed, without a number. Places in a queue and ranges of numbers are assigned in public.
"""

import json
import math
from typing import TypedDict

from privrl.privacy.store.engine import AbstractEngine


class ReleaseView(TypedDict):
    """What is public about one release. `status` is "reserved", "released", "redrawn" or "burnt"."""

    name: str
    pool: str
    charge: float
    status: str
    shape: list[int] | None
    date: str


class StoreView(TypedDict):
    """The public content of a store, as JSON."""

    study: dict[str, object] | None
    limits: dict[str, float]
    spent: dict[str, float]
    releases: list[ReleaseView]
    sealed: list[str]
    queues: dict[str, int]
    ranges: dict[str, int]
    facts: list[str]
    purged: bool
    purge_unfinished: bool


def describe(engine: AbstractEngine) -> StoreView:
    """The public content of a store."""
    at_work = engine.at_work()
    with engine.snapshot():
        study = engine.execute("SELECT content FROM study").fetchone()
        limits = engine.limits()
        purge = engine.execute("SELECT ended FROM purges").fetchone()
        rows = engine.execute(
            "SELECT name, pool, charge, reserved, released, shape FROM releases ORDER BY reserved, name"
        ).fetchall()
        redrawn = {name for (name,) in engine.execute("SELECT subject FROM chain WHERE kind = 'redraw'").fetchall()}
        sealed = [name for (name,) in engine.execute("SELECT name FROM seals ORDER BY sealed, name").fetchall()]
        taken = "SELECT queue, MAX(number) + 1 FROM places GROUP BY queue ORDER BY queue"
        queues = dict(engine.execute(taken).fetchall())
        ranges = dict(engine.execute("SELECT name, next FROM ranges ORDER BY name").fetchall())
        facts = [name for (name,) in engine.execute("SELECT name FROM facts ORDER BY name").fetchall()]
    releases: list[ReleaseView] = []
    for name, pool, charge, reserved, released, shape in rows:
        if released is not None:
            status = "redrawn" if name in redrawn else "released"
        else:
            status = "reserved" if name in at_work else "burnt"
        shape = None if shape is None else json.loads(shape)
        date = (released or reserved)[:10]  # a time would reveal how long a pass took
        releases.append(ReleaseView(name=name, pool=pool, charge=charge, status=status, shape=shape, date=date))
    return {
        "study": None if study is None else json.loads(study[0]),
        "limits": limits,
        "spent": {pool: math.fsum(row[2] for row in rows if row[1] == pool) for pool in limits},
        "releases": releases,
        "sealed": sealed,
        "queues": queues,
        "ranges": ranges,
        "facts": facts,
        "purged": purge is not None and purge[0] is not None,
        "purge_unfinished": purge is not None and purge[0] is None,
    }


def notes(engine: AbstractEngine) -> tuple[str, ...]:
    """Sentences about releases that crashes have interrupted, for a certificate."""
    releases = describe(engine)["releases"]
    lost = [release["name"] for release in releases if release["status"] == "burnt"]
    drawn = [release["name"] for release in releases if release["status"] == "redrawn"]
    words = [f"burnt by a crash, with their budget spent: {', '.join(lost)}"] if lost else []
    words += [f"interrupted by a crash before they were returned, and drawn again: {', '.join(drawn)}"] if drawn else []
    return tuple(words)
