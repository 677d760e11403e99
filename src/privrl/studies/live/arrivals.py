"""People in order of arrival: tickets, the blocks they belong to, and the moment at which a block closes.

People are numbered as they arrive. The store keeps the number, the number of the current plan and, with `Patience`,
the time before the ticket is issued. The same id always gets the same ticket, which is that person's only place. A
block is a range of numbers with public ends, so the length of an episode never decides whose terms enter which
release.

A person who returns names the visit (any id of their own: a session, a date), and the same visit always gets the
same ticket, however often messages are lost and repeated. Only a new name is a new visit. When an episode *ended*
decides nothing, because that is part of a record.

`patience.py` and `fixed_order.py` define when blocks close; `docs/proofs/arrivals.md` derives the joint
differential privacy of `Agent` from them.
"""

import abc
import bisect
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Int

from privrl.privacy.canonical_ids import canonical_id
from privrl.privacy.continual.participation import ONCE, Participation
from privrl.privacy.store.errors import QueueFullError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import PairingError
from privrl.studies.live.randomisation import Randomisation
from privrl.studies.live.visit_limits import Visits

QUEUE = "people"
_TOKEN = 16  # bytes of a ticket's token
_REMEMBERED = 10_000  # places whose content is kept in memory
_MOST = 2**31  # people of a trial, with those who come after its end and are not counted


class BehindError(Exception):
    """A block has closed that the caller does not know of yet. Nothing was written: catch up and ask again."""


@dataclass(frozen=True)
class Ticket:
    """A person's place in a study, issued when they arrive; pass it back unchanged.

    >>> study = {"world": "riverswim", "epsilon": 1, "delta": 1e-6, "num_users": 1_000, "patience": 3600}
    >>> with privrl.ReleaseStore("study.db") as store:
    ...     agent = privrl.Agent("dp-ucbvi", store=store, **study)
    ...     ticket = agent.begin_episode("ana")
    ...     (ticket.number, ticket.plan), agent.begin_episode("ana") == ticket
    ((0, 0), True)

    Attributes:
        number: the number of people who arrived before.
        plan: the number of the plan that was current at arrival; the person acts on it for the whole episode.
        token: random, so that a ticket can neither be guessed nor taken from a copy of the store.
        visit: which later visit of the person with this number, as a hash of its name; empty for the first visit.
        arm: in a trial, what the person gets, for all visits; `None` in other studies.
    """

    number: int
    plan: int
    token: str = field(repr=False, compare=False)
    visit: str = field(default="", repr=False)
    arm: int | None = None

    @property
    def key(self) -> str:
        """The key under which the record of this ticket is counted, once."""
        return f"{self.number}/{self.visit}" if self.visit else str(self.number)

    def to_json(self) -> dict[str, object]:
        """Returns the ticket as a JSON object."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}

    @classmethod
    def from_json(cls, content: Mapping[str, str | int]) -> "Ticket":
        """Reads the ticket that `to_json` wrote."""
        arm = content.get("arm")
        return cls(
            int(content["number"]),
            int(content["plan"]),
            str(content["token"]),
            str(content.get("visit", "")),
            None if arm is None else int(arm),
        )


class AbstractArrivals(abc.ABC):
    """The queue of one study, in its store: who has arrived, and which blocks of them are closed.

    Arguments:
        store: where places are kept.
        ends: the public ends of the blocks.
        participation: how many visits of one person count, and how far apart.
        randomisation: in a trial, draws the arm of each person.

    Attributes:
        plan_delay: the number of blocks by which plans lag behind.
    """

    def __init__(
        self,
        store: ReleaseStore,
        ends: Int[np.ndarray, " B"],
        participation: Participation = ONCE,
        randomisation: Randomisation | None = None,
    ) -> None:
        self._store, self._participation, self._randomisation = store, participation, randomisation
        self._ends: list[int] = ends.tolist()
        self.plan_delay = 0
        self._visits = Visits(store, participation)
        self._remembered: dict[int, dict[str, Any]] = {}
        self._connections = store.connections

    @property
    @abc.abstractmethod
    def settings(self) -> dict[str, object]:
        """The settings on which every process that works on the study must agree."""

    @property
    @abc.abstractmethod
    def assumption(self) -> str:
        """What the guarantee assumes about arrivals and what it does not cover, for the certificate."""

    @abc.abstractmethod
    def closes(self, block: int) -> bool:
        """Whether no contribution to this block is accepted any more."""

    @abc.abstractmethod
    def closing(self, block: int) -> float | None:
        """The public time at which a block closes, if it is known."""

    def closed_at(self, block: int) -> float | None:
        """The public time at which a closed block did, if it is known."""
        return self.closing(block)

    @abc.abstractmethod
    def deadline(self, ticket: Ticket) -> float | None:
        """The public time until which a ticket's record is accepted, if there is one; its block closes no sooner."""

    @abc.abstractmethod
    def _key(self, user: str, visit: str) -> str:
        """The key of a place: a person, or a visit of a person."""

    @abc.abstractmethod
    def _moment(self, closed: int) -> dict[str, object]:
        """What is kept with the places of all people who arrive in one transaction: its time, if time matters."""

    @abc.abstractmethod
    def _content(self, number: int, closed: int, user: str, visit: str) -> dict[str, object]:
        """What else is kept with one new place, given the number of closed blocks."""

    @abc.abstractmethod
    def counts(self, ticket: Ticket) -> bool:
        """Whether the record of a ticket is added to the sums; if not, the person is served anyway. Sensitive."""

    @property
    def num_arrived(self) -> int:
        """The number of tickets issued."""
        return self._store.count_places(QUEUE)

    @property
    def latest(self) -> float | None:
        """The time of the latest first arrival; `None` if there was none, or if times do not matter."""
        place = self._place(self.num_arrived - 1)
        return None if place is None else place.get("time")

    @property
    def num_places(self) -> int:
        """The number of people who can take part."""
        return self._ends[-1]

    @property
    def _most(self) -> int:
        """The largest number of tickets. After a trial has ended people are served and not counted."""
        return self.num_places if self._randomisation is None else _MOST

    def end(self, block: int) -> int:
        """The number of people in all blocks up to this one."""
        return self._ends[block]

    def size(self, block: int) -> int:
        """The number of people in a block."""
        return self.end(block) - self._begin(block)

    def block(self, ticket: Ticket) -> int:
        """The block of a ticket."""
        return self._block_of(ticket.number)

    def has_block(self, ticket: Ticket) -> bool:
        """Whether a ticket is in a block; people who come after all places of a trial are taken are in none."""
        return self.block(ticket) < len(self._ends)

    def _block_of(self, number: int) -> int:
        return bisect.bisect_right(self._ends, number)

    def sum_name(self, block: int, plan: int) -> str:
        """The name of the sum over the people of a block who acted on one plan."""
        return f"block {block}, plan {plan}"

    def arrive_all(
        self, came: Sequence[tuple[object, object]], closed: int, groups: Sequence[str] | None = None
    ) -> list[Ticket]:
        """Issues tickets for several ids with the names of their visits, in this order; all of them are stored before
        they are returned, or none. The caller knows that `closed` blocks are closed.

        Arguments:
            groups: in a trial with subgroups, the group of each id. The one that was given at the first arrival is
                kept.

        Raises `BehindError` if more blocks are closed, and `PairingError` if no place is left.
        """
        names = [(canonical_id(user).decode(), canonical_id(visit).decode()) for user, visit in came]
        return self._arrive(names, closed, [""] * len(names) if groups is None else groups)

    def _arrive(self, names: Sequence[tuple[str, str]], closed: int, groups: Sequence[str]) -> list[Ticket]:
        made: dict[bytes, dict[str, Any]] = {}  # what need not be decoded; tokens are random, so none is another's

        def made_of(new: Sequence[int], first: int) -> list[bytes]:
            if self.closes(closed):
                raise BehindError
            shared = {"plan": self.plan_after(closed), **self._moment(closed)}
            random = secrets.token_hex(_TOKEN * len(new))  # at once: the system is asked once
            tokens = (random[at : at + 2 * _TOKEN] for at in range(0, len(random), 2 * _TOKEN))
            own = (self._content(number, closed, *names[at]) for number, at in enumerate(new, first))
            places = [{**shared, "token": token, **part} for token, part in zip(tokens, own, strict=True)]
            if self._randomisation is not None:
                for number, (at, place) in enumerate(zip(new, places, strict=True), first):
                    place |= self._assign(self._randomisation, number, closed, first)
                    place |= {"group": groups[at]} if groups[at] else {}
            contents = _encoded(shared, places)
            made.update(zip(contents, places, strict=True))
            return contents

        most = self._most
        try:
            keys = [self._key(*name) for name in names]
            found = self._store.arrive_all(QUEUE, keys, at_most=most, contents=made_of)
        except QueueFullError as error:
            raise PairingError(
                f"All {most} places are taken; the budget is spent on these people. Nothing was recorded. A new study "
                "needs a new budget, and new people."
            ) from error
        places = {number: made.get(kept) or json.loads(kept) for number, kept in found}
        self._remember(places)
        return [
            Ticket(number, places[number]["plan"], places[number]["token"], arm=places[number].get("arm"))
            for number, _ in found
        ]

    def _assign(self, randomisation: Randomisation, number: int, closed: int, first: int) -> dict[str, object]:
        """The arm of a new person, given the first new number of this commit."""
        block = self._block_of(number)
        if block == len(self._ends):
            return randomisation.draw(number, None, closed, closed).to_json()
        begun = closed if self._begin(block) >= first else self.begun(block)
        return randomisation.draw(number, block, closed, begun).to_json()

    def begun(self, block: int) -> int:
        """The number of the plan that was in force when the first person of a block arrived."""
        return int(self._kept(self._begin(block))["plan"])

    def assigned(self, block: int) -> list[tuple[int, str]]:
        """The arms and the groups of the people of a full block who count. Public."""
        numbers = range(self._begin(block), self.end(block))
        self._recall(numbers)
        return [self.assignment(number) for number in numbers if self._kept(number).get("counts", True)]

    def assignment(self, number: int) -> tuple[int, str]:
        """The arm and the group of a person of a trial."""
        place = self._kept(number)
        return place["arm"], place.get("group", "")

    def all_issued(self, tickets: Sequence[Ticket]) -> list[bool]:
        """Which of these are tickets of this study. Their numbers must be whole numbers in type and value, because a
        person's key is made of them.
        """
        formed = [self._is_formed(ticket) for ticket in tickets]
        self._recall([ticket.number for ticket, fine in zip(tickets, formed, strict=True) if fine])
        return [fine and self._is_issued(ticket) for ticket, fine in zip(tickets, formed, strict=True)]

    def _is_formed(self, ticket: Any) -> bool:
        if type(ticket) is not Ticket:
            return False
        if not (type(ticket.number) is type(ticket.plan) is int and type(ticket.token) is type(ticket.visit) is str):
            return False
        return 0 <= ticket.number < self._most and ticket.token.isascii() and ticket.visit.isascii()

    def _is_issued(self, ticket: Ticket) -> bool:
        known = self._issued(ticket)
        if known is None or known[0] != ticket.plan or self._kept(ticket.number).get("arm") != ticket.arm:
            return False
        return hmac.compare_digest(known[1].encode(), ticket.token.encode())

    def _issued(self, ticket: Ticket) -> tuple[int, str] | None:
        """The plan and the token that were issued under the number and the visit of a ticket."""
        place = None if ticket.visit else self._place(ticket.number)
        return None if place is None else (place["plan"], place["token"])

    def check(self, ticket: Ticket) -> None:
        """Refuses what is not a ticket of this study."""
        if not self.all_issued([ticket])[0]:
            raise ValueError(
                "This is not a ticket of this study. Pass what `begin_episode` returned, or `Ticket.from_json` of it."
            )

    def summed(self, block: int) -> list[int]:
        """The plans on which people of a full block may have acted. Public, so it includes plans on which none of them
        did.

        Plan numbers never decrease: a person who returns while a block fills acts on a plan between that of the
        first arrival before the block and that of its last.
        """
        plans = self.plans(block)
        if self._participation.times == 1:
            return list(plans)
        begin = self._begin(block)
        return list(range(self._kept(begin - 1)["plan"] if begin else 0, max(plans) + 1))

    def plans(self, block: int) -> dict[int, int]:
        """The number of first arrivals of a full block on each plan. Plan numbers never decrease, so a few places are
        enough to find it.
        """
        begin, end = self._begin(block), self.end(block)
        counts: dict[int, int] = {}
        while begin < end:
            plan, low, high = self._kept(begin)["plan"], begin + 1, end
            while low < high:
                middle = (low + high) // 2
                low, high = (middle + 1, high) if self._kept(middle)["plan"] == plan else (low, middle)
            counts[plan] = low - begin
            begin = low
        return counts

    def plan_after(self, closed: int) -> int:
        """The number of the plan in force after this number of closed blocks. Nothing delays the last plan, because no
        block closes after its own.
        """
        return closed if closed == len(self._ends) else max(0, closed - self.plan_delay)

    def _begin(self, block: int) -> int:
        return self.end(block - 1) if block else 0

    def _place(self, number: int) -> dict[str, Any] | None:
        """What is kept with a place. It never changes, so some places are cached."""
        self._recall([number])
        return self._remembered.get(number)

    def _recall(self, numbers: Sequence[int]) -> None:
        """Reads what is kept with several places at once."""
        if self._connections != self._store.connections:  # another server, which may lack the last arrivals
            self.forget()
            self._connections = self._store.connections
        missing = [number for number in numbers if number not in self._remembered]
        if missing:
            self._remember({number: json.loads(kept) for number, kept in self._store.places(QUEUE, missing).items()})

    def forget(self) -> None:
        """Clears the cache of places, some of which may have been rolled back with their transaction."""
        self._remembered.clear()

    def _remember(self, places: dict[int, dict[str, Any]]) -> None:
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        self._remembered.update(places)

    def _kept(self, number: int) -> dict[str, Any]:
        place = self._place(number)
        assert place is not None  # only those who have arrived are asked for
        return place


def _encoded(shared: dict[str, object], places: Sequence[dict[str, object]]) -> list[bytes]:
    """Encodes places as JSON. Most have nothing of their own but a token in hexadecimal digits, which is joined to
    what they share.
    """
    start = json.dumps(shared)[:-1]
    return [
        (f'{start}, "token": "{place["token"]}"}}' if len(place) == len(shared) + 1 else json.dumps(place)).encode()
        for place in places
    ]
