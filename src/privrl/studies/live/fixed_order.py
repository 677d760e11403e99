"""People in an order that is fixed in advance: a block closes when all its people have ended.

**Formal guarantee.** If the sequence of visits is fixed in advance (a simulation, or a public list), only the
moment of closing depends on records. Every visit of the list has a place, whether or not it counts, so no person
moves another.
"""

import functools
from collections.abc import Callable

from privrl.privacy.canonical_ids import keyed_hash
from privrl.privacy.trust.privatizers import PairingError
from privrl.studies.live.arrivals import AbstractArrivals, Ticket


class FixedOrder(AbstractArrivals):
    """Closes a block when all its people have ended; people of the next block begin only then.

    Use it only if the sequence of people is fixed in advance: a simulation, or a public list.
    """

    @property
    def settings(self) -> dict[str, object]:
        return {"fixed order": True}

    @property
    def assumption(self) -> str:
        whose = "people" if self._participation.times == 1 else "visits, and whose each of them is,"
        return (
            f"arrivals: the sequence of {whose} is assumed to be fixed in advance (a simulation, a public list), and "
            "every record to arrive and to be readable: a block is released when all its people have ended, so the "
            "length of one person's episode must not refuse, move or replace another person, and the moment of a "
            "release is not covered. A live queue needs `patience`"
        )

    def closing(self, block: int) -> None:
        del block  # it closes when all its people have ended

    def deadline(self, ticket: Ticket) -> None:
        del ticket  # there is no deadline

    def closes(self, block: int) -> bool:
        return block < len(self._ends) and self._store.count(self.sum_name(block, block)) == self.size(block)

    def counts(self, ticket: Ticket) -> bool:
        return self._kept(ticket.number).get("counts", True)

    def _key(self, user: str, visit: str) -> str:
        if not visit:
            return user
        if self._participation.times == 1:
            raise PairingError(
                "A `visit` is named, and one episode of each person counts. Nothing was recorded. Give "
                "`max_episodes_per_unit`, or leave `visit` out."
            )
        return self._secret(len(user).to_bytes(8, "big") + user.encode() + visit.encode()).hex()

    @functools.cached_property
    def _secret(self) -> Callable[[bytes], bytes]:
        """Makes keys of visits that differ from the id of every person."""
        return keyed_hash(self._store.secret("visits"), "visit")

    def _moment(self, closed: int) -> dict[str, object]:
        return {}  # time does not count

    def _content(self, number: int, closed: int, user: str, visit: str) -> dict[str, object]:
        if number >= self.end(closed):
            raise PairingError(
                f"With `fixed_order=True` person {number} acts on plan {closed + 1}, which is published when all "
                f"people of block {closed} have ended. End their episodes first (with length 0 if nothing is known). "
                "Use `patience` for people who come and go."
            )
        if self._participation.times > 1 and not self._visits.count(user, self._block_of(number)):
            return {"counts": False}
        return {}
