"""Messages on the wire: what is damaged, forged or too large is refused, and the rest arrives as it was sent."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privrl.studies.wire import Message, MessageError

STUDY, MAC = bytes(range(16)), bytes(range(16, 32))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(content):
    with pytest.raises(MessageError):
        Message.from_bytes(content)


@given(st.data())
def test_damaged_messages_are_refused(data):
    good = Message(STUDY, 3, 1, MAC, (np.array(4), np.array([[1.5, -2.0]]))).to_bytes()
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
    bad = bytearray(Message(STUDY, 3, 1, MAC, (np.array(4), np.array([[1.5, -2.0]]))).to_bytes())
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
    header = Message(STUDY, 0, 0, MAC, (np.array(1),)).to_bytes()[:-14]
    for part in (b"f\xff" + bytes(4 * 255), b"f\x02" + struct.pack("<2I", 0, 2**31)):
        with pytest.raises(MessageError, match=r"axes|empty"):
            Message.from_bytes(resealed(header + part + bytes(4)))


def test_messages_survive_the_wire():
    message = Message(STUDY, 2**40, 7, MAC, (np.array(4), np.array([[1.5, -2.0], [0.0, 1e300]])))
    again = Message.from_bytes(message.to_bytes())
    assert (again.study, again.ticket, again.plan, again.mac) == (STUDY, 2**40, 7, MAC)
    for left, right in zip(message.parts, again.parts, strict=True):
        np.testing.assert_array_equal(left, right)
    with pytest.raises(MessageError, match="not finite"):
        Message.from_bytes(Message(STUDY, 0, 0, MAC, (np.array([np.nan]),)).to_bytes())
    with pytest.raises(MessageError, match="ticket"):
        Message.from_bytes(Message(STUDY, 2**63, 0, MAC, (np.array([1.0]),)).to_bytes())


@pytest.mark.parametrize(("ticket", "plan"), [(-1, 0), (2**64, 0), (0, 2**32), (0, -1), (1.0, 0), (True, 0), ("1", 0)])
def test_impossible_numbers_are_no_message(ticket, plan):
    with pytest.raises(MessageError, match="whole numbers"):
        Message(bytes(16), ticket, plan, bytes(16), ())
