"""Messages on the wire: what is damaged, forged or too large is refused, and the rest arrives as it was sent."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privrl.studies.local.wire import Message, MessageError, SignedTicket

STUDY, MAC = bytes(range(32)), bytes(range(32, 48))
TICKET = SignedTicket(STUDY, 3, 1, 1_900_000_000, MAC)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(content):
    with pytest.raises(MessageError):
        Message.from_bytes(content)


@given(st.data())
def test_damaged_messages_are_refused(data):
    good = Message(TICKET, (np.array(4), np.array([[1.5, -2.0]]))).to_bytes()
    position = data.draw(st.integers(0, len(good) - 1))
    change = data.draw(st.integers(1, 255))
    bad = bytearray(good)
    bad[position] ^= change
    with pytest.raises(MessageError):
        Message.from_bytes(bytes(bad))


def resealed(content):
    """The same bytes with a checksum that fits."""
    return content[:-4] + struct.pack("<I", zlib.crc32(content[:-4]))


@given(st.data())
def test_forged_messages_are_refused_or_read_whatever_they_claim(data):
    """With a checksum that fits, damage is either refused as such or leaves finite arrays."""
    bad = bytearray(Message(TICKET, (np.array(4), np.array([[1.5, -2.0]]))).to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 5))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 12))
    content = resealed(bytes(bad[: len(bad) - 4 - cut]) + bytes(4))
    try:
        message = Message.from_bytes(content)
    except MessageError:
        return
    assert message.to_bytes() == content
    assert all(np.isfinite(part).all() for part in message.parts)


def test_many_axes_and_empty_arrays_are_refused():
    header = Message(TICKET, (np.array(1),)).to_bytes()[:-14]
    for part in (b"f\xff" + bytes(4 * 255), b"f\x02" + struct.pack("<2I", 0, 2**31)):
        with pytest.raises(MessageError, match=r"axes|empty"):
            Message.from_bytes(resealed(header + part + bytes(4)))


def test_messages_and_tickets_survive_the_wire():
    ticket = SignedTicket(STUDY, 2**40, 7, 2**33, MAC)
    assert SignedTicket.from_bytes(ticket.to_bytes()) == ticket and len(ticket.to_bytes()) == 80
    message = Message(ticket, (np.array(4), np.array([[1.5, -2.0], [0.0, 1e300]])))
    again = Message.from_bytes(message.to_bytes())
    assert again.ticket == ticket
    for left, right in zip(message.parts, again.parts, strict=True):
        np.testing.assert_array_equal(left, right)
    with pytest.raises(MessageError, match="not finite"):
        Message.from_bytes(Message(TICKET, (np.array([np.nan]),)).to_bytes())
    for one, other in ((Message, ticket), (SignedTicket, message)):
        with pytest.raises(MessageError, match="This is not a") as caught:
            one.from_bytes(other.to_bytes())
        assert caught.value.reason == "malformed"
    with pytest.raises(MessageError, match="damaged") as caught:
        Message.from_bytes(message.to_bytes()[:-1] + b"\0")
    assert caught.value.reason == "damaged"


@pytest.mark.parametrize(
    ("number", "plan", "expires"),
    [(-1, 0, 0), (2**63, 0, 0), (0, 2**32, 0), (0, -1, 0), (1.0, 0, 0), (True, 0, 0), ("1", 0, 0), (0, 0, -1)],
)
def test_impossible_numbers_are_no_ticket(number, plan, expires):
    with pytest.raises(MessageError, match="whole numbers"):
        SignedTicket(STUDY, number, plan, expires, MAC)
    with pytest.raises(MessageError, match="32 bytes"):
        SignedTicket(b"", 0, 0, 0, MAC)
