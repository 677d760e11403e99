"""Two worlds that differ in when a person's episode ends: does another person's block, plan or turn change with it?

A shipped agent is driven twice through the same arrivals. One person's episode ends at once, just before the block
closes, too late, or never; all other people are the same. The second world gets the releases of the first in the
place of its own, so that both worlds have seen the same. Then nothing may differ (the numbers and plans of tickets,
the plans shown, the names, order and distributions of releases, the exact sums) except the sum of that person's
block, by their own term.
"""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Int64

from privrl.audit.findings import Finding
from privrl.audit.surface.neighbouring_records import AnyRecords, leaf_bytes, pick_records, widen_records
from privrl.privacy.store.release_store import ReleaseStore
from privrl.studies.live.agent import Agent, Controller
from privrl.studies.live.arrivals import Ticket

LENGTH_OF_STAY = "length-of-stay"
PATIENCE = 3.5  # people arrive one time unit apart
_STAY = 1.25  # the length of the other people's episodes


MakeAgent = Callable[[ReleaseStore, Callable[[], float]], Agent | Controller]


class WatchedStore(ReleaseStore):
    """A store that records what is seen in one world, and can replace its releases by those of another world.

    `arrivals` are the numbers and plans of tickets and the plans shown, `order` the names, pools, charges and
    distributions of releases, `drawn` the exact sums with noise (seeded, the same in both worlds).
    """

    def __init__(self, script: dict[str, Int64[np.ndarray, "..."]] | None = None) -> None:
        super().__init__(None)
        self._script = script
        self.arrivals: list[tuple[int, int, bytes]] = []
        self.order: list[tuple[str, str, float, bytes]] = []
        self.drawn: dict[str, Int64[np.ndarray, "..."]] = {}

    def release(
        self,
        name: str,
        pool: str,
        charge: float,
        draw: Callable[[], Int64[np.ndarray, "..."]],
        *,
        distribution: bytes = b"",
    ) -> Int64[np.ndarray, "..."]:
        def watched() -> Int64[np.ndarray, "..."]:
            self.order.append((name, pool, charge, distribution))
            self.drawn[name] = draw()
            return self.drawn[name] if self._script is None else self._script.get(name, self.drawn[name])

        return super().release(name, pool, charge, watched, distribution=distribution)


def watch_agent(
    make: MakeAgent,
    records: AnyRecords,
    people: int,
    person: int,
    end: float | None,
    record: AnyRecords,
    script: WatchedStore | None,
) -> WatchedStore:
    """Drive an agent through `people` arrivals; `person` sends `record` at time `end`, or never."""
    store = WatchedStore(None if script is None else script.drawn)
    now = [0.0]
    agent = make(store, lambda: now[0])
    tickets: dict[int, Ticket] = {}
    events = [(float(i), 0, i) for i in range(people)]
    events += [(i + _STAY, 1, i) for i in range(people) if i != person]
    events += [] if end is None else [(end, 1, person)]
    with store:
        for time, kind, i in sorted(events):
            now[0] = time
            if kind == 0:
                tickets[i] = agent.begin_episode(f"person {i}")
                store.arrivals.append((tickets[i].number, tickets[i].plan, leaf_bytes(agent.policy)))
            else:
                one = record if i == person else widen_records(pick_records(records, i))
                agent.end_episode(tickets[i], one)
        now[0] += 10.0 * PATIENCE
        store.arrivals.append((-1, -1, leaf_bytes(agent.policy)))
    return store


def attack_episode_ends(
    make: MakeAgent, records: AnyRecords, ends: tuple[int, ...]
) -> tuple[Finding, dict[str, tuple[Int64[np.ndarray, "..."], Int64[np.ndarray, "..."]]]]:
    """Run the attack; also return the exact sums that differ between an episode that ends at once and one that ends
    last.

    `records` has a record for each person, and `ends` are the public ends of blocks.
    """
    people, person = ends[-1], min(1, ends[0] - 1)
    own = widen_records(pick_records(records, person))
    empty = jax.tree.map(np.zeros_like, own)
    closing = ends[0] - 1 + PATIENCE
    quick, slow = person + 0.5, closing - 0.125
    first = watch_agent(make, records, people, person, quick, own, None)
    absent = watch_agent(make, records, people, person, None, own, first)
    late = watch_agent(make, records, people, person, people + 2.0 * PATIENCE, own, first)
    worlds = (  # each with the world whose sums it must have
        ("ends just before the block closes", watch_agent(make, records, people, person, slow, own, first), first),
        ("ends too late", watch_agent(make, records, people, person, closing + 0.125, own, first), absent),
        ("ends after all others", late, absent),
        ("never ends", absent, absent),
        ("ends at once with nothing", watch_agent(make, records, people, person, quick, empty, first), absent),
    )
    found: list[str] = []
    tried = 0
    for what, world, reference in worlds:
        tried += len(first.arrivals) + len(first.order)
        if world.arrivals != first.arrivals:
            found.append(f"a person who {what} moves other people's tickets or the plans that they are shown")
        if world.order != first.order:
            found.append(f"a person who {what} changes the number, order or distributions of releases")
        found += [
            f"a person who {what} moves the sum of {name} beyond their own term"
            for name in first.drawn
            if leaf_bytes(reference.drawn.get(name)) != leaf_bytes(world.drawn.get(name))
        ]
    moved = {n: (first.drawn[n], late.drawn[n]) for n in first.drawn.keys() & late.drawn.keys()}
    return Finding(LENGTH_OF_STAY, tried, tuple(dict.fromkeys(found))), moved
