"""People in order of arrival: tickets, the blocks they belong to, and the moment at which a block closes.

A person is numbered when they arrive. The number, the number of the plan that is out at that moment and, with
`Patience`, the time are written to the store before the ticket is handed out; the same id always gets the same ticket,
and it is that person's only place. A block is a range of numbers with public ends, so whose terms are added up in which
release does not depend on how long anybody stays.

**Formal guarantee.** With `Patience`, number, plan and closing times are functions of the arrivals (who came, and when)
and of the clock alone: no record has any influence on them, neither what it says nor when it comes. Closing is checked
at each call, inside the transaction that arrives or contributes, and gives what a timer would: a contribution is
accepted before the closing time of its block and refused from then on, whether or not somebody has made the release
yet. With `FixedOrder` the moment of closing does depend on records, and nothing else does, as long as the sequence of
people is fixed in advance. `docs/design.md` derives the joint differential privacy of `Agent` from this.
"""

import abc
import hmac
import json
import math
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
from jaxtyping import Int

from privrl.privacy.identity import canonical_id
from privrl.privacy.store.errors import QueueFullError
from privrl.privacy.store.store import ReleaseStore
from privrl.privacy.trust.privatizers import PairingError

_QUEUE = "people"
_REMEMBERED = 10_000  # places whose content is kept in memory


class BehindError(Exception):
    """A block has closed that the caller does not know of yet: catch up and ask again. Nothing was written."""


@dataclass(frozen=True)
class Ticket:
    """A person's place in a study, handed out when they arrive; pass it back as it is.

    Attributes:
        number: how many people arrived before.
        plan: the number of the plan that was out then, on which this person acts for their whole stay.
        token: random, so that nobody can guess another person's ticket, or use one of a copy of the store.
    """

    number: int
    plan: int
    token: str = field(repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Ticket":
        """The ticket that `to_json` wrote."""
        return cls(int(content["number"]), int(content["plan"]), str(content["token"]))


class AbstractArrivals(abc.ABC):
    """The queue of one study, in its store: who has arrived, and which blocks of them are closed.

    Arguments:
        store: where places are kept.
        ends: the public ends of the blocks.
    """

    def __init__(self, store: ReleaseStore, ends: Int[np.ndarray, " B"]) -> None:
        self._store, self._ends = store, ends
        self._remembered: dict[int, dict[str, Any]] = {}

    @property
    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """What every process that works on the study must agree on."""

    @property
    @abc.abstractmethod
    def assumption(self) -> str:
        """What the guarantee assumes about arrivals and what it does not cover, for the certificate."""

    @abc.abstractmethod
    def closes(self, block: int) -> bool:
        """Whether no contribution to this block is accepted any more."""

    @abc.abstractmethod
    def closing(self, block: int) -> float | None:
        """When a block closes, where that is known; a public time."""

    @abc.abstractmethod
    def deadline(self, ticket: Ticket) -> float | None:
        """Until when the record of a ticket is waited for, where that is a public time; its block closes no sooner."""

    @abc.abstractmethod
    def _content(self, number: int, closed: int) -> dict[str, Any]:
        """What is kept with a new place when so many blocks are closed."""

    @property
    def num_arrived(self) -> int:
        """How many tickets were handed out."""
        return self._store.arrived(_QUEUE)

    @property
    def num_places(self) -> int:
        """How many people can take part."""
        return int(self._ends[-1])

    def end(self, block: int) -> int:
        """How many people there are in all blocks up to this one."""
        return int(self._ends[block])

    def size(self, block: int) -> int:
        """How many people a block has."""
        return self.end(block) - self._begin(block)

    def block(self, ticket: Ticket) -> int:
        """The block of a ticket."""
        return int(np.searchsorted(self._ends, ticket.number, side="right"))

    def sum_name(self, block: int, plan: int) -> str:
        """Where the terms of those people of a block are added up who acted on one plan."""
        return f"block {block}, plan {plan}"

    def arrive(self, user: Any, closed: int) -> Ticket:
        """The ticket of an id, written before it is returned. `closed` blocks are known to be closed.

        Raises `BehindError` if there are more, and `PairingError` if there is no place.
        """

        def content(number: int) -> bytes:
            if self.closes(closed):
                raise BehindError
            kept = {"plan": closed, "token": secrets.token_hex(16)} | self._content(number, closed)
            return json.dumps(kept).encode()

        most = self.num_places
        try:
            number, kept = self._store.arrive(_QUEUE, canonical_id(user).decode(), at_most=most, content=content)
        except QueueFullError as error:
            raise PairingError(
                f"All {most} places are taken; the budget is spent on these people. Nothing was recorded. A new study "
                "needs a new budget, and new people."
            ) from error
        place = self._remember(number, kept)
        return Ticket(number, place["plan"], place["token"])

    def issued(self, ticket: Ticket) -> bool:
        """Whether this is a ticket of this study. Its numbers are whole numbers and nothing that only equals them:
        a person's key is made of them."""
        if type(ticket) is not Ticket:
            return False
        if not (type(ticket.number) is type(ticket.plan) is int and type(ticket.token) is str):
            return False
        place = self._place(ticket.number) if 0 <= ticket.number < self.num_places else None
        if place is None or place["plan"] != ticket.plan:
            return False
        return hmac.compare_digest(place["token"].encode(), ticket.token.encode())

    def check(self, ticket: Ticket) -> None:
        """Refuses what is not a ticket of this study."""
        if not self.issued(ticket):
            raise ValueError(
                "This is not a ticket of this study. Pass what `begin_episode` returned, or `Ticket.from_json` of it."
            )

    def plans(self, block: int) -> dict[int, int]:
        """How many people of a full block acted on which plan. Plans never go back, so a few places tell all."""
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

    def _begin(self, block: int) -> int:
        return self.end(block - 1) if block else 0

    def _place(self, number: int) -> dict[str, Any] | None:
        """What is kept with a place. It never changes, so some are remembered."""
        place = self._remembered.get(number)
        if place is None and (kept := self._store.place(_QUEUE, number)) is not None:
            return self._remember(number, kept)
        return place

    def forget(self) -> None:
        """Forgets what was read of places, some of which may have been given up with their transaction."""
        self._remembered.clear()

    def _remember(self, number: int, kept: bytes) -> dict[str, Any]:
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        place = self._remembered[number] = json.loads(kept)
        return place

    def _kept(self, number: int) -> dict[str, Any]:
        place = self._place(number)
        assert place is not None  # only those who have arrived are asked for
        return place


class Patience(AbstractArrivals):
    """A block closes a public time after its last person arrived, whoever has finished; people come when they come.

    Arguments:
        patience: seconds: the longest stay that is waited for. Whoever has not ended then counts as an empty record.
        clock: seconds; it may be any clock that does not depend on records, by default the computer's. If it is set
            back, nothing opens again.
    """

    def __init__(
        self,
        store: ReleaseStore,
        ends: Int[np.ndarray, " B"],
        patience: float | timedelta,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(store, ends)
        self._patience = patience.total_seconds() if isinstance(patience, timedelta) else float(patience)
        self._clock = clock
        if not 0.0 < self._patience < math.inf:
            raise ValueError(
                f"`patience` is {self._patience} seconds; it must be positive and finite: the longest stay that is "
                "waited for, chosen without looking at records."
            )

    @property
    def settings(self) -> dict[str, Any]:
        return {"patience": self._patience}

    @property
    def assumption(self) -> str:
        return (
            f"arrivals: a block is released {self._patience:g} seconds after its last person arrived, whoever has "
            "finished; a record that comes later counts as empty, and how many were counted is secret. Who arrives and "
            "when may depend on published plans and on the world outside, not on records: where people can only begin "
            "because somebody else has finished, what their arrival tells is not covered. That somebody took part and "
            "when they arrived is public"
        )

    def closing(self, block: int) -> float | None:
        last = self._place(self.end(block) - 1) if block < len(self._ends) else None
        return None if last is None else last["time"] + self._patience

    def deadline(self, ticket: Ticket) -> float | None:
        return self._kept(ticket.number)["time"] + self._patience

    def closes(self, block: int) -> bool:
        closing = self.closing(block)
        if closing is None:
            return False
        last = self._kept(self.end(block) - 1)["plan"]
        return self._now() >= closing or self._store.sealed(self.sum_name(block, last))

    def _content(self, number: int, closed: int) -> dict[str, Any]:
        # Not before a block that has closed, even if the clock was set back since.
        earlier = self.closing(closed - 1) if closed else None
        return {"time": self._now() if earlier is None else max(self._now(), earlier)}

    def _now(self) -> float:
        """The time, not before that of the last arrival."""
        latest = self._place(self.num_arrived - 1)
        return self._clock() if latest is None else max(self._clock(), latest["time"])


class FixedOrder(AbstractArrivals):
    """A block closes when all its people have ended, and nobody of the next block begins before.

    Only where the sequence of people is fixed in advance: a simulation, or a public list.
    """

    @property
    def settings(self) -> dict[str, Any]:
        return {"fixed order": True}

    @property
    def assumption(self) -> str:
        return (
            "arrivals: the sequence of people is assumed to be fixed in advance (a simulation, a public list), and "
            "every record to arrive and to be readable: a block is released when all its people have ended, so nobody "
            "may be refused, moved or replaced because another stays, and the moment of a release is not covered. A "
            "live queue needs `patience`"
        )

    def closing(self, block: int) -> None:
        del block  # when everybody has ended

    def deadline(self, ticket: Ticket) -> None:
        del ticket  # there is none

    def closes(self, block: int) -> bool:
        return block < len(self._ends) and self._store.count(self.sum_name(block, block)) == self.size(block)

    def _content(self, number: int, closed: int) -> dict[str, Any]:
        if number >= self.end(closed):
            raise PairingError(
                f"With `fixed_order=True` person {number} acts on plan {closed + 1}, which is not out before everybody "
                f"of block {closed} has ended. End their episodes first (an episode of length 0 where nothing is "
                "known). People who come and go need `patience`."
            )
        return {}
