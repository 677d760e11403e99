"""One form of an id, however it is written, and hashes that keep purposes apart."""

import hashlib
import hmac
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.privacy.canonical_ids import canonical_id, keyed_hash

KEY = bytes(range(32))
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)


@given(number=st.integers(-(2**300), 2**300))
def test_a_number_its_digits_and_its_scalars_are_one_id(number: int) -> None:
    expected = canonical_id(number)
    assert expected == canonical_id(str(number)) == canonical_id(str(number).encode())
    assert expected == canonical_id(np.str_(number))
    for kind in INTEGERS:
        if np.iinfo(kind).min <= number <= np.iinfo(kind).max:
            assert canonical_id(kind(number)) == expected
    for real in (float, np.float16, np.float32, np.float64, np.longdouble):
        if abs(number) < 2 ** (np.finfo(real).nmant + 1):
            assert canonical_id(real(number)) == expected


@settings(max_examples=30)
@given(first=st.text(), second=st.text())
def test_texts_are_one_id_only_if_they_are_the_same(first: str, second: str) -> None:
    assert (canonical_id(first) == canonical_id(second)) == (first == second)


def test_what_looks_alike_is_not_one_id() -> None:
    composed, apart = "\u00e9", "e\u0301"  # one letter in two normal forms
    ids = ["12", "012", " 12", "12 ", "12.0", "+12", "-12", "1e1", "", "A", "a", composed, apart, "\uff11\uff12"]
    assert len({canonical_id(value) for value in ids}) == len(ids)
    assert canonical_id(-0.0) == canonical_id(0) != canonical_id("-0")
    assert canonical_id(np.uint64(2**63 + 1)) == b"9223372036854775809"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "missing"),
        (float("nan"), "missing"),
        (np.float32("nan"), "missing"),
        (True, "`bool`"),
        (np.bool_(False), "`bool`"),
        (918273.5, "fraction"),
        (float("-inf"), "too large"),
        (2.0**53, "too large"),
        (np.float32(2**24), "too large"),
        (-np.float16(2**11), "too large"),
        (918273 << 5000, "bits"),
        ("zyxwv\ud800", "surrogate"),
        (b"zyxwv\xff", "UTF-8"),
        (("zyxwv", 918273), "`tuple`"),
        (np.array(918273), "`ndarray`"),
        (np.datetime64(918273, "s"), "`datetime64`"),
        (918273 + 0j, "`complex`"),
    ],
)
def test_what_has_no_canonical_form_is_refused_without_quoting_it(value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        canonical_id(value)
    assert "zyxwv" not in str(caught.value) and "918273" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_a_keyed_hash_is_hmac_of_the_prefixed_purpose() -> None:
    expected = hmac.new(KEY, b"\0\0\0\0\0\0\0\x02" + b"ab" + b"c", hashlib.sha256).digest()
    assert keyed_hash(KEY, "ab")(b"c") == expected
    assert len({keyed_hash(KEY, "ab")(b"c"), keyed_hash(KEY, "a")(b"bc"), keyed_hash(KEY, "abc")(b"")}) == 3
    assert keyed_hash(bytes(32), "ab")(b"c") != expected
    with pytest.raises(ValueError, match="32"):
        keyed_hash(KEY[:31], "ab")
