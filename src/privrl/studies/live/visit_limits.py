"""People who return: which of their visits count, and to which block each belongs.

A person's first arrival is a place in the queue of the study (`arrivals.py`). Later visits, which are kept here,
move no other person: no number, time, plan or block of another person depends on them. When and how often a person
returns is as secret as their record. It is therefore kept as whole numbers under keyed digests, which a purge of
the store removes, and the store keeps no total number of visits that a ticket, a message or a list could show.

**Formal guarantee.** Of all visits of one person at most `times` count, each at least `distance` blocks after the
last one that counts. This is written before the ticket is issued, so it holds at whatever point a process dies.
Whether a visit counts is a function of first arrivals and of the same person's earlier visits.
"""

import math
import secrets
from dataclasses import dataclass, field

from privrl.privacy.continual.participation import Participation
from privrl.privacy.store.release_store import ReleaseStore

FIRST = -1  # kept under the name of a first visit
_COUNTED, _PLACES, _TOKENS, _TIMES = "counted visits", "visits", "tokens of visits", "times of visits"
_TICKS = 1_000_000  # per second


@dataclass(frozen=True)
class Visit:
    """A later visit of a person.

    Attributes:
        plan: the plan that was current when the person came.
        block: the block that was filling then.
        counts: whether its record is added to the sums of that block.
        time: when the person came, in seconds, rounded down to a millionth.
    """

    plan: int
    block: int
    counts: bool
    time: float
    token: str = field(repr=False)


class Visits:
    """The later visits of all people in a store. Methods that write are called inside a transaction of the queue.

    Arguments:
        participation: the number of visits of one person that count, the first one included, and the distance
            between them.
    """

    def __init__(self, store: ReleaseStore, participation: Participation) -> None:
        self._store, self._participation = store, participation

    def count(self, person: str, block: int) -> bool:
        """Whether one more visit of a person counts in this block; stored if it does. If only one episode per person
        counts, later visits never do, and nothing is stored.
        """
        times, distance = self._participation.times, self._participation.distance
        if times == 1:
            return False
        for number in range(times):
            last = self._store.recall(_COUNTED, f"{person}/{number}")
            if last is None:
                break
            if block < last + distance:
                return False
        else:
            return False
        self._store.remember(_COUNTED, f"{person}/{number}", block)
        return True

    def name_first(self, number: int, visit: str) -> None:
        """Keeps the name of the visit with which person `number` arrived."""
        self._store.remember(_PLACES, f"{number}/{visit}", FIRST)

    def keep(self, number: int, visit: str, plan: int, block: int, counts: bool, time: float) -> None:
        """Keeps a new visit."""
        self._store.remember(_PLACES, f"{number}/{visit}", plan << 32 | block << 1 | counts)
        self._store.remember(_TIMES, f"{number}/{visit}", math.floor(time * _TICKS))
        self._store.remember(_TOKENS, f"{number}/{visit}", secrets.randbits(63))

    def find(self, number: int, visit: str) -> Visit | int | None:
        """The visit of person `number` with this name: `FIRST`, a later one, or `None`."""
        kept = self._store.recall(_PLACES, f"{number}/{visit}")
        if kept is None or kept == FIRST:
            return kept
        token, ticks = (self._store.recall(what, f"{number}/{visit}") for what in (_TOKENS, _TIMES))
        assert token is not None and ticks is not None
        return Visit(kept >> 32, kept >> 1 & 0x7FFFFFFF, bool(kept & 1), ticks / _TICKS, f"{token:016x}")
