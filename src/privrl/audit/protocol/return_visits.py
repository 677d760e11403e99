"""Two worlds that differ in when and how often a person returns: does another person's number, block or plan change?

A shipped agent is driven twice through the same first arrivals, in the second world with further visits of one
person. The second world gets the releases of the first in the place of its own, so that both have seen the same.
Then nothing that others see may differ (numbers and plans of their tickets, the plans shown, the names, order and
distributions of releases), and the exact sums of all blocks together may differ by no more than the sensitivity
that the noise was drawn for.
"""

import numpy as np

from privrl.audit.findings import Finding
from privrl.audit.protocol.episode_ends import PATIENCE, MakeAgent, WatchedStore
from privrl.audit.surface.neighbouring_records import AnyRecords, leaf_bytes, pick_records, widen_records
from privrl.privacy.noise.lattice import Lattice

COMING_BACK = "coming-back"


def _watch(
    make: MakeAgent, records: AnyRecords, people: int, visits: list[float], script: WatchedStore | None
) -> WatchedStore:
    """Drive an agent through `people` first arrivals, and through later visits of the first person."""
    store = WatchedStore(None if script is None else script.drawn)
    now = [0.0]
    agent = make(store, lambda: now[0])
    with store:
        for time, kind, i in sorted(
            [(float(i), 1, i) for i in range(people)] + [(t, 0, n) for n, t in enumerate(visits)]
        ):
            now[0] = time
            if kind == 0:
                ticket = agent.begin_episode("person 0", visit=f"visit {i}")
                agent.end_episode(ticket, widen_records(pick_records(records, 0)))
                continue
            for visit in ("first", f"at {i}"):  # all others return at once
                if i or visit == "first":
                    ticket = agent.begin_episode(f"person {i}", visit=visit)
                    agent.end_episode(ticket, widen_records(pick_records(records, i)))
                    store.arrivals.append((ticket.number, ticket.plan, leaf_bytes(agent.policy)))
        now[0] += 10.0 * PATIENCE
        store.arrivals.append((agent.num_arrived, -1, leaf_bytes(agent.policy)))
    return store


def attack_return_visits(make: MakeAgent, records: AnyRecords, ends: tuple[int, ...], times: int) -> Finding:
    """Attack an agent that counts `times` episodes of each person.

    `records` has a record for each person, and `ends` are the public ends of blocks.
    """
    people = ends[-1]
    first = _watch(make, records, people, [], None)
    apart = people / times
    worlds = (
        ("returns as often as counts", [0.5 + apart * n for n in range(times - 1)]),
        ("returns more often than counts", [0.5 + 0.25 * n for n in range(4 * people)]),
        ("returns at once, again and again", [0.25 + 0.0625 * n for n in range(times + 2)]),
        ("returns after all others", [people - 0.5 + n for n in range(times)]),
    )
    found: list[str] = []
    for what, visits in worlds:
        world = _watch(make, records, people, visits, first)
        if world.arrivals != first.arrivals:
            found.append(f"a person who {what} moves other people's tickets or the plans that they are shown")
        if world.order != first.order:
            found.append(f"a person who {what} changes the number, order or distributions of releases")
            continue
        found += [f"a person who {what} moves {name} beyond what its noise covers" for name in _beyond(first, world)]
    return Finding(COMING_BACK, len(worlds) * (len(first.arrivals) + len(first.order)), tuple(dict.fromkeys(found)))


def _beyond(first: WatchedStore, world: WatchedStore) -> list[str]:
    """List the statistics whose encoded sums differ by more than their sensitivity."""
    squares: dict[str, float] = {}
    limits: dict[str, float] = {}
    for name, _, _, distribution in first.order:
        statistic, lattice = name.rpartition("/")[0], Lattice.from_bytes(distribution)
        moved = np.abs(first.drawn[name] - world.drawn[name]).astype(float)
        size = float((moved**2).sum()) if lattice.kind == "l2" else float(moved.sum())
        squares[statistic] = squares.get(statistic, 0.0) + size
        units = lattice.sensitivity / lattice.granularity
        limits[statistic] = units**2 if lattice.kind == "l2" else units
    return [name for name, size in squares.items() if size > limits[name]]
