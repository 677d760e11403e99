"""People who come and go: a block closes a public time after the first arrival of its last person.

**Formal guarantee.** Number, plan and closing times are functions of the first arrivals (who came, and when) and of
the clock alone. Neither the content nor the time of a record influences them, and neither does a later visit.
Closing is checked at each call, inside the transaction that registers an arrival or a contribution, and has the
effect of a timer: a contribution is accepted before the closing time of its block and refused from then on, whether
or not the release has been made.

A later visit gets the current plan and the block that is filling, which is that of the next first arrival. It
begins before the last first arrival of that block, so it has the whole patience before the block closes. It takes
no number, so it moves no other person. After the last first arrival of the study it is served and not counted.
"""

import contextlib
import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import numpy as np
from jaxtyping import Int

from privrl.contracts.printing import describe_seconds
from privrl.privacy.continual.participation import ONCE, Participation
from privrl.privacy.store.release_store import ReleaseStore
from privrl.studies.live.arrivals import QUEUE, AbstractArrivals, BehindError, Ticket
from privrl.studies.live.randomisation import Randomisation
from privrl.studies.live.visit_limits import Visit

_RETURNS = (
    ". When and how often a person returns is covered like a record, and moves no other person. Visits after the last "
    "first arrival, or beyond the number of episodes that count, are served and not counted"
)


class Patience(AbstractArrivals):
    """Closes a block a public time after its last person arrived, whether or not its people have finished.

    Arguments:
        patience: the longest episode that the study waits for, in seconds. A person who has not ended by then
            counts as an empty record.
        clock: seconds; any clock that does not depend on records, by default the computer's. If it is set back, no
            block opens again.
    """

    def __init__(
        self,
        store: ReleaseStore,
        ends: Int[np.ndarray, " B"],
        patience: float | timedelta,
        clock: Callable[[], float],
        participation: Participation = ONCE,
        randomisation: Randomisation | None = None,
    ) -> None:
        super().__init__(store, ends, participation, randomisation)
        self._patience = patience.total_seconds() if isinstance(patience, timedelta) else float(patience)
        self._clock = clock
        self._reading: Callable[[], float] | None = None
        if not 0.0 < self._patience < math.inf:
            raise ValueError(
                f"`patience` is {self._patience} seconds; it must be positive and finite: the longest stay that is "
                "waited for, chosen without looking at records."
            )

    @property
    def settings(self) -> dict[str, object]:
        return {"patience": self._patience}

    @property
    def assumption(self) -> str:
        often = self._participation
        late = "a later record counts as empty, and the number counted is secret"
        if self._randomisation is not None:
            late = "a later record is missing, and the number that came is known only as it was released, with noise"
        return (
            f"arrivals: a block is released {describe_seconds(self._patience)} after its last person arrived, whether "
            f"or not all its people have finished; {late}. "
            "Who arrives and when may depend on published plans and on the outside world, not on records: if people "
            "can only begin because another person has finished, what their arrival reveals is not covered. That a "
            f"person took part and when they arrived{' first' if often.times > 1 else ''} is public"
        ) + (_RETURNS if often.times > 1 else "")

    def closing(self, block: int) -> float | None:
        if self._randomisation is not None and self._randomisation.has_ended:
            return None  # a block that is open then never closes
        return self.closed_at(block)

    def closed_at(self, block: int) -> float | None:
        last = self._place(self.end(block) - 1) if block < len(self._ends) else None
        return None if last is None else last["time"] + self._patience

    def deadline(self, ticket: Ticket) -> float | None:
        # Of the moment at which they came alone: the end of their block depends on who is in one commit with them.
        later = self._later(ticket)
        if self._randomisation is not None and not self.counts(ticket):
            return None  # in a trial it is public who counts
        return (self._kept(ticket.number)["time"] if later is None else later.time) + self._patience

    def closes(self, block: int) -> bool:
        closing = self.closing(block)
        if closing is None:
            return False
        last = self._kept(self.end(block) - 1)["plan"]
        return self._now() >= closing or self._store.is_sealed(self.sum_name(block, last))

    def _arrive(self, names: Sequence[tuple[str, str]], closed: int, groups: Sequence[str]) -> list[Ticket]:
        """Registers several arrivals as if they had come one by one: the block of a visit is that of the next first
        arrival after its own position, however the sequence is cut into commits, because the cuts depend on how
        busy the store is. The clock is read once for all of them, because a returning person must change neither
        the time of the others nor whether a block has closed for them.
        """
        visits = [_short(visit) for _, visit in names]
        arrive = super()._arrive

        def work() -> list[Ticket]:
            self.forget()  # places of an attempt that the database gave up
            with self._one_reading():
                # A visit belongs to the block of the next first arrival. `arrived` is therefore the number of first
                # arrivals up to its own position in the sequence: people who came before, and the newest first
                # ticket so far. It is not the number after the whole commit.
                before = self.num_arrived
                firsts = arrive(names, closed, groups)
                arrived = itertools.accumulate((first.number + 1 for first in firsts), max, initial=before)
                rows = zip(firsts, visits, itertools.islice(arrived, 1, None), strict=True)
                return [self._visited(first, visit, closed, then) for first, visit, then in rows]

        # Named visits read and write two queues, so both happen in one transaction or not at all.
        if any(visits):
            return self._store.together(functools.partial(self._store.in_queue, QUEUE, work))
        with self._one_reading():
            return arrive(names, closed, groups)

    def _visited(self, first: Ticket, visit: str, closed: int, arrived: int) -> Ticket:
        """The ticket of a visit of the person with this first ticket, given the number of people who have arrived."""
        if not visit:
            return first
        found = self._visit(first.number, visit, closed, arrived)
        if not isinstance(found, Visit):
            return first
        return Ticket(first.number, found.plan, found.token, visit, first.arm)

    def _visit(self, number: int, visit: str, closed: int, arrived: int) -> Visit | int:
        """The visit of person `number` with this name, stored if it is new."""
        found = self._visits.find(number, visit)
        if found is None:
            if self.closes(closed):
                raise BehindError
            block = self._block_of(min(arrived, self.num_places - 1))
            counts = arrived < self.num_places and self._visits.count(str(number), block)
            self._visits.keep(number, visit, self.plan_after(closed), block, counts, self._now())
            found = self._visits.find(number, visit)
            assert found is not None
        return found

    def _later(self, ticket: Ticket) -> Visit | None:
        if not ticket.visit:
            return None
        found = self._visits.find(ticket.number, ticket.visit)
        return found if isinstance(found, Visit) else None

    def block(self, ticket: Ticket) -> int:
        later = self._later(ticket)
        return super().block(ticket) if later is None else later.block

    def counts(self, ticket: Ticket) -> bool:
        later = self._later(ticket)
        return self._kept(ticket.number).get("counts", True) if later is None else later.counts

    def _issued(self, ticket: Ticket) -> tuple[int, str] | None:
        later = self._later(ticket)
        return super()._issued(ticket) if later is None else (later.plan, later.token)

    def _key(self, user: str, visit: str) -> str:
        return user

    def _moment(self, closed: int) -> dict[str, object]:
        # Not before a block that has closed, even if the clock was set back since.
        earlier = self.closed_at(closed - 1) if closed else None
        return {"time": self._now() if earlier is None else max(self._now(), earlier)}

    def _content(self, number: int, closed: int, user: str, visit: str) -> dict[str, object]:
        if visit:
            self._visits.name_first(number, _short(visit))
        if self._participation.times > 1:
            self._visits.count(str(number), self._block_of(number))  # the first of those that count
        return {}

    def _now(self) -> float:
        """The time, never before that of the last arrival."""
        latest, time = self.latest, self._read()
        return time if latest is None else max(time, latest)

    def _read(self) -> float:
        return self._clock() if self._reading is None else self._reading()

    @contextlib.contextmanager
    def _one_reading(self) -> Iterator[None]:
        """Reads the clock at most once, when it is first needed."""
        self._reading = functools.cache(self._clock)
        try:
            yield
        finally:
            self._reading = None


def _short(visit: str) -> str:
    """The name of a visit as tickets and the store keep it: of fixed length, or empty if there is no name."""
    return hashlib.blake2b(visit.encode(), digest_size=16).hexdigest() if visit else ""
