"""`Server`: issues tickets and plans, counts each randomised report once, and never sees a trajectory.

The store holds everything it knows, so several servers may work on one store at the same time, in one process or
many. Tickets are not stored, and reports are stored as sums, so a server starts in time that does not depend on
their number.
"""

import functools
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from privrl.contracts.learner import AbstractLearner
from privrl.privacy.store.errors import ConflictError, SumFullError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.privacy.trust.symbol_channels import SymbolReports
from privrl.recipes.pairing import AnyWorld, BudgetArguments
from privrl.studies.keys import KeyLike, optional_key
from privrl.studies.local.document import document_of, identity_of
from privrl.studies.local.local_plans import LocalPlans, local_pair, local_study
from privrl.studies.local.wire import Broadcast, Message, MessageError, SignedTicket, plan_to_bytes
from privrl.studies.results.result import Result

_RANGE = 1_000  # tickets that a server takes from the store at once
_SCOPE = "reports"
_MONTH = 30 * 86_400.0
_MAC = 16


class _Checked(NamedTuple):
    """A report that may be counted: its position in the batch, the key under which it counts, and its bytes."""

    position: int
    message: Message
    content: bytes

    @property
    def key(self) -> str:
        return self.message.ticket.key


class Server:
    """Publishes plans, counts messages, and never sees a trajectory.

    >>> study = {"world": "riverswim", "epsilon": 1}
    >>> server = privrl.Server("ldp-ucbvi", num_users=100, key=0, **study)
    >>> world = privrl.envs.make("riverswim")
    >>> people = world.sample(world.uniform_policy(), 1, jax.random.key(0))
    >>> record = jax.tree.map(lambda x: x[0], people)
    >>> message = privrl.Client("ldp-ucbvi", key=1, **study).report(record, server.broadcast())
    >>> server.absorb(message), server.num_reports
    (True, 1)

    Arguments:
        learner: an online learner, or the name of a local recipe such as "ldp-ucbvi", with `world` and a budget.
        privatizer: with a learner object: `Local(...)`.
        world: with the name of a recipe: the environment or its name, or a `privrl.recipes.Problem`.
        epsilon, delta, rho: with the name of a recipe: the budget.
        num_users: the public number of people (of reports, if people report several visits), which fixes the
            schedule of plans. Noise does not depend on it, so it may be generous.
        max_episodes_per_unit: the number of visits of one person that are reported, each with an equal share of
            epsilon; devices count them.
        key: how ties between equally good actions are broken; leave it out for fresh randomness.
        store: where reports are summed. A message is acknowledged after it is on disk. Any number of servers with
            the same arguments may use one store, one after another or at once. Without a store, this server's sums
            end with it.
        valid: the number of seconds for which a ticket may be answered.
        clock: seconds since 1970.

    **Formal guarantee.** An acknowledged report is in the sums exactly once, whichever server acknowledged it and
    however often it was sent. No two servers issue the same ticket, and a ticket cannot be forged (an HMAC-SHA256
    over study, number, plan and expiry, under a key in the store, of 128 bits, compared in constant time). Every
    report lies in the public range of its channel before it is counted, so one report moves no sum by more than an
    honest one can. What a report reveals is bounded on the device, whatever a server does.

    Raises:
        ValueError: learner and privatizer do not fit together, or an argument is out of its range.
        MessageError: a message is refused, or all people have reported; `reason` names why.
    """

    def __init__(
        self,
        learner: str | AbstractLearner,
        privatizer: AbstractPrivatizer | None = None,
        *,
        num_users: int,
        world: str | AnyWorld | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        key: KeyLike | None = None,
        store: ReleaseStore | None = None,
        valid: float = _MONTH,
        clock: Callable[[], float] = time.time,
        max_episodes_per_unit: int = 1,
    ) -> None:
        learner, privatizer = local_pair(learner, privatizer, world, BudgetArguments(epsilon, delta, rho))
        self._study, channels = local_study(learner, privatizer, max_episodes_per_unit)
        self._store = ReleaseStore.in_memory() if store is None else store
        self._num_users, self._valid, self._clock = num_users, valid, clock
        self._reports = {name: channel.reports() for name, channel in channels.items()}
        self._checks = [reports.checker() for reports in self._reports.values()]
        for name, reports in self._reports.items():
            if num_users * reports.largest >= 2**63:
                raise PairingError(
                    f"Sums of `{name}` over {num_users} people do not fit in 64 bits at this noise. Raise the budget, "
                    "or split the people among several studies."
                )
        if self._store.has_fact("study"):
            raise PairingError(
                "This study was begun with an older format of tickets and messages. Finish it with the version of "
                "privrl that began it: under a new name its people could report twice."
            )
        self._study.open(self._store, "server", {}, users=num_users)
        document = functools.partial(
            document_of, learner, self._reports, num_users, max_episodes_per_unit=max_episodes_per_unit
        )
        self.document = self._store.fact("document", lambda: document(os.urandom(16).hex()))
        """The public document of the study, in JSON; its SHA-256 is `study`."""
        if self.document != document(json.loads(self.document)["nonce"]):
            raise PairingError("The document of this study was written by another version of privrl. Go on with that.")
        self.study = identity_of(self.document)
        self._plans = LocalPlans(learner, self._reports, num_users, self._store, optional_key(key))
        self._numbers: Iterator[int] = iter(())
        self._connections = self._store.connections

    @property
    def num_reports(self) -> int:
        """The number of messages counted by all servers on this store."""
        self._plans.refresh()
        return self._plans.num_reports

    @property
    def plans(self) -> LocalPlans:
        """Every plan so far."""
        self._plans.refresh()
        return self._plans

    def ticket(self) -> SignedTicket:
        """Issues a ticket, which permits one person to report. Only a range of numbers is written, once in a while."""
        self._plans.refresh()
        if self._plans.finished:
            raise MessageError(f"All {self._num_users} users have reported. Start a new server for more.", "full")
        number = next(self._numbers, None)
        if number is None or self._connections != self._store.connections:  # a replica may lack this range
            self._numbers, self._connections = iter(self.reserve()), self._store.connections
            number = next(self._numbers)
        return self.signed(number, len(self._plans) - 1)

    def reserve(self) -> range:
        """Reserves unique numbers for tickets; they are on disk before they are returned."""
        return self._store.reserve_range("tickets", _RANGE)

    def signed(self, number: int, plan: int) -> SignedTicket:
        """Signs the ticket of a reserved number for a published plan. It does not read the store, so a service may
        issue tickets in a thread that does not own the store.
        """
        blank = SignedTicket(self.study, number, plan, int(self._clock() + self._valid), bytes(_MAC))
        return SignedTicket(blank.study, number, plan, blank.expires, self._mac(blank))

    def plan(self, number: int) -> bytes:
        """Plan `number` as it is sent; it never changes."""
        if number >= len(self._plans):
            self._plans.refresh()
        if not 0 <= number < len(self._plans):
            raise MessageError(f"There is no plan {number} yet; the newest is {len(self._plans) - 1}.", "unknown-plan")
        return plan_to_bytes(self.study, number, self._plans[number])

    def broadcast(self) -> Broadcast:
        """Returns a new ticket with the plan that it names, for a client in this process."""
        ticket = self.ticket()
        return Broadcast(ticket, self._plans[ticket.plan])

    @functools.cached_property
    def message_bytes(self) -> int:
        """The length of every message of this study; longer ones need not be accepted."""
        parts = tuple(np.zeros(reports.shape, np.int64) for reports in self._reports.values())
        return len(Message(SignedTicket(self.study, 0, 0, 0, bytes(_MAC)), parts).to_bytes())

    def absorb(self, message: Message | bytes) -> bool:
        """Counts a message once. Returns True if it is new and False if the same message was counted before; in both
        cases it is kept.

        Raises `MessageError`, which states the reason, if the message is malformed, unknown or expired, or if
        another message was counted under its ticket. Nothing changes then.
        """
        (answer,) = self.absorb_all([message])
        if isinstance(answer, MessageError):
            raise answer
        return answer

    def absorb_all(self, messages: Sequence[Message | bytes]) -> list[bool | MessageError]:
        """Returns the answer of `absorb` to each of several messages after as few commits as possible; a refused
        message does not affect the others.
        """
        read: list[Message | MessageError] = []
        for message in messages:
            try:
                read.append(self.screened(message))
            except MessageError as error:
                read.append(error)
        contents = [one.to_bytes() if isinstance(one, Message) else one for one in messages]
        return self.absorb_screened(list(zip(read, contents, strict=True)))

    def absorb_screened(self, messages: Sequence[tuple[Message | MessageError, bytes]]) -> list[bool | MessageError]:
        """Answers messages, given with their bytes, that `screened` has accepted or refused."""
        answers: list[bool | MessageError] = [False] * len(messages)
        checked: list[_Checked] = []
        for position, (message, content) in enumerate(messages):
            try:
                if isinstance(message, MessageError):
                    raise message
                self._check_plan(message)
                if not self._expired(message, content):
                    checked.append(_Checked(position, message, content))
            except MessageError as error:
                answers[position] = error
        self._count(checked, answers)
        return answers

    def prepare(self) -> None:
        """Reads the key of tickets, so that `signed` and `screened` need no store, and compiles what reports need, so
        that no report waits for it.
        """
        assert self._secret
        for reports in self._reports.values():
            if isinstance(reports, SymbolReports):
                reports.steps_of_each(np.arange(reports.size)[None], self._plans[0], np.zeros(1, np.int64))

    def result(self) -> Result:
        """The current policy and the certificate of all reports of one user."""
        counted, times = self.num_reports, self._study.participation.times
        made = {name: (min(times, counted), reports.calibration) for name, reports in self._reports.items()}
        certificate = self._study.certificate("devices", made=made)
        sizes: dict[str, object] = {"users": counted} if times == 1 else {}
        sizes["episodes"] = counted
        return Result(self._plans[len(self._plans) - 1].policy, certificate, sizes)

    def screened(self, message: Message | bytes) -> Message:
        """Returns a message that a device with a ticket could have sent; raises `MessageError` otherwise.

        Like `signed`, it does not read the store. What remains to check is whether the ticket has expired or was
        used.
        """
        if isinstance(message, bytes):
            if len(message) > self.message_bytes:
                raise MessageError(f"A message of this study has {self.message_bytes} bytes; got {len(message)}.")
            message = Message.from_bytes(message)
        ticket = message.ticket
        if ticket.study != self.study:
            raise MessageError("The message belongs to another study.", "other-study")
        if not hmac.compare_digest(ticket.mac, self._mac(ticket)):
            raise MessageError("The message answers a ticket or a plan that was not issued.", "forged")
        if len(message.parts) != len(self._reports):
            raise MessageError(f"A message has {len(self._reports)} parts; got {len(message.parts)}.")
        for check, part in zip(self._checks, message.parts, strict=True):
            try:
                check(part)
            except ValueError as error:
                raise MessageError(str(error), "out-of-range") from error
        return message

    def _check_plan(self, message: Message) -> None:
        """Refuses a message whose plan does not exist."""
        if message.ticket.plan >= len(self._plans):
            self._plans.refresh()  # the ticket may be of another server that is further
            if message.ticket.plan >= len(self._plans):
                words = "The message answers a plan that this store has forgotten: it is an older copy."
                raise MessageError(words, "unknown-plan")

    def _expired(self, message: Message, content: bytes) -> bool:
        """Whether there is nothing to count because the ticket has expired and its report is kept already."""
        ticket = message.ticket
        if self._clock() < ticket.expires:
            return False
        try:
            if self._store.has_contributed(ticket.key, scope=_SCOPE, mark=content):
                return True
        except ConflictError as error:
            raise _conflict() from error
        raise MessageError("The ticket has expired before the report came; it was not counted.", "expired")

    def _count(self, checked: list[_Checked], answers: list[bool | MessageError]) -> None:
        """Adds reports to the open block, and to the next once it is full, in order."""
        self._plans.refresh()
        while checked:
            room = max(1, self._plans.size - self._store.count(self._plans.sum_name)) if len(checked) > 1 else 1
            some, rest = _distinct(checked, room)
            try:
                new = self._store.contribute(
                    self._plans.sum_name,
                    [one.key for one in some],
                    self._units(some),
                    scope=_SCOPE,
                    at_most=self._plans.size,
                    marks=[one.content for one in some],
                )
            except SumFullError:
                if self._plans.refresh():
                    continue  # another server has filled the block
                if len(some) > 1:
                    self._one_by_one(some, answers)
                else:
                    answers[some[0].position] = MessageError(f"All {self._num_users} users have reported.", "full")
            except ConflictError:
                kept = self._without_conflicts(some, answers)
                if len(kept) < len(some):
                    checked = kept + rest
                    continue
                if len(some) > 1:
                    self._one_by_one(some, answers)
                else:
                    answers[some[0].position] = _conflict()
            else:
                for one, is_new in zip(some, new.tolist(), strict=True):
                    answers[one.position] = is_new
            checked = rest
            self._plans.refresh()

    def _without_conflicts(self, some: list[_Checked], answers: list[bool | MessageError]) -> list[_Checked]:
        """The reports whose ticket has not been used for another report. A faulty report must not slow down the
        others.
        """
        kept = []
        for one in some:
            try:
                self._store.has_contributed(one.key, scope=_SCOPE, mark=one.content)
                kept.append(one)
            except ConflictError:
                answers[one.position] = _conflict()
        return kept

    def _one_by_one(self, some: list[_Checked], answers: list[bool | MessageError]) -> None:
        for one in some:
            self._count([one], answers)

    def _units(self, some: list[_Checked]) -> Int64[np.ndarray, "B n"]:
        """What reports add to the sums; those that answer one plan are computed together."""
        length = sum(reports.length for reports in self._reports.values())
        units = np.zeros((len(some), length), np.int64)
        plans = np.array([one.message.ticket.plan for one in some])
        numbers = np.array([one.message.ticket.number for one in some])
        for plan in np.unique(plans).tolist():
            rows = np.flatnonzero(plans == plan)
            columns = zip(*(some[row].message.parts for row in rows), strict=True)
            units[rows] = np.concatenate(
                [
                    reports.steps_of_each(np.stack(column), self._plans[plan], numbers[rows])
                    for reports, column in zip(self._reports.values(), columns, strict=True)
                ],
                axis=1,
            )
        return units

    def _mac(self, ticket: SignedTicket) -> bytes:
        return hmac.digest(self._secret, ticket.signed, hashlib.sha256)[:_MAC]

    @functools.cached_property
    def _secret(self) -> bytes:
        """The key of tickets; a purged store has lost it and issues no more."""
        return self._store.secret("tickets")


def _distinct(checked: list[_Checked], most: int) -> tuple[list[_Checked], list[_Checked]]:
    """The first of `checked`, of different tickets, and all others in their order."""
    some: dict[str, _Checked] = {}
    rest = []
    for one in checked:
        if len(some) < most and one.key not in some:
            some[one.key] = one
        else:
            rest.append(one)
    return list(some.values()), rest


def _conflict() -> MessageError:
    return MessageError("This ticket has already reported something else; a person reports once.", "conflict")
