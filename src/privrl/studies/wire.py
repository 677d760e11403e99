"""What travels between a client and a server: plans with a ticket one way, randomised reports the other way.

One binary form for both: a header (study, ticket, plan and the server's mac of all three), then each array as kind,
number of axes, axes and little-endian data, and a checksum at the end.
"""

import math
import struct
import zlib
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from privrl.contracts.learner import AbstractOnlineLearner, Plan
from privrl.privacy.trust.privatizers import Local
from privrl.studies.local_plans import leaves_of, plan_form

_MESSAGE, _BROADCAST = b"prvm", b"prvb"
_FORMAT = 3
_HEADER = struct.Struct("<4sH16sQI16sH")
_MOST_BYTES = 1 << 26
_MOST_AXES = 8


class MessageError(ValueError):
    """A message was refused; nothing that was absorbed before is lost."""


@dataclass(frozen=True)
class Message:
    """Arrays with the study and ticket they belong to and the number of the plan they answer.

    `mac` is what the server signed the ticket with: whoever has not got a ticket cannot make one up.

    Formal guarantee: the arrays are the randomised reports themselves; nothing else of the trajectory is in them.
    """

    study: bytes
    ticket: int
    plan: int
    mac: bytes
    parts: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        for number, bits in ((self.ticket, 64), (self.plan, 32)):
            if type(number) is not int or not 0 <= number < 2**bits:
                raise MessageError("A ticket and the number of a plan are whole numbers of 64 and 32 bits.")

    def to_bytes(self) -> bytes:
        """The bytes that are sent; the same message has the same bytes."""
        return _packed(_MESSAGE, self)

    @classmethod
    def from_bytes(cls, content: bytes) -> "Message":
        """Reads `to_bytes`; anything malformed, oversized or not finite is refused."""
        return _unpacked(_MESSAGE, content)


@dataclass(frozen=True)
class Broadcast:
    """What the server publishes to one client: the study, a ticket, the number of the plan, its mac, and the plan."""

    study: bytes
    ticket: int
    number: int
    mac: bytes
    plan: Plan

    def to_bytes(self) -> bytes:
        """The same binary form as messages, under another name."""
        return _packed(_BROADCAST, Message(self.study, self.ticket, self.number, self.mac, leaves_of(self.plan)))

    @classmethod
    def from_bytes(cls, content: bytes, learner: AbstractOnlineLearner, privatizer: Local) -> "Broadcast":
        """Reads `to_bytes`; the learner says what a plan looks like."""
        message = _unpacked(_BROADCAST, content)
        leaves, structure = jax.tree.flatten(plan_form(learner, privatizer))
        if [leaf.shape for leaf in leaves] != [part.shape for part in message.parts]:
            raise MessageError("The broadcast does not fit this learner; client and server must have the same one.")
        arrays = [jnp.asarray(part, leaf.dtype) for part, leaf in zip(message.parts, leaves, strict=True)]
        plan = jax.tree.unflatten(structure, arrays)
        return cls(message.study, message.ticket, message.plan, message.mac, plan)


def _packed(magic: bytes, message: Message) -> bytes:
    numbers = message.study, message.ticket, message.plan, message.mac, len(message.parts)
    body = [_HEADER.pack(magic, _FORMAT, *numbers)]
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
    magic, form, study, ticket, plan, mac, count = _HEADER.unpack_from(content)
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
    return Message(study, ticket, plan, mac, tuple(parts))


def _read_part(content: bytes, at: int) -> tuple[np.ndarray, int]:
    try:
        kind, axes = struct.unpack_from("<cB", content, at)
        if axes > _MOST_AXES:
            raise MessageError(f"The message has an array of {axes} axes; there are at most {_MOST_AXES}.")
        shape = struct.unpack_from(f"<{axes}I", content, at + 2)
    except struct.error as error:
        raise MessageError("The message ends inside an array's header.") from error
    at += 2 + 4 * axes
    size = math.prod(shape)
    if kind not in (b"i", b"f") or size == 0 or len(content) < at + 8 * size:
        raise MessageError("The message ends inside an array, or has an array that is empty or of an unknown kind.")
    part = np.frombuffer(content, f"<{kind.decode()}8", size, at).reshape(shape)
    if kind == b"f" and not np.isfinite(part).all():
        raise MessageError("The message holds a number that is not finite.")
    return part, at + 8 * size
