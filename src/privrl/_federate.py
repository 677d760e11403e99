"""`Client` and `Server`: local privacy between two machines. The trajectory never leaves the client.

The server publishes a plan with a numbered ticket; a client acts on it, and answers with one message that is already
noisy. The server adds up messages, in any order, each at most once, and plans again at public times. Both carry the
random identifier of their study, so what belongs to another study is refused.
"""

import functools
import itertools
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from privrl._result import Result
from privrl.learners import AbstractOnlineLearner, Plan
from privrl.mdp import Trajectory
from privrl.privacy import (
    AbstractLocalChannel,
    Certificate,
    Ledger,
    Local,
    ReleaseStore,
    Seeded,
    SymbolChannel,
    System,
)

_MESSAGE, _BROADCAST = b"prvm", b"prvb"
_FORMAT = 2
_HEADER = struct.Struct("<4sH16sQIH")
_MOST_BYTES = 1 << 26
_MOST_AXES = 8
_TICKETS, _MESSAGES = "tickets", "messages"
_TOGETHER = 256  # messages that are replayed in one compiled step


class MessageError(ValueError):
    """A message was refused; nothing that was absorbed before is lost."""


@dataclass(frozen=True)
class Message:
    """Arrays with the study and ticket they belong to and the number of the plan they answer.

    Formal guarantee: the arrays are the randomised reports themselves; nothing else of the trajectory is in them.
    """

    study: bytes
    ticket: int
    plan: int
    parts: tuple[np.ndarray, ...]

    def to_bytes(self) -> bytes:
        """Header, then each array as kind, number of axes, axes and little-endian data; a checksum at the end."""
        return _packed(_MESSAGE, self)

    @classmethod
    def from_bytes(cls, content: bytes) -> "Message":
        """Reads `to_bytes`; anything malformed, oversized or not finite is refused."""
        return _unpacked(_MESSAGE, content)


def _packed(magic: bytes, message: Message) -> bytes:
    header = _HEADER.pack(magic, _FORMAT, message.study, message.ticket, message.plan, len(message.parts))
    body = [header]
    for part in message.parts:
        kind = b"i" if part.dtype.kind == "i" else b"f"
        body.append(kind + struct.pack(f"<B{part.ndim}I", part.ndim, *part.shape))
        body.append(np.ascontiguousarray(part, dtype=f"<{kind.decode()}8").tobytes())
    content = b"".join(body)
    return content + struct.pack("<I", zlib.crc32(content))


def _unpacked(expected: bytes, content: bytes) -> Message:
    if not _HEADER.size + 4 <= len(content) <= _MOST_BYTES:
        raise MessageError(f"A message has {_HEADER.size + 4} to {_MOST_BYTES} bytes; got {len(content)}.")
    content, checksum = content[:-4], struct.unpack("<I", content[-4:])[0]
    magic, form, study, ticket, plan, count = _HEADER.unpack_from(content)
    if magic != expected or form != _FORMAT:
        what = "message" if expected == _MESSAGE else "broadcast"
        raise MessageError(f"This is not a {what} of format {_FORMAT}; client and server must match.")
    if zlib.crc32(content) != checksum:
        raise MessageError("The checksum is wrong: the message was damaged on the way. Send it again.")
    if ticket >= 2**63:
        raise MessageError("A ticket is a number below 2**63.")
    parts, at = [], _HEADER.size
    for _ in range(count):
        part, at = _read_part(content, at)
        parts.append(part)
    if at != len(content):
        raise MessageError("The message has more bytes than its header says.")
    return Message(study, ticket, plan, tuple(parts))


def _read_part(content: bytes, at: int) -> tuple[np.ndarray, int]:
    try:
        kind, axes = struct.unpack_from("<cB", content, at)
        if axes > _MOST_AXES:
            raise MessageError(f"The message has an array of {axes} axes; there are at most {_MOST_AXES}.")
        shape = struct.unpack_from(f"<{axes}I", content, at + 2)
    except struct.error as error:
        raise MessageError("The message ends inside an array's header.") from error
    at += 2 + 4 * axes
    size = 1
    for axis in shape:
        size *= axis
    if kind not in (b"i", b"f") or size == 0 or len(content) < at + 8 * size:
        raise MessageError("The message ends inside an array, or has an array that is empty or of an unknown kind.")
    part = np.frombuffer(content, f"<{kind.decode()}8", size, at).reshape(shape)
    if kind == b"f" and not np.isfinite(part).all():
        raise MessageError("The message holds a number that is not finite.")
    return part, at + 8 * size


@dataclass(frozen=True)
class Broadcast:
    """What the server publishes to one client: the study, a ticket, the number of the plan, and the plan."""

    study: bytes
    ticket: int
    number: int
    plan: Plan

    def to_bytes(self) -> bytes:
        """The same binary form as messages, under another name."""
        leaves = tuple(np.asarray(leaf) for leaf in jax.tree.leaves(self.plan))
        return _packed(_BROADCAST, Message(self.study, self.ticket, self.number, leaves))

    @classmethod
    def from_bytes(cls, content: bytes, learner: AbstractOnlineLearner, privatizer: Local) -> "Broadcast":
        """Reads `to_bytes`; the learner says what a plan looks like."""
        message = _unpacked(_BROADCAST, content)
        leaves, structure = jax.tree.flatten(_plan_form(_Same(learner), privatizer))
        if [leaf.shape for leaf in leaves] != [part.shape for part in message.parts]:
            raise MessageError("The broadcast does not fit this learner; client and server must have the same one.")
        arrays = [jnp.asarray(part, leaf.dtype) for part, leaf in zip(message.parts, leaves, strict=True)]
        return cls(message.study, message.ticket, message.plan, jax.tree.unflatten(structure, arrays))


@dataclass(frozen=True, eq=False)
class _Same:
    """A learner as the key of a cache: itself, and nothing that looks like it (its arrays have no hash)."""

    learner: AbstractOnlineLearner

    def __hash__(self) -> int:
        return id(self.learner)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.learner is self.learner


@functools.lru_cache(maxsize=8)
def _plan_form(same: _Same, privatizer: Local) -> Plan:
    """The shapes of a plan, without computing one."""
    return jax.eval_shape(lambda: _first_plan(same.learner, _channels(same.learner, privatizer)[0]))


class Client:
    """One person's device: reports once, with noise inside.

    Arguments:
        learner, privatizer: the same as the server's.
        key: seeded noise for simulations; leave it out on real people.
    """

    def __init__(self, learner: AbstractOnlineLearner, privatizer: Local, *, key: PRNGKeyArray | None = None) -> None:
        self._channels, self._ledger = _channels(learner, privatizer)
        self._source = System() if key is None else Seeded(key)
        self._learner, self._privatizer = learner, privatizer
        self._reported = False

    def report(self, trajectory: Trajectory, broadcast: Broadcast) -> Message:
        """The one message of this person; a second report raises, because it would spend the budget again."""
        if self._reported:
            raise MessageError("This client has already reported; one person sends one message. Make a new `Client`.")
        self._reported = True
        parts = []
        for name, channel in self._channels.items():
            index, label = jnp.asarray(broadcast.ticket), (name, broadcast.ticket)
            if isinstance(self._source, System):
                part = channel.report_exactly(trajectory, broadcast.plan, index, self._source.stream(label))
            else:
                kind, shape = channel.white
                white = self._source.normal(label, shape) if kind == "normal" else self._source.uniform(label, shape)
                part = channel.sent(channel.report(trajectory, broadcast.plan, index, jnp.asarray(white)))
            parts.append(part)
        return Message(broadcast.study, broadcast.ticket, broadcast.number, tuple(parts))

    @property
    def certificate(self) -> Certificate:
        """What one report can reveal."""
        return _certificate(self._ledger, self._learner, self._privatizer, self._source.description)


class Server:
    """Publishes plans, absorbs messages, and never sees a trajectory.

    Arguments:
        learner, privatizer: the algorithm, and `Local(...)`.
        num_users: the public number of people, which fixes the schedule of plans.
        key: how ties between equally good actions are broken; leave it out for fresh randomness.
        store: where tickets and messages are kept. A message is acknowledged after it is on disk, and a server that is
            started again with the same arguments and store goes on where the last one stopped.
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
        self._channels, self._ledger = _channels(learner, privatizer)
        self._learner, self._privatizer, self._store = learner, privatizer, store
        self._ends = [int(end) for end in learner.blocks(num_users)]
        self._num_users = num_users
        if store is not None:
            self._open_study(store)
        self._study = self._secret("study", 16)
        self._key = jax.random.key(int.from_bytes(self._secret("ties", 8), "little") >> 1) if key is None else key
        self._memories = {name: channel.init() for name, channel in self._channels.items()}
        self._released = {name: channel.empty() for name, channel in self._channels.items()}
        self._totals: dict[str, Any] = dict(self._memories)
        self._memory: Any = learner.init()
        self._plans: list[Plan] = []
        self._issued: dict[int, int] = {}
        self._absorbed: set[int] = set()
        self._replan()
        if store is not None:
            self._catch_up(store)

    @property
    def num_reports(self) -> int:
        """How many messages were absorbed."""
        return len(self._absorbed)

    def broadcast(self) -> Broadcast:
        """A new ticket with the current plan."""
        if self.num_reports >= self._num_users:
            raise MessageError(f"All {self._num_users} users have reported. Start a new server for more.")
        ticket, number = len(self._issued), len(self._plans) - 1
        if self._store is not None:
            self._store.append(_TICKETS, str(ticket), str(number).encode())
        self._issued[ticket] = number
        return Broadcast(self._study, ticket, number, self._plans[-1])

    @functools.cached_property
    def message_bytes(self) -> int:
        """The length of every message of this study; whoever carries messages need not accept longer ones."""
        parts = tuple(np.zeros(channel.sent_shape) for channel in self._channels.values())
        return len(Message(self._study, 0, 0, parts).to_bytes())

    def absorb(self, message: Message | bytes) -> None:
        """Adds a message once; a malformed, unknown or repeated one is refused and changes nothing."""
        if isinstance(message, bytes):
            if len(message) > self.message_bytes:
                raise MessageError(f"A message of this study has {self.message_bytes} bytes; got {len(message)}.")
            message = Message.from_bytes(message)
        if message.study != self._study:
            raise MessageError("The message belongs to another study.")
        if self._issued.get(message.ticket) != message.plan:
            raise MessageError("The message answers a ticket or a plan that this server did not issue.")
        if message.ticket in self._absorbed:
            raise MessageError("This ticket has already reported; a message counts once.")
        if self.num_reports >= self._num_users:
            raise MessageError(f"All {self._num_users} users have reported.")
        reports = self._checked(message)
        if self._store is not None:
            self._store.append(_MESSAGES, str(message.ticket), message.to_bytes())
        self._count([message], [reports])

    def _count(self, messages: Sequence[Message], reports: Sequence[list[Array | np.ndarray]]) -> None:
        """Adds the checked reports of messages of one block and one plan, in their order; publishes at its end."""
        plan, tickets = self._plans[messages[0].plan], [message.ticket for message in messages]
        padding = [0] * (-len(tickets) % _TOGETHER if len(tickets) > 1 else 0)
        index = np.array(tickets + padding)
        valid = np.arange(len(index)) < len(tickets)
        for i, (name, channel) in enumerate(self._channels.items()):
            stack = np.stack([np.asarray(one[i]) for one in reports] + [np.asarray(reports[0][i])] * len(padding))
            self._totals[name] = _added(channel, self._totals[name], stack, plan, index, valid)
        self._absorbed.update(tickets)
        if self.num_reports == self._ends[len(self._plans) - 1]:
            self._publish()

    def _secret(self, name: str, size: int) -> bytes:
        """Random bytes that are the same for every server on one store."""
        fresh = lambda: os.urandom(size)  # noqa: E731
        return fresh() if self._store is None else self._store.fact(name, fresh)

    def _open_study(self, store: ReleaseStore) -> None:
        study = {
            "verb": "server",
            "learner": type(self._learner).__name__,
            "bounds": {name: str(value) for name, value in self._learner.bounds().items()},
            "events": [event.to_json() for event in self._ledger.events()],
            "users": self._num_users,
        }
        store.open_study(study, {})

    def _catch_up(self, store: ReleaseStore) -> None:
        """Takes in everything that earlier servers on this store have acknowledged, in the order of its arrival."""
        self._issued = {int(ticket): int(number) for _, ticket, number in store.read(_TICKETS)}
        kept = iter([Message.from_bytes(content) for _, _, content in store.read(_MESSAGES)])
        for end in self._ends:
            block = itertools.islice(kept, end - self.num_reports)
            for _, alike in itertools.groupby(list(block), key=lambda message: message.plan):
                messages = list(alike)
                self._count(messages, [self._checked(message) for message in messages])

    def _checked(self, message: Message) -> list[Array | np.ndarray]:
        """The reports in a message, each of the form that its channel makes."""
        if len(message.parts) != len(self._channels):
            raise MessageError(f"A message has {len(self._channels)} parts; got {len(message.parts)}.")
        try:
            checked = zip(self._channels.values(), message.parts, strict=True)
            return [channel.checked(part) for channel, part in checked]
        except ValueError as error:
            raise MessageError(str(error)) from error

    def result(self) -> Result:
        """The current policy and the certificate of one user's report."""
        certificate = _certificate(self._ledger, self._learner, self._privatizer, "on the users' devices")
        return Result(self._plans[-1].policy, certificate, {"users": self.num_reports, "episodes": self.num_reports})

    def _publish(self) -> None:
        t = jnp.asarray(len(self._plans) - 1)
        for name, channel in self._channels.items():
            self._memories[name], self._released[name] = channel.publish(
                self._memories[name], self._totals[name], t, _no_noise
            )
            self._totals[name] = jax.tree.map(jnp.zeros_like, self._totals[name])
        self._replan()

    def _replan(self) -> None:
        seen = jnp.asarray(self.num_reports)
        self._memory, plan = _next_plan(self._learner, self._memory, self._released, seen)
        if any(isinstance(channel, SymbolChannel) for channel in self._channels.values()):
            policy = plan.policy.realised(jax.random.fold_in(self._key, len(self._plans)))
            plan = Plan(policy, plan.question)
        self._plans.append(plan)


def _channels(learner: AbstractOnlineLearner, privatizer: Local) -> tuple[dict[str, AbstractLocalChannel], Ledger]:
    if not isinstance(privatizer, Local):
        raise TypeError(
            f"`Client` and `Server` need `Local(...)`, not `{type(privatizer).__name__}`: with a trusted curator, use "
            "`privrl.run` or `privrl.fit`."
        )
    declared = learner.declare(1)
    privatizer.check(type(learner).__name__, declared)
    ledger = privatizer.calibrate(declared)
    return {d.name: privatizer.channel(d, ledger) for d in declared}, ledger


@eqx.filter_jit
def _next_plan(learner: AbstractOnlineLearner, memory: Any, released: Any, seen: Int[Array, ""]) -> tuple[Any, Plan]:
    return learner.next_plan(memory, released, _no_question, seen)


@eqx.filter_jit
def _added(
    channel: AbstractLocalChannel,
    total: Any,
    reports: Array | np.ndarray,
    plan: Plan,
    tickets: Int[Array | np.ndarray, " B"],
    valid: Bool[Array | np.ndarray, " B"],
) -> Any:
    """The sums after some more reports, added one after the other, so that a replay gives the same bits."""

    def add(total: Any, x: tuple[Array, Array, Array]) -> tuple[Any, None]:
        report, ticket, counts = x
        term = channel.decode(report, plan, ticket)
        return jax.tree.map(lambda a, b: jnp.where(counts, a + b, a), total, term), None

    return jax.lax.scan(add, total, (jnp.asarray(reports), jnp.asarray(tickets), jnp.asarray(valid)))[0]


def _first_plan(learner: AbstractOnlineLearner, channels: dict[str, AbstractLocalChannel]) -> Plan:
    released = {name: channel.empty() for name, channel in channels.items()}
    return learner.next_plan(learner.init(), released, _no_question, jnp.zeros((), int))[1]


def _certificate(ledger: Ledger, learner: AbstractOnlineLearner, privatizer: Local, noise_source: str) -> Certificate:
    return privatizer.certificate(
        ledger,
        learner=type(learner).__name__,
        unit="user",
        bounds={**learner.bounds(), "messages per user": 1},
        noise_source=noise_source,
    )


def _no_question(name: str, index: int, question: Any) -> Any:
    raise MessageError(f"`{name}` cannot be asked for: under local privacy nobody keeps raw data.")


def _no_noise(index: int) -> Any:
    raise MessageError("Local channels draw no noise on the server.")
