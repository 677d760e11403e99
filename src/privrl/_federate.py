"""`Client` and `Server`: local privacy between two machines. The trajectory never leaves the client.

The server publishes a plan with a numbered ticket; a client acts on it, and answers with one message that is already
noisy. The server adds up messages, in any order, each at most once, and plans again at public times.
"""

import os
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

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

_MAGIC = b"prvl"
_FORMAT = 1
_HEADER = struct.Struct("<4sHQIH")
_MOST_BYTES = 1 << 26
_TICKETS, _MESSAGES = "tickets", "messages"


class MessageError(ValueError):
    """A message was refused; nothing that was absorbed before is lost."""


@dataclass(frozen=True)
class Message:
    """Arrays with a ticket and the number of the plan they answer; a versioned, checked binary form.

    Formal guarantee: the arrays are the randomised reports themselves; nothing else of the trajectory is in them.
    """

    ticket: int
    plan: int
    parts: tuple[np.ndarray, ...]

    def to_bytes(self) -> bytes:
        """Header, then each array as kind, number of axes, axes and little-endian data; a checksum at the end."""
        body = [_HEADER.pack(_MAGIC, _FORMAT, self.ticket, self.plan, len(self.parts))]
        for part in self.parts:
            kind = b"i" if part.dtype.kind == "i" else b"f"
            body.append(kind + struct.pack(f"<B{part.ndim}I", part.ndim, *part.shape))
            body.append(np.ascontiguousarray(part, dtype=f"<{kind.decode()}8").tobytes())
        content = b"".join(body)
        return content + struct.pack("<I", zlib.crc32(content))

    @classmethod
    def from_bytes(cls, content: bytes) -> "Message":
        """Reads `to_bytes`; anything malformed, oversized or not finite is refused."""
        if not _HEADER.size + 4 <= len(content) <= _MOST_BYTES:
            raise MessageError(f"A message has {_HEADER.size + 4} to {_MOST_BYTES} bytes; got {len(content)}.")
        content, checksum = content[:-4], struct.unpack("<I", content[-4:])[0]
        magic, form, ticket, plan, count = _HEADER.unpack_from(content)
        if magic != _MAGIC or form != _FORMAT:
            raise MessageError(f"This is not a message of format {_FORMAT}; client and server must match.")
        if zlib.crc32(content) != checksum:
            raise MessageError("The checksum is wrong: the message was damaged on the way. Send it again.")
        parts, at = [], _HEADER.size
        for _ in range(count):
            part, at = _read_part(content, at)
            parts.append(part)
        if at != len(content):
            raise MessageError("The message has more bytes than its header says.")
        return cls(ticket, plan, tuple(parts))


def _read_part(content: bytes, at: int) -> tuple[np.ndarray, int]:
    try:
        kind, axes = struct.unpack_from("<cB", content, at)
        shape = struct.unpack_from(f"<{axes}I", content, at + 2)
    except struct.error as error:
        raise MessageError("The message ends inside an array's header.") from error
    at += 2 + 4 * axes
    size = 1
    for axis in shape:
        size *= axis
    if kind not in (b"i", b"f") or len(content) < at + 8 * size:
        raise MessageError("The message ends inside an array, or has an array of an unknown kind.")
    part = np.frombuffer(content, f"<{kind.decode()}8", size, at).reshape(shape)
    if kind == b"f" and not np.isfinite(part).all():
        raise MessageError("The message holds a number that is not finite.")
    return part, at + 8 * size


@dataclass(frozen=True)
class Broadcast:
    """What the server publishes to one client: a ticket, the number of the plan, and the plan."""

    ticket: int
    number: int
    plan: Plan

    def to_bytes(self) -> bytes:
        """The same binary form as messages."""
        leaves = tuple(np.asarray(leaf) for leaf in jax.tree.leaves(self.plan))
        return Message(self.ticket, self.number, leaves).to_bytes()

    @classmethod
    def from_bytes(cls, content: bytes, learner: AbstractOnlineLearner, privatizer: Local) -> "Broadcast":
        """Reads `to_bytes`; the learner says what a plan looks like."""
        message = Message.from_bytes(content)
        like = jax.eval_shape(lambda: _first_plan(learner, _channels(learner, privatizer)[0]))
        leaves, structure = jax.tree.flatten(like)
        if [leaf.shape for leaf in leaves] != [part.shape for part in message.parts]:
            raise MessageError("The broadcast does not fit this learner; client and server must have the same one.")
        arrays = [jnp.asarray(part, leaf.dtype) for part, leaf in zip(message.parts, leaves, strict=True)]
        return cls(message.ticket, message.plan, jax.tree.unflatten(structure, arrays))


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
                part = np.asarray(channel.report(trajectory, broadcast.plan, index, white))
            parts.append(part)
        return Message(broadcast.ticket, broadcast.number, tuple(parts))

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
        self._key = self._own_key() if key is None else key
        self._decoders = {name: eqx.filter_jit(channel.decode) for name, channel in self._channels.items()}
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
        return Broadcast(ticket, number, self._plans[-1])

    def absorb(self, message: Message | bytes) -> None:
        """Adds a message once; a malformed, unknown or repeated one is refused and changes nothing."""
        if isinstance(message, bytes):
            message = Message.from_bytes(message)
        if self._issued.get(message.ticket) != message.plan:
            raise MessageError("The message answers a ticket or a plan that this server did not issue.")
        if message.ticket in self._absorbed:
            raise MessageError("This ticket has already reported; a message counts once.")
        if self.num_reports >= self._num_users:
            raise MessageError(f"All {self._num_users} users have reported.")
        reports = self._checked(message)
        if self._store is not None:
            self._store.append(_MESSAGES, str(message.ticket), message.to_bytes())
        self._count(message, reports)

    def _count(self, message: Message, reports: list[Array]) -> None:
        """Adds the checked reports of one message to the sums, and publishes if that ends a block."""
        plan, index = self._plans[message.plan], jnp.asarray(message.ticket)
        for (name, decode), report in zip(self._decoders.items(), reports, strict=True):
            self._totals[name] = jax.tree.map(jnp.add, self._totals[name], decode(report, plan, index))
        self._absorbed.add(message.ticket)
        if self.num_reports == self._ends[len(self._plans) - 1]:
            self._publish()

    def _own_key(self) -> PRNGKeyArray:
        """Secret randomness for ties, the same for every server on one store."""
        fresh = lambda: os.urandom(8)  # noqa: E731
        seed = fresh() if self._store is None else self._store.fact("ties", fresh)
        return jax.random.key(int.from_bytes(seed, "little") >> 1)

    def _catch_up(self, store: ReleaseStore) -> None:
        """Takes in everything that earlier servers on this store have acknowledged, in the order of its arrival."""
        study = {
            "verb": "server",
            "learner": type(self._learner).__name__,
            "bounds": {name: str(value) for name, value in self._learner.bounds().items()},
            "events": [event.to_json() for event in self._ledger.events()],
            "users": self._num_users,
        }
        store.open_study(study, {})
        self._issued = {int(ticket): int(number) for _, ticket, number in store.read(_TICKETS)}
        for _, _, content in store.read(_MESSAGES):
            message = Message.from_bytes(content)
            self._count(message, self._checked(message))

    def _checked(self, message: Message) -> list[Array]:
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
        self._memory, plan = self._learner.next_plan(self._memory, self._released, _no_question, seen)
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
