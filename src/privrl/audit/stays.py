"""Two worlds that differ in when a person ends: whose block, whose plan or whose turn moves with it?

A shipped agent is driven twice through the same arrivals. One person ends at once, just before their block closes, too
late, or never; everybody else is the same. In the second world the releases of the first are put into the place of its
own, so that both worlds have seen the same. Then nothing may differ (the numbers and plans of tickets, the plans shown,
the names, order and laws of releases, the exact sums) but the sum of that person's block, by their own term.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import numpy as np
from jaxtyping import Int64

from privrl.audit.findings import Finding
from privrl.audit.records import picked, wide
from privrl.privacy.store.store import ReleaseStore
from privrl.studies.arrivals import Ticket

LENGTH_OF_STAY = "length-of-stay"
PATIENCE = 3.5  # people arrive one time unit apart
_STAY = 1.25


class AgentLike(Protocol):
    """What the attack needs of an agent."""

    @property
    def policy(self) -> Any: ...
    def begin_episode(self, user: str | int) -> Ticket: ...
    def end_episode(self, ticket: Ticket, trajectory: Any) -> None: ...


MakeAgent = Callable[[ReleaseStore, Callable[[], float]], AgentLike]


class WatchedStore(ReleaseStore):
    """A store that writes down what is released, and can put the releases of another world into its place."""

    def __init__(self, script: dict[str, Int64[np.ndarray, "..."]] | None = None) -> None:
        super().__init__(None)
        self._script = script
        self.order: list[tuple[str, str, float, bytes]] = []
        self.drawn: dict[str, Int64[np.ndarray, "..."]] = {}

    def release(
        self, name: str, pool: str, charge: float, draw: Callable[[], Int64[np.ndarray, "..."]], *, law: bytes = b""
    ) -> Int64[np.ndarray, "..."]:
        def watched() -> Int64[np.ndarray, "..."]:
            self.order.append((name, pool, charge, law))
            self.drawn[name] = draw()
            return self.drawn[name] if self._script is None else self._script.get(name, self.drawn[name])

        return super().release(name, pool, charge, watched, law=law)


@dataclass
class World:
    """What could be seen in one world, and the exact sums behind it (with the seeded noise of both worlds)."""

    arrivals: list[tuple[int, int, bytes]] = field(default_factory=list)
    order: list[tuple[str, str, float, bytes]] = field(default_factory=list)
    drawn: dict[str, Int64[np.ndarray, "..."]] = field(default_factory=dict)
    refused: str = ""


def watch(
    make: MakeAgent, records: Any, people: int, person: int, end: float | None, record: Any, script: World | None
) -> World:
    """Drives an agent through `people` arrivals; `person` hands in `record` at time `end`, or never."""
    store = WatchedStore(None if script is None else script.drawn)
    now = [0.0]
    agent = make(store, lambda: now[0])
    tickets: dict[int, Ticket] = {}
    events = [(float(i), 0, i) for i in range(people)]
    events += [(i + _STAY, 1, i) for i in range(people) if i != person]
    events += [] if end is None else [(end, 1, person)]
    world = World(order=store.order, drawn=store.drawn)
    try:
        for time, kind, i in sorted(events):
            now[0] = time
            if kind == 0:
                tickets[i] = agent.begin_episode(f"person {i}")
                world.arrivals.append((tickets[i].number, tickets[i].plan, _bytes(agent.policy)))
            else:
                one = record if i == person else jax.tree.map(lambda x: x[0], wide(picked(records, np.array([i]))))
                agent.end_episode(tickets[i], one)
        now[0] += 10.0 * PATIENCE
        world.arrivals.append((-1, -1, _bytes(agent.policy)))
    finally:
        store.close()
    return world


def length_of_stay(make: MakeAgent, records: Any, ends: tuple[int, ...]) -> tuple[Finding, dict[str, tuple[Any, Any]]]:
    """The attack; also the exact sums that differ between a person who ends at once and one who ends last of all.

    `records` has a record for each person, and `ends` are the public ends of blocks.
    """
    people, person = ends[-1], min(1, ends[0] - 1)
    own = jax.tree.map(lambda x: x[0], wide(picked(records, np.array([person]))))
    empty = jax.tree.map(np.zeros_like, own)
    closing = ends[0] - 1 + PATIENCE
    quick, slow = person + 0.5, closing - 0.125
    first = watch(make, records, people, person, quick, own, None)
    worlds = {
        "ends just before the block closes": watch(make, records, people, person, slow, own, first),
        "ends too late": watch(make, records, people, person, closing + 0.125, own, first),
        "ends after everybody else": watch(make, records, people, person, people + 2.0 * PATIENCE, own, first),
        "never ends": watch(make, records, people, person, None, own, first),
        "ends at once with nothing": watch(make, records, people, person, quick, empty, first),
    }
    found: list[str] = []
    tried = 0
    absent = worlds["never ends"]
    for what, world in worlds.items():
        tried += len(first.arrivals) + len(first.order)
        if world.arrivals != first.arrivals:
            found.append(f"a person who {what} moves other people's tickets or the plans that they are shown")
        if world.order != first.order:
            found.append(f"a person who {what} changes the number, order or laws of releases")
        reference = first if what.startswith("ends just") else absent
        found += [
            f"a person who {what} moves the sum of {name} beyond their own term"
            for name in first.drawn
            if _bytes(reference.drawn.get(name)) != _bytes(world.drawn.get(name))
        ]
    late = worlds["ends after everybody else"]
    moved = {n: (first.drawn[n], late.drawn[n]) for n in first.drawn.keys() & late.drawn.keys()}
    return Finding(LENGTH_OF_STAY, tried, tuple(dict.fromkeys(found))), moved


def _bytes(content: Any) -> bytes:
    """All numbers of a policy, of a sum, or of nothing."""
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(content))
