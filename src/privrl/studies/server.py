"""`Server`: publishes plans with tickets, adds up randomised reports once each, and never sees a trajectory.

Everything it knows is in its store, so several servers may work on one store side by side, in one process or many.
"""

import functools
import hashlib
import hmac
import os
import struct
from collections.abc import Iterator

import numpy as np
from jaxtyping import Int64, PRNGKeyArray

from privrl.contracts.learner import AbstractOnlineLearner
from privrl.privacy.noise.sources import DEVICES
from privrl.privacy.store.errors import ConflictError, SumFullError
from privrl.privacy.store.store import ReleaseStore
from privrl.privacy.trust.privatizers import Local, PairingError
from privrl.studies.local_plans import LocalPlans, local_study
from privrl.studies.result import Result
from privrl.studies.wire import Broadcast, Message, MessageError

_RANGE = 1_000  # tickets that a server takes from the store at once


class Server:
    """Publishes plans, absorbs messages, and never sees a trajectory.

    Arguments:
        learner, privatizer: the algorithm, and `Local(...)`.
        num_users: the public number of people, which fixes the schedule of plans.
        key: how ties between equally good actions are broken; leave it out for fresh randomness.
        store: where reports are added up. A message is acknowledged after it is on disk. Any number of servers with
            the same arguments may use one store, one after another or at once; without one, this server's sums end with
            it.

    **Formal guarantee.** An acknowledged report is in the sums exactly once, whichever server acknowledged it and
    however often it was sent. No two servers give out the same ticket, and nobody can make one up (an HMAC-SHA256 over
    study, number and plan, under a key in the store, of 128 bits). Every report lies in the public range of its
    channel before it is counted: one report moves no sum by more than an honest one can. What a
    report reveals is bounded on the device, whatever a server does.
    """

    def __init__(
        self,
        learner: AbstractOnlineLearner,
        privatizer: Local,
        *,
        num_users: int,
        key: PRNGKeyArray | None = None,
        store: ReleaseStore | None = None,
    ) -> None:
        self._study, channels = local_study(learner, privatizer)
        self._store = ReleaseStore.in_memory() if store is None else store
        self._num_users = num_users
        self._reports = {name: channel.reports() for name, channel in channels.items()}
        for name, reports in self._reports.items():
            if num_users * reports.largest >= 2**63:
                raise PairingError(
                    f"Sums of `{name}` over {num_users} people do not fit in 64 bits at this noise. Raise the budget, "
                    "or split the people among several studies."
                )
        self._study.open(self._store, "server", {}, users=num_users)
        self._identity = self._store.fact("study", lambda: os.urandom(16))
        self._plans = LocalPlans(learner, self._reports, num_users, self._store, key)
        self._tickets: Iterator[int] = iter(())

    @property
    def num_reports(self) -> int:
        """How many messages were absorbed, by all servers on this store."""
        self._plans.refresh()
        return self._plans.num_reports

    def broadcast(self) -> Broadcast:
        """A new ticket with the current plan."""
        self._plans.refresh()
        if self._plans.finished:
            raise MessageError(f"All {self._num_users} users have reported. Start a new server for more.")
        ticket, number = self._next_ticket(), len(self._plans) - 1
        return Broadcast(self._identity, ticket, number, self._mac(ticket, number), self._plans[number])

    @functools.cached_property
    def message_bytes(self) -> int:
        """The length of every message of this study; whoever carries messages need not accept longer ones."""
        parts = tuple(np.zeros(reports.shape, np.int64) for reports in self._reports.values())
        return len(Message(self._identity, 0, 0, bytes(16), parts).to_bytes())

    def absorb(self, message: Message | bytes) -> bool:
        """Counts a message once; True if it is new, False if the same one was counted before: both mean it is kept.

        A malformed or unknown one, or another one under a ticket that has reported, is refused and changes nothing.
        """
        if isinstance(message, bytes):
            if len(message) > self.message_bytes:
                raise MessageError(f"A message of this study has {self.message_bytes} bytes; got {len(message)}.")
            message = Message.from_bytes(message)
        if message.study != self._identity:
            raise MessageError("The message belongs to another study.")
        if not hmac.compare_digest(message.mac, self._mac(message.ticket, message.plan)):
            raise MessageError("The message answers a ticket or a plan that was not issued.")
        self._plans.refresh()  # the ticket may be of another server that is further
        if message.plan >= len(self._plans):
            raise MessageError("The message answers a plan that this store has forgotten: it is an older copy.")
        units, content = self._units(message)[None], message.to_bytes()
        while True:
            try:
                (new,) = self._store.contribute(
                    self._plans.sum_name,
                    [str(message.ticket)],
                    units,
                    scope="reports",
                    at_most=self._plans.size,
                    marks=[content],
                )
            except SumFullError as error:
                if not self._plans.refresh():
                    raise MessageError(f"All {self._num_users} users have reported.") from error
            except ConflictError as error:
                raise MessageError("This ticket has already reported something else; a person reports once.") from error
            else:
                self._plans.refresh()
                return bool(new)

    def result(self) -> Result:
        """The current policy and the certificate of one user's report."""
        users = self.num_reports
        made = {name: (min(1, users), reports.law) for name, reports in self._reports.items()}
        certificate = self._study.certificate(DEVICES, {"messages per user": 1}, made=made)
        return Result(self._plans[len(self._plans) - 1].policy, certificate, {"users": users, "episodes": users})

    def _next_ticket(self) -> int:
        ticket = next(self._tickets, None)
        if ticket is None:
            self._tickets = iter(self._store.reserve_range("tickets", _RANGE))
            ticket = next(self._tickets)
        return ticket

    def _mac(self, ticket: int, plan: int) -> bytes:
        content = self._identity + struct.pack("<QI", ticket, plan)
        return hmac.digest(self._secret, content, hashlib.sha256)[:16]

    @functools.cached_property
    def _secret(self) -> bytes:
        """The key of tickets; a purged store has none, and hands out no more."""
        return self._store.secret("tickets")

    def _units(self, message: Message) -> Int64[np.ndarray, " n"]:
        """What a message adds to the sums, refused unless a device could have sent it."""
        if len(message.parts) != len(self._reports):
            raise MessageError(f"A message has {len(self._reports)} parts; got {len(message.parts)}.")
        plan, units = self._plans[message.plan], []
        for reports, part in zip(self._reports.values(), message.parts, strict=True):
            try:
                reports.check(part)
            except ValueError as error:
                raise MessageError(str(error)) from error
            units.append(reports.units(part, plan, message.ticket))
        return np.concatenate(units)
