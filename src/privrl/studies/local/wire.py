"""What travels between a client and a server, in one binary form (format 3): tickets, plans and randomised reports.

A ticket is signed and belongs to one person. A plan is the same for all people and never changes, so it can be
cached. A report carries its ticket, so what a device keeps is its whole request. The header is the study (the
SHA-256 of its public document, `document.py`), then what the kind needs; arrays follow as kind, number of axes,
axes and little-endian data, and a checksum ends it. A deterministic policy is sent as its actions.
"""

import math
import struct
import zlib
from dataclasses import dataclass

import numpy as np

from privrl.contracts.learner import AbstractOnlineLearner, Plan
from privrl.privacy.trust.privatizers import Local
from privrl.studies.local.local_plans import plan_arrays, plan_form, plan_of_arrays

FORMAT = 3
_TICKET, _PLAN, _MESSAGE = b"prvt", b"prvp", b"prvm"
_WORDS = {_TICKET: "ticket", _PLAN: "plan", _MESSAGE: "message"}
_START = struct.Struct("<4sH32s")  # the kind, the format and the study
_SIGNED = struct.Struct("<QIQ16s")  # number, plan, expiry and mac of a ticket
_NUMBER, _COUNT = struct.Struct("<I"), struct.Struct("<H")
_MOST_BYTES = 1 << 26
_MOST_AXES = 8


class MessageError(ValueError):
    """A message was refused; nothing that was counted before is lost. `reason` is one word for programs.

    >>> try:
    ...     privrl.Message.from_bytes(b"not a message")
    ... except privrl.MessageError as error:
    ...     print(error.reason)
    malformed

    It is damaged, malformed, other-study, forged, expired, unknown-plan, out-of-range, conflict, full or lost.
    """

    def __init__(self, words: str, reason: str = "malformed") -> None:
        super().__init__(words)
        self.reason = reason


@dataclass(frozen=True)
class SignedTicket:
    """Permission to report once, issued to one person. It is not stored: the server recognises it by its MAC.

    Attributes:
        study: the SHA-256 of the study's document.
        number: unique among the tickets of the study.
        plan: the number of the current plan, whose query the report answers.
        expires: when it ends, in seconds since 1970.
        mac: the server's MAC over all of this, without which a ticket cannot be forged.
    """

    study: bytes
    number: int
    plan: int
    expires: int
    mac: bytes

    def __post_init__(self) -> None:
        for number, bits in ((self.number, 63), (self.plan, 32), (self.expires, 63)):
            if type(number) is not int or not 0 <= number < 2**bits:
                raise MessageError("Number, plan and expiry of a ticket are whole numbers of 63, 32 and 63 bits.")
        if len(self.study) != 32 or len(self.mac) != 16:
            raise MessageError("A ticket has the 32 bytes of a study and a mac of 16 bytes.")

    @property
    def signed(self) -> bytes:
        """The bytes that the MAC covers."""
        return self.study + struct.pack("<QIQ", self.number, self.plan, self.expires)

    @property
    def key(self) -> str:
        """The key under which the report of this ticket counts, once. It is more than the number: a store that was
        restored from a copy issues some numbers again, and the people of both tickets may report.
        """
        return f"{self.number}/{self.plan}/{self.expires}"

    def to_bytes(self) -> bytes:
        """80 bytes; the same ticket has the same bytes."""
        return _sealed(_TICKET, self.study, self._packed(), ())

    @classmethod
    def from_bytes(cls, content: bytes) -> "SignedTicket":
        """Reads `to_bytes`."""
        study, content = _opened(_TICKET, content, _SIGNED.size)
        ticket, at = cls._unpacked(study, content)
        _read_parts(content, at, 0)
        return ticket

    def _packed(self) -> bytes:
        return _SIGNED.pack(self.number, self.plan, self.expires, self.mac)

    @classmethod
    def _unpacked(cls, study: bytes, content: bytes) -> tuple["SignedTicket", int]:
        return cls(study, *_SIGNED.unpack_from(content)), _SIGNED.size


@dataclass(frozen=True)
class Message:
    """One person's report with the ticket that it answers: the whole request of a device.

    >>> study = {"world": "riverswim", "epsilon": 1}
    >>> server = privrl.Server("ldp-ucbvi", num_users=100, key=0, **study)
    >>> world = privrl.envs.make("riverswim")
    >>> people = world.sample(world.uniform_policy(), 1, jax.random.key(0))
    >>> record = jax.tree.map(lambda x: x[0], people)
    >>> message = privrl.Client("ldp-ucbvi", key=1, **study).report(record, server.broadcast())
    >>> privrl.Message.from_bytes(message.to_bytes()).ticket == message.ticket
    True

    **Formal guarantee.** The arrays are the randomised reports themselves; nothing else of the trajectory is in them.

    Raises:
        MessageError: the bytes given to `from_bytes` are not a whole message of this format.
    """

    ticket: SignedTicket
    parts: tuple[np.ndarray, ...]

    def to_bytes(self) -> bytes:
        """The bytes that are sent; the same message has the same bytes."""
        return _sealed(_MESSAGE, self.ticket.study, self.ticket._packed(), self.parts)

    @classmethod
    def from_bytes(cls, content: bytes) -> "Message":
        """Reads `to_bytes`; anything malformed, oversized or not finite is refused."""
        study, content = _opened(_MESSAGE, content, _SIGNED.size)
        ticket, at = SignedTicket._unpacked(study, content)
        return cls(ticket, _read_parts(content, at))


@dataclass(frozen=True)
class Broadcast:
    """What the server sends to one client: a ticket, and the plan that it names.

    >>> study = {"world": "riverswim", "epsilon": 1}
    >>> server = privrl.Server("ldp-ucbvi", num_users=100, key=0, **study)
    >>> broadcast = server.broadcast()
    >>> broadcast.ticket.plan
    0
    """

    ticket: SignedTicket
    plan: Plan


def plan_to_bytes(study: bytes, number: int, plan: Plan) -> bytes:
    """Plan `number` of a study; the same from every server."""
    return _sealed(_PLAN, study, _NUMBER.pack(number), plan_arrays(plan))


def plan_from_bytes(content: bytes, ticket: SignedTicket, learner: AbstractOnlineLearner, privatizer: Local) -> Plan:
    """Reads `plan_to_bytes`: the plan that a ticket names; the learner says what a plan looks like."""
    study, content = _opened(_PLAN, content, _NUMBER.size)
    if (study, *_NUMBER.unpack_from(content)) != (ticket.study, ticket.plan):
        raise MessageError("This is not the plan that the ticket names.", "unknown-plan")
    try:
        return plan_of_arrays(_read_parts(content, _NUMBER.size), plan_form(learner, privatizer))
    except ValueError as error:
        raise MessageError(f"The plan does not fit this learner: {error}") from error


def _sealed(magic: bytes, study: bytes, header: bytes, parts: tuple[np.ndarray, ...]) -> bytes:
    body = [_START.pack(magic, FORMAT, study), header, _COUNT.pack(len(parts))]
    for part in parts:
        kind = b"i" if part.dtype.kind == "i" else b"f"
        body.append(kind + struct.pack(f"<B{part.ndim}I", part.ndim, *part.shape))
        body.append(np.ascontiguousarray(part, dtype=f"<{kind.decode()}8").tobytes())
    content = b"".join(body)
    return content + struct.pack("<I", zlib.crc32(content))


def _opened(magic: bytes, content: bytes, header: int) -> tuple[bytes, bytes]:
    """The study, and what follows it without the checksum."""
    least, what = _START.size + header + _COUNT.size + 4, _WORDS[magic]
    if not least <= len(content) <= _MOST_BYTES:
        raise MessageError(f"A {what} has {least} to {_MOST_BYTES} bytes; got {len(content)}.")
    found, form, study = _START.unpack_from(content)
    if (found, form) != (magic, FORMAT):
        raise MessageError(f"This is not a {what} of format {FORMAT}; client and server must match.")
    if zlib.crc32(content[:-4]) != struct.unpack("<I", content[-4:])[0]:
        raise MessageError(f"The checksum is wrong: the {what} was damaged on the way. Send it again.", "damaged")
    return study, content[_START.size : -4]


def _read_parts(content: bytes, at: int, most: int = 2**16) -> tuple[np.ndarray, ...]:
    (count,) = _COUNT.unpack_from(content, at)
    parts, at = [], at + _COUNT.size
    for _ in range(min(count, most)):
        part, at = _read_part(content, at)
        parts.append(part)
    if at != len(content):
        raise MessageError("The message has more bytes than its header says.")
    return tuple(parts)


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
